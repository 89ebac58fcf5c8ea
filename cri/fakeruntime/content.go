// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Writing is an entry of the history of contents: what a status shows beside the state has
// changed. Runtimes announce no such change.
type Writing struct {
	// Seq numbers the writings, from 0, without gaps.
	Seq uint64
	// Time is the time of the change. It has a monotonic reading; writings are in its order.
	Time time.Time
	// ID is the container or sandbox.
	ID string
	// Text is the content: [ContainerText] of a container, the IP of a sandbox.
	Text string
}

// ContainerText is the content of a container's status in a [Writing].
func ContainerText(exitCode int32, reason string, memoryLimit int64) string {
	return fmt.Sprintf("code=%d,reason=%s,memory=%d", exitCode, reason, memoryLimit)
}

// contents keeps the last writings. The runtime's mutex guards it.
type contents struct {
	limit    int // < 0: none
	writings []Writing
	first    uint64 // Seq of the oldest
}

// Contents returns the writings with Seq ≥ since, oldest first, and the Seq of the next. As with
// [Runtime.History] the oldest may have been dropped.
func (rt *Runtime) Contents(since uint64) (writings []Writing, next uint64) {
	rt.lock()
	defer rt.mu.Unlock()
	h := &rt.contents
	next = h.first + uint64(len(h.writings))
	since = min(max(since, h.first), next)
	return slices.Clone(h.writings[since-h.first:]), next
}

// written records the content of an item, if it is another than before.
func (rt *Runtime) written(item interface {
	content() (text *string, now string)
}) {
	text, now := item.content()
	if *text == now {
		return
	}
	*text = now
	h := &rt.contents
	w := Writing{Seq: h.first + uint64(len(h.writings)), Time: time.Now(), Text: now}
	switch item := item.(type) {
	case *container:
		w.ID = item.id
	case *sandbox:
		w.ID = item.id
	}
	h.writings = append(h.writings, w)
	if h.limit >= 0 && len(h.writings) > h.limit {
		h.writings = h.writings[1:] // the next growth drops it
		h.first++
	}
}

func (c *container) content() (text *string, now string) {
	var limit int64
	if len(c.resources) > 0 {
		var st runtimeapi.ContainerStatus
		if proto.Unmarshal(c.resources, &st) == nil {
			limit = st.GetResources().GetLinux().GetMemoryLimitInBytes()
		}
	}
	return &c.text, ContainerText(c.exitCode, c.reason, limit)
}

func (sb *sandbox) content() (text *string, now string) {
	return &sb.text, cmp.Or(sb.ip, "none")
}

// lateBy is how late a reason, an exit code or an address is.
func (rt *Runtime) lateBy() time.Duration { return cmp.Or(rt.faults.LateBy, 20*time.Millisecond) }

// hold255 returns what the end of a container shows at first, and schedules the rest.
func (rt *Runtime) hold255(c *container, v view) view {
	reason := rt.roll(rollLateReason, rt.faults.LateReason, c.id)
	code := rt.roll(rollLateCode, rt.faults.LateCode, c.id)
	if !reason && !code {
		return v
	}
	late := v
	if reason {
		late.exitCode = exitKilled
		late.reason = "OOMKilled"
		v.exitCode = exitKilled
		v.reason = "Error"
	}
	if code {
		v.exitCode = exitUnknown
	}
	rt.sched.after(rt.lateBy(), func() {
		if _, there := rt.store.containers.get(c.id); there && c.state == StateExited {
			c.view = late // without an event, and prev stays: payloads that are stale are so by states
			rt.written(c)
		}
	})
	return v
}

// withholdAddress takes the address of a new sandbox away for a while.
func (rt *Runtime) withholdAddress(sb *sandbox) {
	if sb.ip == "" || !rt.roll(rollLateAddress, rt.faults.LateAddress, sb.id) {
		return
	}
	ip := sb.ip
	sb.ip = ""
	rt.sched.after(rt.lateBy(), func() {
		if sb.state == StateReady && sb.ip == "" {
			sb.ip = ip
			rt.written(sb)
		}
	})
}
