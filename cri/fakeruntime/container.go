// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"bytes"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A ContainerSpec describes a container for [Runtime.AddContainer]. Every field can be left zero.
type ContainerSpec struct {
	// Name defaults to c0, c1 … by the number of containers in the sandbox. A name in use in the
	// sandbox gets the next attempt.
	Name string
	// Life determines the natural end of a started container. The zero value runs until stopped.
	Life Life
	// Labels are added to those of every container of a pod.
	Labels map[string]string
}

// view is the mutable part of a container.
type view struct {
	state                 State
	startedAt, finishedAt int64
	exitCode              int32
	reason, message       string
}

// container is a container. All but view, prev and held is fixed once stored.
type container struct {
	id, name, labelUID  string
	attempt             uint32
	sb                  *sandbox
	image, userImage    string
	imageRef            string
	labels, annotations map[string]string // nil once encoded
	blob                []byte            // runtime.v1.Container without its state
	tail                *tail             // more constant fields; those of the direct methods' objects are shared
	resources           []byte            // field 16 of the status, encoded; nil: none set
	user                []byte            // field 18 of the status, encoded; nil: the profile's runtime does not tell
	createdAt           int64
	life                Life
	program             *program
	logPath             string

	view
	prev *view // the state before, for stale payloads
	held *heldEvent
}

// idle is the program of a container that the direct methods made.
var idle = &program{}

const (
	exitKilled  = 137
	exitTerm    = 143
	exitUnknown = 255
	exitStart   = 128
	exitUnborn  = 2
)

// termCode is the exit code of a container that obeys SIGTERM.
func (c *container) termCode() int32 {
	if c.program.pause {
		return 0
	}
	return exitTerm
}

// stopCode is the exit code of a container stopped by the runtime without a grace period.
func (rt *Runtime) stopCode(c *container) int32 {
	if rt.cfg.Profile.GracefulStops && !c.program.ignoreTerm {
		return c.termCode()
	}
	return exitKilled
}

// sameName reports whether two containers of a sandbox cannot coexist.
func (c *container) sameName(other *container) bool {
	return c.attempt == other.attempt && c.name == other.name
}

func (c *container) withPodLabels(extra map[string]string) map[string]string {
	m := c.sb.withPodLabels(extra)
	m[labelContainerName] = c.name
	return m
}

// kubeletAnnotations are a kubelet's annotations of every container, besides commonAnnotations.
func (c *container) kubeletAnnotations() map[string]string {
	return map[string]string{
		"io.kubernetes.container.hash":         strconv.FormatUint(hashOf(0, c.name)&0xffffffff, 16),
		"io.kubernetes.container.restartCount": itoa(c.attempt),
	}
}

// commonAnnotations have the same value in most containers.
var commonAnnotations = map[string]string{
	"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
	"io.kubernetes.container.terminationMessagePolicy": "File",
	"io.kubernetes.pod.terminationGracePeriod":         "30",
}

// encode builds the blob from the fields, and drops the maps.
func (c *container) encode() {
	c.blob = encode(&runtimeapi.Container{
		Id: c.id, PodSandboxId: c.sb.id, Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
		Image: &runtimeapi.ImageSpec{Image: c.image, UserSpecifiedImage: c.userImage}, ImageRef: c.imageRef, ImageId: c.imageRef,
		CreatedAt: c.createdAt,
	})
	c.blob = bytes.Clone(appendMap(appendMap(c.blob, 8, c.labels), 9, c.annotations))
	c.labelUID = c.labels[labelPodUID]
	c.labels, c.annotations = nil, nil
}

// message returns the list's item.
func (c *container) message() *runtimeapi.Container {
	return decode[runtimeapi.Container](c.appendItem(nil, c.state))
}

// appendItem writes the fields of a runtime.v1.Container.
func (c *container) appendItem(b []byte, state State) []byte {
	b = append(b, c.blob...)
	b = append(b, c.tail.item...)
	return appendInt(b, 6, state.enum())
}

// appendStatus writes the fields of a runtime.v1.ContainerStatus.
func (c *container) appendStatus(b []byte, v view) []byte {
	b = appendRenumbered(b, c.blob, &containerToStatus)
	b = append(b, c.tail.status...)
	b = appendInt(b, 3, v.state.enum())
	b = appendInt(b, 5, v.startedAt)
	b = appendInt(b, 6, v.finishedAt)
	b = appendInt(b, 7, int64(v.exitCode))
	b = appendString(b, 10, v.reason)
	b = appendString(b, 11, v.message)
	b = append(b, c.resources...)
	return append(b, c.user...)
}

// kubeletMounts are like those of a kubelet for a container.
var kubeletMounts = []*runtimeapi.Mount{
	{ContainerPath: "/etc/hosts", HostPath: "/var/lib/kubelet/pods/pod/etc-hosts"},
	{ContainerPath: "/dev/termination-log", HostPath: "/var/lib/kubelet/pods/pod/containers/c/0"},
	{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: "/var/lib/kubelet/pods/pod/volumes/kubernetes.io~projected/kube-api-access", Readonly: true},
}

// The methods of listed.
func (c *container) ident() string                          { return c.id }
func (c *container) current() State                         { return c.state }
func (c *container) encoded() (blob, tail []byte)           { return c.blob, c.tail.item }
func (c *container) fields() (state, text protowire.Number) { return 6, 5 }
func (c *container) labelMap() map[string]string            { return c.message().Labels }
func (c *container) podLabel() string                       { return c.labelUID }
func (c *container) appendIDs(b []byte) []byte {
	return appendString(appendString(b, 1, c.id), 2, c.sb.id)
}
