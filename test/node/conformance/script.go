// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// missing is an ID unknown to every runtime.
var missing = strings.Repeat("0", 64)

// A step of the script.
type step struct {
	name string
	// anyOrder: the step ends several containers at once, in the runtime's random order.
	anyOrder bool
	// removes is the name of a container removed while running.
	removes string
	run     func(*recording)
}

// objects are the script's objects; steps make them for later steps.
type objects struct {
	pod, again, other, running *crikit.Pod
	runs                       string
}

// script is every change of a pod and a container by a call, and every call to be refused.
func script() []step {
	o := &objects{}
	return []step{
		{name: "what it can do", run: func(r *recording) { r.abilities() }},
		{name: "run a pod", run: func(r *recording) { o.pod = r.runPod("pod", 0) }},
		{name: "a container ends by itself", run: func(r *recording) { r.ends(o.pod, "ends", 3) }},
		{name: "statuses", run: func(r *recording) { r.statuses(o.pod) }},
		{name: "create a container and remove it before it starts", run: func(r *recording) {
			id := r.create(o.pod, crikit.Spec{Name: "unborn", Args: []string{"sleep", "1h"}})
			r.called("remove", r.Remove(r.ctx, id))
		}},
		{name: "users", run: func(r *recording) { r.users(o.pod) }},
		{name: "an image that is not there", run: func(r *recording) { r.absentImage(o.pod) }},
		{name: "stop a container that takes SIGTERM", run: func(r *recording) {
			id := r.runs(o.pod, "gentle", "sleep", "1h")
			r.called("stop", r.Stop(r.ctx, id, 10*time.Second))
			r.told("gentle", id)
		}},
		{name: "stop a container at once", run: func(r *recording) {
			id := r.runs(o.pod, "hasty", "sleep", "1h")
			r.called("stop", r.Stop(r.ctx, id, 0))
			r.told("hasty", id)
			r.hears(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, id)
			r.called("stop again", r.Stop(r.ctx, id, 0))
			r.called("remove", r.Remove(r.ctx, id))
			r.called("remove again", r.Remove(r.ctx, id))
		}},
		{name: "remove a container that runs", removes: "removed", run: func(r *recording) {
			r.called("remove", r.Remove(r.ctx, r.runs(o.pod, "removed", "sleep", "1h")))
		}},
		{name: "remove a container that runs and is a pause", removes: "pause", run: func(r *recording) {
			r.called("remove", r.Remove(r.ctx, r.runs(o.pod, "pause", "pause")))
		}},
		{name: "a command that does not exist", run: func(r *recording) {
			id := r.create(o.pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"})
			if id == "" {
				return
			}
			r.called("start", r.Start(r.ctx, id))
			r.told("broken", id)
			r.called("remove", r.Remove(r.ctx, id))
		}},
		{name: "names in use", run: func(r *recording) {
			o.runs = r.runs(o.pod, "runs", "sleep", "1h")
			r.create(o.pod, crikit.Spec{Name: "runs", Args: []string{"sleep", "1h"}})
			r.runPod("pod", 0)
		}},
		{name: "calls that are refused", run: func(r *recording) { r.refusals(o) }},
		{name: "resources", run: func(r *recording) { r.resources(o.runs) }},
		{name: "another sandbox of the same pod", run: func(r *recording) {
			o.again = r.runPod("pod", 1)
			r.ends(o.again, "new", 0)
		}},
		{
			name:     "stop the old sandbox",
			anyOrder: true,
			run:      func(r *recording) { r.called("stop", r.StopPod(r.ctx, o.pod.SandboxID)); r.told("runs", o.runs) },
		},
		{
			name: "stop it again",
			run:  func(r *recording) { r.called("stop", r.StopPod(r.ctx, o.pod.SandboxID)) },
		},
		{
			name: "create in it",
			run:  func(r *recording) { r.create(o.pod, crikit.Spec{Name: "late", Args: []string{"sleep", "1h"}}) },
		},
		{
			name:     "remove it",
			anyOrder: true,
			run:      func(r *recording) { r.called("remove", r.RemovePod(r.ctx, o.pod.SandboxID)) },
		},
		{
			name: "remove it again",
			run:  func(r *recording) { r.called("remove", r.RemovePod(r.ctx, o.pod.SandboxID)) },
		},
		{
			name:    "remove a sandbox that runs, with a container that runs",
			removes: "orphan",
			run: func(r *recording) {
				o.running = r.runPod("running", 0)
				r.runs(o.running, "orphan", "sleep", "1h")
				r.called("remove", r.RemovePod(r.ctx, o.running.SandboxID))
			},
		},
		{name: "stop a sandbox with two containers", anyOrder: true, run: func(r *recording) {
			o.other = r.runPod("other", 0)
			r.runs(o.other, "one", "sleep", "1h")
			r.runs(o.other, "two", "sleep", "1h")
			r.called("stop", r.StopPod(r.ctx, o.other.SandboxID))
		}},
		{name: "remove what is left", anyOrder: true, run: func(r *recording) {
			r.called("remove", r.RemovePod(r.ctx, o.other.SandboxID))
			r.called("stop", r.StopPod(r.ctx, o.again.SandboxID))
			r.called("remove", r.RemovePod(r.ctx, o.again.SandboxID))
		}},
	}
}

func (r *recording) runPod(name string, attempt uint32) *crikit.Pod {
	pod, err := r.RunPod(r.ctx, r.Namespace+"-"+name, name, attempt)
	r.called("run", err)
	if err != nil {
		return &crikit.Pod{}
	}
	if attempt > 0 {
		name += fmt.Sprintf("-%d", attempt)
	}
	r.name(pod.SandboxID, name)
	return pod
}

// create creates a container and returns its ID, or "".
func (r *recording) create(pod *crikit.Pod, spec crikit.Spec) string {
	id, err := r.Create(r.ctx, pod, spec)
	r.called("create", err)
	r.name(id, spec.Name)
	return id
}

// runs creates and starts a container, and waits until its program hears signals. That cannot be
// seen from outside; the wait is longer after slow calls. Before, SIGTERM ends the program with
// code 2.
func (r *recording) runs(pod *crikit.Pod, name string, args ...string) string {
	began := time.Now()
	id := r.starts(pod, name, args...)
	select {
	case <-time.After(max(r.quiet/2, time.Since(began))):
	case <-r.ctx.Done():
	}
	return id
}

// starts creates and starts a container.
func (r *recording) starts(pod *crikit.Pod, name string, args ...string) string {
	id := r.create(pod, crikit.Spec{Name: name, Args: args})
	r.called("start", r.Start(r.ctx, id))
	return id
}

// ends runs a container that outlives the event of its start.
func (r *recording) ends(pod *crikit.Pod, name string, code int32) {
	id := r.starts(pod, name, "sleep", (3 * r.quiet).String(), fmt.Sprint(code))
	status, err := r.WaitState(r.ctx, id, runtimeapi.ContainerState_CONTAINER_EXITED)
	r.called("end", err)
	if err == nil {
		r.line("%s: exit code %d %s", name, status.ExitCode, status.Reason)
	}
}

// hears waits for an event of a container, which comes a moment after the status tells the
// change. Not every runtime sends it, so that the wait is bounded. Without it a busy runtime may
// announce the removal first.
func (r *recording) hears(kind runtimeapi.ContainerEventType, id string) {
	wanted := func(e *runtimeapi.ContainerEventResponse) bool {
		return e.ContainerEventType == kind && e.ContainerId == id
	}
	for end := time.Now().Add(3 * r.quiet); time.Now().Before(end) && !slices.ContainsFunc(r.events(), wanted); {
		select {
		case <-time.After(r.quiet / 20):
		case <-r.ctx.Done():
			return
		}
	}
}

// told writes the status of a container's end.
func (r *recording) told(name, id string) {
	answer, err := r.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		r.called("status", err)
		return
	}
	s := answer.Status
	r.line(
		"%s: %s, exit code %d %s",
		name,
		strings.TrimPrefix(s.State.String(), "CONTAINER_"),
		s.ExitCode,
		s.Reason,
	)
}

// statuses writes the content of a sandbox's and a container's status besides their phases, and the
// lists there are.
func (r *recording) statuses(pod *crikit.Pod) {
	answer, err := r.PodSandboxStatus(r.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.SandboxID})
	r.called("status", err)
	stamp := "none"
	if t := answer.GetTimestamp(); t > 1e15 {
		stamp = "in nanoseconds"
	} else if t != 0 {
		stamp = "in seconds"
	}
	r.line("containers in the sandbox's status: %d, its stamp: %s", len(answer.GetContainersStatuses()), stamp)
	options := answer.GetStatus().GetLinux().GetNamespaces().GetOptions()
	r.line("namespaces: network %v, pid %v, ipc %v", options.GetNetwork(), options.GetPid(), options.GetIpc())

	short := pod.SandboxID[:12]
	_, err = r.PodSandboxStatus(r.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: short})
	r.called("status by the beginning of the ID", err)
	list, err := r.ListPodSandbox(
		r.ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: short}},
	)
	r.called("list by the beginning of the ID", err)
	r.line("items: %d", len(list.GetItems()))
	list, err = r.ListPodSandbox(
		r.ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: missing}},
	)
	r.called("list of what is not there", err)
	r.line("items: %d", len(list.GetItems()))

	stream, err := r.StreamContainers(r.ctx, &runtimeapi.StreamContainersRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	r.called("streaming list", err)
}

// refusals makes impossible requests.
func (r *recording) refusals(o *objects) {
	exited := r.starts(o.pod, "exited", "sleep", (3 * r.quiet).String()) // for the event of its start
	if _, err := r.WaitState(r.ctx, exited, runtimeapi.ContainerState_CONTAINER_EXITED); err != nil {
		r.called("end", err)
	}
	nowhere := *o.pod
	nowhere.SandboxID = missing
	r.create(&nowhere, crikit.Spec{Name: "nowhere", Args: []string{"sleep", "1h"}})
	r.called("start what has exited", r.Start(r.ctx, exited))
	r.called("start what runs", r.Start(r.ctx, o.runs))
	r.called("start what is not there", r.Start(r.ctx, missing))
	r.called("stop what has exited", r.Stop(r.ctx, exited, 0))
	r.called("stop what is not there", r.Stop(r.ctx, missing, 0))
	r.called("remove what is not there", r.Remove(r.ctx, missing))
	r.called("stop a sandbox that is not there", r.StopPod(r.ctx, missing))
	r.called("remove a sandbox that is not there", r.RemovePod(r.ctx, missing))
	_, err := r.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: missing})
	r.called("status of a container that is not there", err)
	_, err = r.PodSandboxStatus(r.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: missing})
	r.called("status of a sandbox that is not there", err)
	_, err = r.RunPodSandbox(
		r.ctx,
		&runtimeapi.RunPodSandboxRequest{RuntimeHandler: "nonsense", Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{
				Name:      "handler",
				Namespace: r.Namespace,
				Uid:       r.Namespace + "-handler",
			},
			Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				// CRI-O waits for a network first
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
			}},
		}},
	)
	r.called("run a pod with a runtime handler that is not there", err)
	r.called("remove what has exited", r.Remove(r.ctx, exited))
}

// resources changes the resources in turn: omitted fields stay.
func (r *recording) resources(id string) {
	for _, change := range []*runtimeapi.LinuxContainerResources{{MemoryLimitInBytes: 100 << 20}, {CpuShares: 512}} {
		_, err := r.UpdateContainerResources(
			r.ctx,
			&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: change},
		)
		r.called("update", err)
	}
	answer, err := r.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	r.called("status", err)
	resources := answer.GetStatus().GetResources().GetLinux()
	r.line("memory %d MiB, CPU shares %d", resources.GetMemoryLimitInBytes()>>20, resources.GetCpuShares())
}

// abilities writes the features in Status of the runtime and its handlers, without the conditions,
// which depend on the machine's network.
func (r *recording) abilities() {
	answer, err := r.Status(r.ctx, &runtimeapi.StatusRequest{})
	r.called("status", err)
	handlers := slices.SortedFunc(
		slices.Values(answer.GetRuntimeHandlers()),
		func(a, b *runtimeapi.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) },
	)
	for _, h := range handlers {
		r.line(
			"handler %q: recursive read-only mounts %v, user namespaces %v",
			h.Name,
			h.GetFeatures().GetRecursiveReadOnlyMounts(),
			h.GetFeatures().GetUserNamespaces(),
		)
	}
	f := answer.GetFeatures()
	r.line(
		"features: policy of supplemental groups %v, user namespaces in the host's network %v, mount options %v",
		f.GetSupplementalGroupsPolicy(),
		f.GetUserNamespacesHostNetwork(),
		f.GetMountOptions(),
	)
}

// users writes the user of a container, by its request. Neither the image nor its containers have a
// file of users.
func (r *recording) users(pod *crikit.Pod) {
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	groups := []int64{4000, 3000, 2000, 4000}
	for _, who := range []struct {
		name     string
		security *runtimeapi.LinuxContainerSecurityContext
	}{
		{"nobody-said", nil},
		{"user", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000)}},
		{"user-and-group", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2000)}},
		{"groups", &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: groups}},
		{"all", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: groups}},
		{"strict", &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: groups,
			SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		}},
		{"group-alone", &runtimeapi.LinuxContainerSecurityContext{RunAsGroup: id(2000)}},
	} {
		id := r.create(pod, crikit.Spec{Name: who.name, Args: []string{"sleep", "1h"}, Security: who.security})
		if id == "" {
			continue
		}
		answer, err := r.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			r.called("status", err)
		}
		if user := answer.GetStatus().GetUser().GetLinux(); user == nil {
			r.line("%s: no user", who.name)
		} else {
			r.line(
				"%s: user %d, group %d, supplemental groups %v",
				who.name,
				user.Uid,
				user.Gid,
				user.SupplementalGroups,
			)
		}
		r.called("remove", r.Remove(r.ctx, id))
	}
}

// absentImage requests a container of an image without a pull.
func (r *recording) absentImage(pod *crikit.Pod) {
	const name = "example.local/never-pulled:1"
	answer, err := r.Images().ImageStatus(r.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	r.called("image status", err)
	r.line("there is one: %v", answer.GetImage() != nil)
	r.create(pod, crikit.Spec{Name: "without-image", Image: name, Args: []string{"sleep", "1h"}})
}
