// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"bytes"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A PodSpec describes a pod for [Runtime.AddPod]. Every field can be left zero.
type PodSpec struct {
	// UID names the pod; empty makes a new UID. A UID with sandboxes gets another sandbox, with the
	// next attempt.
	UID string
	// Name and Namespace default to a name made from a counter, and "default".
	Name, Namespace string
	// Labels are added to those of every pod.
	Labels map[string]string
}

// sandbox is an attempt of a pod. All but the fields from state on is fixed once stored.
type sandbox struct {
	id, name, namespace, uid, labelUID string
	attempt                            uint32
	handler                            string
	labels, annotations                map[string]string // nil once encoded, if nothing but blob needs them
	blob                               []byte            // runtime.v1.PodSandbox without its state
	tail                               *tail             // more constant fields; those of the direct methods' objects are shared
	createdAt                          int64
	hostNetwork                        bool
	logDir                             string

	state      State
	ip         string
	containers []*container
	ghosts     []ghost // containers just removed, for stale payloads; at most maxGhosts
	removing   bool    // its DELETED was sent, and it leaves the store soon
}

// ghost is a removed container in its last state.
type ghost struct {
	c    *container
	view view
}

const maxGhosts = 4

// sameName reports whether two sandboxes of a pod cannot coexist.
func (sb *sandbox) sameName(other *sandbox) bool {
	return sb.attempt == other.attempt && sb.name == other.name && sb.namespace == other.namespace
}

func (sb *sandbox) withPodLabels(extra map[string]string) map[string]string {
	m := map[string]string{labelPodName: sb.name, labelPodNamespace: sb.namespace, labelPodUID: sb.uid}
	maps.Copy(m, extra)
	return m
}

// encode builds the blob from the fields, and drops the maps.
func (sb *sandbox) encode() {
	sb.blob = encode(&runtimeapi.PodSandbox{
		Id: sb.id, Metadata: &runtimeapi.PodSandboxMetadata{Name: sb.name, Uid: sb.uid, Namespace: sb.namespace, Attempt: sb.attempt},
		CreatedAt: sb.createdAt, RuntimeHandler: sb.handler,
	})
	sb.blob = bytes.Clone(appendMap(appendMap(sb.blob, 5, sb.labels), 6, sb.annotations))
	sb.labelUID = sb.labels[labelPodUID]
	sb.labels, sb.annotations = nil, nil
}

// message returns the list's item.
func (sb *sandbox) message() *runtimeapi.PodSandbox {
	return decode[runtimeapi.PodSandbox](sb.appendItem(nil, sb.state))
}

// appendItem writes the fields of a runtime.v1.PodSandbox.
func (sb *sandbox) appendItem(b []byte, state State) []byte {
	b = append(b, sb.blob...)
	b = append(b, sb.tail.item...)
	return appendInt(b, 3, state.enum())
}

// appendStatus writes the fields of a runtime.v1.PodSandboxStatus.
func (sb *sandbox) appendStatus(b []byte, state State, createdAt int64) []byte {
	b = appendRenumbered(b, sb.blob, &sandboxToStatus)
	b = append(b, sb.tail.status...)
	b = appendInt(b, 3, state.enum())
	if createdAt != sb.createdAt {
		b = appendInt(b, 4, createdAt) // the last of a repeated field counts
	}
	return appendMessage(b, 5, appendString(nil, 1, sb.ip))
}

// namespaces are the namespaces in a sandbox's status.
func namespaces(o *runtimeapi.NamespaceOption) *runtimeapi.LinuxPodSandboxStatus {
	return &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: o}}
}

// The methods of listed.
func (sb *sandbox) ident() string                          { return sb.id }
func (sb *sandbox) current() State                         { return sb.state }
func (sb *sandbox) encoded() (blob, tail []byte)           { return sb.blob, sb.tail.item }
func (sb *sandbox) fields() (state, text protowire.Number) { return 3, 7 }
func (sb *sandbox) labelMap() map[string]string            { return sb.message().Labels }
func (sb *sandbox) podLabel() string                       { return sb.labelUID }
func (sb *sandbox) appendIDs(b []byte) []byte              { return appendString(b, 1, sb.id) }
