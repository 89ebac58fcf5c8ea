// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images that every runtime has from the beginning, pinned. A call that creates a container of
// another one must pull it first.
const (
	WorkloadImage = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	PauseImage    = "registry.k8s.io/pause:3.10"
)

// image is a pulled image: each name has its own. Its digest is its ID.
type image struct {
	id, name string // with a tag or a digest
	size     uint64
	pinned   bool
}

func (rt *Runtime) addDefaultImages() {
	rt.images = map[string]*image{}
	for _, name := range []string{PauseImage, WorkloadImage} {
		rt.imageOf(name).pinned = true
	}
}

// someImages returns the first few names of images.
func (rt *Runtime) someImages() string {
	const few = 5
	var names []string
	for _, img := range rt.images {
		names = append(names, img.name)
	}
	slices.Sort(names)
	text := strings.Join(names[:min(few, len(names))], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// imageOf returns the image of a name or an ID, and pulls a new one.
func (rt *Runtime) imageOf(name string) *image {
	img := rt.findImage(name)
	if img == nil {
		name = tagged(name)
		img = &image{id: digestOf(name), name: name, size: 1<<20 + hashOf(0, name)%(1<<28)}
		rt.images[img.id] = img
	}
	return img
}

// tagged returns a name with a tag or a digest: nginx is nginx:latest.
func tagged(name string) string {
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		name += ":latest"
	}
	return name
}

// digestOf is the ID of an image, and the digest of its manifest. A name can contain it.
func digestOf(name string) string {
	if _, digest, ok := strings.Cut(name, "@"); ok {
		return digest
	}
	h := hashOf(0, name)
	return fmt.Sprintf("sha256:%016x%016x%016x%016x", mix(h), mix(h+1), mix(h+2), mix(h+3))
}

// findImage returns the image that a name or an ID stands for, or nil.
func (rt *Runtime) findImage(name string) *image {
	if img := rt.images[name]; img != nil {
		return img
	}
	return rt.images[digestOf(tagged(name))]
}

func (img *image) message() *runtimeapi.Image {
	m := &runtimeapi.Image{Id: img.id, Size: img.size, Pinned: img.pinned, Spec: &runtimeapi.ImageSpec{Image: img.id}}
	repo, _, digested := strings.Cut(img.name, "@")
	if !digested {
		m.RepoTags = []string{img.name}
		repo = repo[:strings.LastIndexByte(repo, ':')]
	}
	m.RepoDigests = []string{repo + "@" + img.id}
	return m
}

func (rt *Runtime) listImages(f *runtimeapi.ImageFilter) []*runtimeapi.Image {
	rt.lock()
	defer rt.mu.Unlock()
	if name := f.GetImage().GetImage(); name != "" {
		if img := rt.findImage(name); img != nil {
			return []*runtimeapi.Image{img.message()}
		}
		return nil
	}
	out := make([]*runtimeapi.Image, 0, len(rt.images))
	for _, id := range slices.Sorted(maps.Keys(rt.images)) {
		out = append(out, rt.images[id].message())
	}
	return out
}

// ListImages lists the images, sorted by ID.
func (s *service) ListImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: s.rt.listImages(req.GetFilter())}, nil
}

// ImageStatus of an unknown image is an empty answer, not an error.
func (s *service) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	img := s.rt.findImage(req.GetImage().GetImage())
	if img == nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	res := &runtimeapi.ImageStatusResponse{Image: img.message()}
	if req.GetVerbose() {
		res.Info = map[string]string{"info": infoJSON(map[string]any{"imageSpec": map[string]any{"architecture": "virtual"}})}
	}
	return res, nil
}

// pullTime is how long a pull lasts: a client's shorter deadline ends it.
const pullTime = 20 * time.Millisecond

// PullImage makes an image of any name.
func (s *service) PullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if name == "" {
		return nil, invalid("PullImage: image.image is empty")
	}
	s.rt.lock()
	life := s.rt.incarnation
	s.rt.mu.Unlock()
	if err := wait(ctx, life, pullTime); err != nil {
		return nil, err
	}
	s.rt.lock()
	defer s.rt.mu.Unlock()
	return &runtimeapi.PullImageResponse{ImageRef: s.rt.imageOf(name).id}, nil
}

// RemoveImage removes an image; an absent one is removed already.
func (s *service) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	if img := s.rt.findImage(req.GetImage().GetImage()); img != nil {
		delete(s.rt.images, img.id)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports a file system with the images and the containers.
func (s *service) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	used := uint64(1 << 20)
	for _, img := range s.rt.images {
		used += img.size
	}
	usage := func(bytes uint64) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{
			Timestamp: s.rt.stamp(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/virtual"},
			UsedBytes: &runtimeapi.UInt64Value{Value: bytes}, InodesUsed: &runtimeapi.UInt64Value{Value: bytes / 4096},
		}}
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage(used), ContainerFilesystems: usage(uint64(1+len(s.rt.store.containerList)) << 16)}, nil
}
