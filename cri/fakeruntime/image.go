// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images of every runtime from the beginning, pinned. Other images must be pulled before a call can
// create their containers.
const (
	WorkloadImage = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	PauseImage    = "registry.k8s.io/pause:3.10"
)

// An Image is content of the registries for [Config]. Names without an Image can be pulled too: the
// content is their own, runs as root and has no command.
type Image struct {
	// Names are the references in registries: the first decides the ID.
	Names []string
	// User is the user of the containers, a UID or a name, perhaps with a group after a colon.
	User string
	// Users are those in its files, besides root and nobody, which every image has.
	Users []ImageUser
	// Command is for containers without a command of their own.
	Command []string
}

// An ImageUser is a user in the files of an [Image].
type ImageUser struct {
	Name     string
	UID, GID int64
	// Groups are the other groups of the user.
	Groups []int64
}

// ReadImages reads images from JSON, such as
//
//	[{"names": ["example.com/app:1"], "user": "1000", "command": ["sh", "-c", "echo up; sleep inf"]}]
func ReadImages(r io.Reader) (images []Image, err error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&images); err != nil {
		return nil, fmt.Errorf("fakeruntime: images: %w", err)
	}
	for _, img := range images {
		if err := img.validate(); err != nil {
			return nil, fmt.Errorf("fakeruntime: images: %w", err)
		}
	}
	return images, nil
}

func (img Image) validate() error {
	if len(img.Names) == 0 {
		return errors.New("an image has no name: give it one such as example.com/app:1")
	}
	for _, name := range img.Names {
		if _, ok := normalImage(name); !ok {
			return fmt.Errorf("%q is no name of an image: write [host/]path[:tag][@digest] in lower case", name)
		}
	}
	if _, err := (&image{Image: img}).identify(nil); err != nil {
		return fmt.Errorf("image %s: its user %q is not one of its users", img.Names[0], img.User)
	}
	if _, err := runAhead(img.Command, root, false); err != nil {
		return fmt.Errorf("image %s: command: %w", img.Names[0], err)
	}
	return nil
}

// image is a pulled image. Its digest is its ID.
type image struct {
	Image
	id            string
	tags, digests []string // the full names of the pulls
	size          uint64
	pinned        bool
}

func (rt *Runtime) addDefaultImages() {
	rt.images, rt.imageNames = map[string]*image{}, map[string]*image{}
	for _, name := range []string{PauseImage, WorkloadImage} {
		rt.imageOf(name).pinned = true
	}
}

// someImages returns the first few names of images.
func (rt *Runtime) someImages() string {
	const few = 5
	names := slices.Sorted(maps.Keys(rt.imageNames))
	text := strings.Join(names[:min(few, len(names))], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Parts of an image's name, as written by clients.
var (
	imagePath   = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
	imageDomain = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?$`)
	imageTag    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	imageDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// normalImage returns a name in full: nginx is docker.io/library/nginx:latest. ok is false for an
// invalid name.
func normalImage(name string) (full string, ok bool) {
	repo, digest, digested := strings.Cut(name, "@")
	tag := ""
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo, tag = repo[:i], repo[i+1:]
		if !imageTag.MatchString(tag) {
			return "", false
		}
	}
	domain, path, hasDomain := strings.Cut(repo, "/")
	if !hasDomain || !strings.ContainsAny(domain, ".:") && domain != "localhost" {
		domain, path = "docker.io", repo
		if !hasDomain {
			path = "library/" + repo
		}
	}
	if !imageDomain.MatchString(domain) || !imagePath.MatchString(path) || digested && !imageDigest.MatchString(digest) {
		return "", false
	}
	if digested {
		return domain + "/" + path + "@" + digest, true
	}
	return domain + "/" + path + ":" + cmp.Or(tag, "latest"), true
}

// imageOf returns the image of a name or ID, and pulls new images. Invalid names are names all the
// same.
func (rt *Runtime) imageOf(name string) *image {
	if img := rt.findImage(name); img != nil {
		return img
	}
	if full, ok := normalImage(name); ok {
		name = full
	}
	repo, digest, digested := strings.Cut(name, "@")
	content, key := rt.contentOf(name), name
	switch {
	case content != nil:
		key = content.Names[0]
	case digested:
		key = digest
	}
	img := rt.images[digestOf(key)]
	if img == nil {
		img = &image{id: digestOf(key), size: 1<<20 + hashOf(0, key)%(1<<28)}
		if content != nil {
			img.Image = *content
		}
		rt.images[img.id] = img
	}
	if !digested {
		img.tags = append(img.tags, name)
		rt.imageNames[name] = img
		if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
			repo = repo[:i]
		}
		name = repo + "@" + img.id
	}
	if rt.imageNames[name] == nil {
		img.digests = append(img.digests, name)
		rt.imageNames[name] = img
	}
	return img
}

// contentOf returns the configured image with this full name, or nil.
func (rt *Runtime) contentOf(full string) *Image {
	for i := range rt.cfg.Images {
		if img := &rt.cfg.Images[i]; slices.ContainsFunc(img.Names, func(name string) bool { return sameImage(name, full) }) {
			return img
		}
	}
	return nil
}

func sameImage(name, full string) bool {
	other, ok := normalImage(name)
	return ok && other == full
}

// digestOf is the ID of an image, and the digest of its manifest, made from its content's key. A
// digest is its own.
func digestOf(key string) string {
	if imageDigest.MatchString(key) {
		return key
	}
	h := hashOf(0, key)
	return fmt.Sprintf("sha256:%016x%016x%016x%016x", mix(h), mix(h+1), mix(h+2), mix(h+3))
}

// findImage returns the image of a name, an ID or a digest, or nil.
func (rt *Runtime) findImage(name string) *image {
	if img := rt.images[name]; img != nil {
		return img
	}
	if full, ok := normalImage(name); ok {
		name = full
	}
	return rt.imageNames[name]
}

// userName splits the user of an image as the CRI does: a number is a UID, all else a name.
func (img *image) userName() (uid *runtimeapi.Int64Value, name string) {
	name, _, _ = strings.Cut(img.User, ":")
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		return &runtimeapi.Int64Value{Value: n}, ""
	}
	return nil, name
}

func (img *image) message() *runtimeapi.Image {
	uid, name := img.userName()
	return &runtimeapi.Image{
		Id: img.id, RepoTags: slices.Sorted(slices.Values(img.tags)), RepoDigests: slices.Sorted(slices.Values(img.digests)),
		Size: img.size, Uid: uid, Username: name, Pinned: img.pinned, Spec: &runtimeapi.ImageSpec{Image: img.id},
	}
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

// pullTime is the duration of a pull, unless a client's shorter deadline ends the pull.
const pullTime = 20 * time.Millisecond

// PullImage makes an image of any valid name, and refuses others.
func (s *service) PullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if name == "" {
		return nil, invalid("PullImage: image.image is empty")
	}
	if _, ok := normalImage(name); !ok {
		return nil, invalid("PullImage: %q is no name of an image: write [host/]path[:tag][@digest] in lower case", name)
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
func (s *service) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	if img := s.rt.findImage(req.GetImage().GetImage()); img != nil {
		delete(s.rt.images, img.id)
		maps.DeleteFunc(s.rt.imageNames, func(_ string, named *image) bool { return named == img })
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
