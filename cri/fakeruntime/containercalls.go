// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer makes a container of a present image; its lifetime comes from annotations or the
// command.
func (s *service) CreateContainer(
	_ context.Context,
	req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	cfg := req.GetConfig()
	if cfg.GetMetadata().GetName() == "" {
		return nil, invalid("CreateContainer: config.metadata.name is empty")
	}
	if cfg.GetImage().GetImage() == "" {
		return nil, invalid(
			"CreateContainer: config.image.image of container %q is empty",
			cfg.GetMetadata().GetName(),
		)
	}
	var c *container
	err := s.perform(func() (ev *event, err error) {
		c, ev, err = s.rt.createRequested(req)
		return ev, err
	})
	if err != nil {
		return nil, s.refusal(err)
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// createRequested makes the requested container, or returns the holder of its name, like the
// profile's runtime.
func (rt *Runtime) createRequested(req *runtimeapi.CreateContainerRequest) (*container, *event, error) {
	p := &rt.cfg.Profile
	cfg := req.GetConfig()
	sb, err := rt.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, nil, err
	}
	if p.WantsUserImage && cfg.GetImage().GetUserSpecifiedImage() == "" {
		return nil, nil, status.Error(
			codes.Unknown,
			"CreateContainer: user specified image not specified, cannot verify image signature",
		)
	}
	c := &container{
		id:          rt.ids.hex64(),
		name:        cfg.GetMetadata().GetName(),
		attempt:     cfg.GetMetadata().GetAttempt(),
		sb:          sb,
		image:       cfg.GetImage().GetImage(),
		userImage:   cfg.GetImage().GetUserSpecifiedImage(),
		labels:      cfg.GetLabels(),
		annotations: cfg.GetAnnotations(),
		resources:   mergeResources(nil, cfg.GetLinux().GetResources()),
	}
	if cfg.GetLogPath() != "" {
		c.logPath = path.Join(sb.logDir, cfg.GetLogPath())
	}
	c.tail = &tail{
		status: encode(
			&runtimeapi.ContainerStatus{
				Mounts:     cfg.GetMounts(),
				StopSignal: cfg.GetStopSignal(),
				LogPath:    c.logPath,
			},
		),
	}
	if old := rt.containerNamed(c); old != nil && p.NamesReturned {
		return old, nil, nil
	}
	if err := rt.admit(c); err != nil {
		return nil, nil, err
	}
	if rt.findImage(c.image) == nil {
		return nil, nil, fmt.Errorf(
			"%w: CreateContainer: container %q: image %q was never pulled: pull it, or use %s",
			errNoImage,
			c.name,
			c.image,
			WorkloadImage,
		)
	}
	if c.user, err = p.userOf(cfg.GetLinux().GetSecurityContext()); err != nil {
		return nil, nil, err
	}
	if c.program, err = programOf(cfg, sb.message().Annotations); err != nil {
		return nil, nil, invalid("CreateContainer: container %q: %v", c.name, err)
	}
	if c.program.missing && p.CreateFails {
		return nil, nil, status.Error(
			codes.Unknown,
			"CreateContainer: the command does not exist: no such file or directory",
		)
	}
	c.life = c.program.life
	return c, rt.addCreated(c), nil
}

// userOf returns the encoded field ContainerStatus.user of a container with this security context.
// The images know no user but root by name.
func (p Profile) userOf(sc *runtimeapi.LinuxContainerSecurityContext) ([]byte, error) {
	name := sc.GetRunAsUsername()
	switch {
	case sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && name == "":
		return nil, status.Error(
			codes.Unknown,
			"CreateContainer: run_as_group is set without run_as_user: set both",
		)
	case sc.GetRunAsUser() == nil && name != "" && name != "root":
		return nil, status.Errorf(codes.Unknown, "CreateContainer: the image has no user %q", name)
	case p.User == UserUntold:
		return nil, nil
	}
	user := &runtimeapi.LinuxContainerUser{
		Uid: sc.GetRunAsUser().GetValue(),
		Gid: sc.GetRunAsGroup().GetValue(),
	}
	for _, g := range slices.Concat([]int64{user.Gid}, sc.GetSupplementalGroups()) {
		if !slices.Contains(user.SupplementalGroups, g) {
			user.SupplementalGroups = append(user.SupplementalGroups, g)
		}
	}
	if p.User == UserSortedGroups {
		slices.Sort(user.SupplementalGroups)
	}
	return proto.Marshal(&runtimeapi.ContainerStatus{User: &runtimeapi.ContainerUser{Linux: user}})
}

// mergeResources returns encoded resources with what a change sets. A limit of memory without one
// of swap is that of swap, too.
func mergeResources(encoded []byte, change *runtimeapi.LinuxContainerResources) []byte {
	var st runtimeapi.ContainerStatus
	if change == nil || proto.Unmarshal(encoded, &st) != nil {
		return encoded
	}
	merged := st.GetResources().GetLinux()
	if merged == nil {
		merged = &runtimeapi.LinuxContainerResources{}
	}
	if len(change.HugepageLimits) > 0 {
		merged.HugepageLimits = nil // Merge appends
	}
	proto.Merge(merged, change)
	if change.MemoryLimitInBytes != 0 && change.MemorySwapLimitInBytes == 0 {
		merged.MemorySwapLimitInBytes = change.MemoryLimitInBytes
	}
	b, err := proto.Marshal(
		&runtimeapi.ContainerStatus{Resources: &runtimeapi.ContainerResources{Linux: merged}},
	)
	if err != nil {
		return encoded
	}
	return b
}

// StartContainer starts a created container.
func (s *service) StartContainer(
	_ context.Context,
	req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.perform(func() (*event, error) {
		c, err := s.rt.containerByID(req.GetContainerId())
		if err != nil {
			return nil, err
		}
		return s.rt.startContainer(c)
	})
}

// containerNamed returns the container with this container's name in any sandbox of the pod, or
// nil: a runtime that answers with the holder reserves names by pod.
func (rt *Runtime) containerNamed(c *container) *container {
	if p := rt.store.pods[c.sb.uid]; p != nil {
		for _, sb := range p.sandboxes {
			if i := slices.IndexFunc(sb.containers, c.sameName); i >= 0 {
				return sb.containers[i]
			}
		}
	}
	return nil
}

// StopContainer ends a running container with 143, or with 137 if there is no time to end by itself
// and the profile's runtime kills then. Anything else is stopped already.
func (s *service) StopContainer(
	ctx context.Context,
	req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	rt := s.rt
	rt.lock()
	c, err := rt.containerByID(req.GetContainerId())
	if err != nil {
		rt.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	ignores := c.program.ignoreTerm && c.state == StateRunning
	life := rt.incarnation
	rt.mu.Unlock()
	code := c.termCode()
	switch timeout := req.GetTimeout(); {
	case timeout <= 0:
		code = rt.stopCode(c)
	case ignores:
		if err := wait(ctx, life, seconds(timeout)); err != nil {
			return nil, err
		}
		code = exitKilled
	}
	rt.lock()
	defer rt.mu.Unlock()
	if err := s.endingLag(ctx, c.state == StateRunning); err != nil {
		return nil, err
	}
	rt.exit(c, code, "", "")
	return &runtimeapi.StopContainerResponse{}, nil
}

// seconds is a call's timeout as a duration; one of many years is cut short, and one below zero is
// none.
func seconds(timeout int64) time.Duration {
	return time.Duration(min(max(timeout, 0), 1<<30)) * time.Second
}

// RemoveContainer stops a running container and removes it; an absent container is removed already.
func (s *service) RemoveContainer(
	ctx context.Context,
	req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, s.perform(func() (*event, error) {
		c, missing := s.rt.containerByID(req.GetContainerId())
		if missing != nil {
			return nil, nil
		}
		err := s.endingLag(ctx, c.state == StateRunning)
		if _, there := s.rt.store.containers.get(c.id); err != nil || !there { // removed with its sandbox meanwhile
			return nil, err
		}
		return s.rt.removeContainer(c, false), nil
	})
}

// UpdateContainerResources changes the requested resources in the status, without an event, in any
// state of the container.
func (s *service) UpdateContainerResources(
	_ context.Context,
	req *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.perform(func() (*event, error) {
		c, err := s.rt.containerByID(req.GetContainerId())
		if err == nil {
			c.resources = mergeResources(c.resources, req.GetLinux())
			s.rt.written(c)
		}
		return nil, err
	})
}

// ReopenContainerLog creates the log file of a running container again, after a rotation.
func (s *service) ReopenContainerLog(
	_ context.Context,
	req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, _, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	s.rt.lock()
	defer s.rt.mu.Unlock()
	if err := s.rt.writeLog(c, ""); err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// ExecSync runs what runAhead knows; there is no event for it.
func (s *service) ExecSync(
	ctx context.Context,
	req *runtimeapi.ExecSyncRequest,
) (*runtimeapi.ExecSyncResponse, error) {
	_, runs, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	p, err := runAhead(req.GetCmd())
	if err != nil {
		return nil, invalid("ExecSync: %v", err)
	}
	if !p.life.Ends {
		return nil, status.Errorf(
			codes.Unimplemented,
			"ExecSync of %q: containers are virtual: they do not know it",
			req.GetCmd(),
		)
	}
	if limit := seconds(req.GetTimeout()); limit > 0 && limit < p.life.For {
		if err := wait(ctx, runs, limit); err != nil {
			return nil, err
		}
		return nil, status.Errorf(
			codes.DeadlineExceeded,
			"ExecSync of %q: timeout %v exceeded",
			req.GetCmd(),
			limit,
		)
	}
	if err := wait(ctx, runs, p.life.For); err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(p.output()), ExitCode: p.life.ExitCode}, nil
}

// running returns the container and the runtime's life, or an error unless the container runs.
func (s *service) running(id string) (*container, <-chan struct{}, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	c, err := s.rt.containerByID(id)
	if err != nil {
		return nil, nil, err
	}
	if c.state != StateRunning {
		return nil, nil, status.Errorf(
			codes.FailedPrecondition,
			"container %q is %v, not running",
			c.id,
			c.state,
		)
	}
	return c, s.rt.incarnation, nil
}
