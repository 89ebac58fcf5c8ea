// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images of every runtime from the beginning, pinned. Other images must be pulled before a call can
// create their containers. Every name can be pulled, and is an image of its own.
const (
	WorkloadImage = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	PauseImage    = "registry.k8s.io/pause:3.10"
)

// image is a pulled image. Its digest is its ID.
type image struct {
	id      string
	tag     string   // the full name of the pull; empty: pulled by the digest
	digests []string // the full names with the digest
	size    uint64
	pinned  bool
}

func (rt *Runtime) addDefaultImages() {
	rt.images = map[string]*image{}
	for _, name := range []string{PauseImage, WorkloadImage} {
		rt.imageOf(name).pinned = true
	}
}

// The parts of an image's name are its domain, path, tag and digest.
var imageName = regexp.MustCompile(`^(?:([A-Za-z0-9][A-Za-z0-9-]*[.:][A-Za-z0-9.:-]*|localhost)/)?` +
	`([a-z0-9]+(?:(?:/|[._-]+)[a-z0-9]+)*)` +
	`(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`)

// normalImage returns a name in full, such as docker.io/library/nginx:latest for nginx, its part
// without tag and digest, and its digest. An invalid name gives empty ones.
func normalImage(name string) (repo, full, digest string) {
	parts := imageName.FindStringSubmatch(name)
	if parts == nil {
		return "", "", ""
	}
	domain := parts[1]
	path := parts[2]
	tag := parts[3]
	digest = parts[4]
	if domain == "" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	repo = cmp.Or(domain, "docker.io") + "/" + path
	if digest != "" {
		return repo, repo + "@" + digest, digest
	}
	return repo, repo + ":" + cmp.Or(tag, "latest"), ""
}

// imageOf returns the image of a name or ID, and pulls new images. Invalid names are names all the
// same.
func (rt *Runtime) imageOf(name string) *image {
	if img := rt.findImage(name); img != nil {
		return img
	}
	repo, full, digest := normalImage(name)
	repo = cmp.Or(repo, name)
	full = cmp.Or(full, name)
	id := cmp.Or(digest, digestOf(full))
	img := rt.images[id]
	if img == nil {
		img = &image{id: id, size: 1<<20 + hashOf(0, cmp.Or(digest, full))%(1<<28)}
		rt.images[id] = img
	}
	if digest == "" {
		img.tag = full
		rt.images[full] = img
		full = repo + "@" + id
	}
	if rt.images[full] == nil {
		img.digests = append(img.digests, full)
		rt.images[full] = img
	}
	return img
}

// digestOf is the ID of an image, and the digest of its manifest, made from its full name.
func digestOf(full string) string {
	h := hashOf(0, full)
	return fmt.Sprintf("sha256:%016x%016x%016x%016x", mix(h), mix(h+1), mix(h+2), mix(h+3))
}

// findImage returns the image of a name, an ID or a digest, or nil.
func (rt *Runtime) findImage(name string) *image {
	if img := rt.images[name]; img != nil {
		return img
	}
	_, full, _ := normalImage(name)
	return rt.images[full]
}

func (img *image) message() *runtimeapi.Image {
	m := &runtimeapi.Image{
		Id:          img.id,
		RepoDigests: slices.Sorted(slices.Values(img.digests)),
		Size:        img.size,
		Pinned:      img.pinned,
		Spec:        &runtimeapi.ImageSpec{Image: img.id},
	}
	if img.tag != "" {
		m.RepoTags = []string{img.tag}
	}
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
	var out []*runtimeapi.Image
	for _, name := range slices.Sorted(maps.Keys(rt.images)) {
		if img := rt.images[name]; img.id == name {
			out = append(out, img.message())
		}
	}
	return out
}

// ListImages lists the images, sorted by ID.
func (s *service) ListImages(
	_ context.Context,
	req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: s.rt.listImages(req.GetFilter())}, nil
}

// ImageStatus of an unknown image is an empty answer, not an error.
func (s *service) ImageStatus(
	_ context.Context,
	req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	img := s.rt.findImage(req.GetImage().GetImage())
	if img == nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	res := &runtimeapi.ImageStatusResponse{Image: img.message()}
	if req.GetVerbose() {
		res.Info = map[string]string{
			"info": infoJSON(map[string]any{"imageSpec": map[string]any{"architecture": "virtual"}}),
		}
	}
	return res, nil
}

// pullTime is the duration of a pull, unless a client's shorter deadline ends the pull.
const pullTime = 20 * time.Millisecond

// PullImage makes an image of any valid name, and refuses others.
func (s *service) PullImage(
	ctx context.Context,
	req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if _, full, _ := normalImage(name); full == "" {
		return nil, invalid(
			"PullImage: %q is no name of an image: write [host/]path[:tag][@digest] in lower case",
			name,
		)
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

// RemoveImage removes an image with all its names; an absent image is removed already.
func (s *service) RemoveImage(
	_ context.Context,
	req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	if img := s.rt.findImage(req.GetImage().GetImage()); img != nil {
		maps.DeleteFunc(s.rt.images, func(_ string, named *image) bool { return named == img })
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports a file system with the images and the containers.
func (s *service) ImageFsInfo(
	context.Context,
	*runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	usage := func(bytes int) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{diskUsage(s.rt.stamp(), uint64(bytes))}
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: usage(
			len(s.rt.images) << 26,
		),
		ContainerFilesystems: usage((1 + len(s.rt.store.containers.list)) << 16),
	}, nil
}
