// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
)

// hand drives a ledger by hand: a sandbox s with the given containers.
type hand struct {
	*Ledger
	t   *testing.T
	now time.Time
}

func newHand(t *testing.T, containers ...*runtimeapi.Container) *hand {
	h := &hand{New(time.Minute), t, time.Unix(1000, 0)}
	h.Trust(true)
	h.full(containers...)
	return h
}

func ct(id string, p Phase) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, PodSandboxId: "s", State: containerState(p), ImageRef: "ref",
		Labels: map[string]string{PodUIDLabel: "pod", "app": "a"},
	}
}

func ready() *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{Id: "s", Labels: map[string]string{PodUIDLabel: "pod"}}
}

// full reads everything.
func (h *hand) full(containers ...*runtimeapi.Container) {
	h.Sandboxes(h.Begin(h.now), nil, []*runtimeapi.PodSandbox{ready()}, h.now)
	h.Containers(h.Begin(h.now), nil, containers, h.now)
}

// read reads an ID.
func (h *hand) read(id string, shown ...*runtimeapi.Container) {
	h.Containers(h.Begin(h.now), &runtimeapi.ContainerFilter{Id: id}, shown, h.now)
}

// status reads the status of a container.
func (h *hand) status(id string, p Phase) {
	h.ContainerStatus(h.Begin(h.now), id, &runtimeapi.ContainerStatus{
		Id:      id,
		State:   containerState(p),
		ImageId: "image",
		LogPath: "/log/" + id,
		Labels:  map[string]string{PodUIDLabel: "pod"},
	})
}

// own makes an own call, answered after between.
func (h *hand) own(op Op, id string, a Answer, between ...func()) {
	c := h.Start(op, Subject{ID: id, Pod: "pod", Sandbox: "s"})
	for _, f := range between {
		f()
	}
	h.End(c, a, h.now)
}

var (
	failed     = Answer{Failed: true}
	unanswered = Answer{Failed: true, Unanswered: true}
)

// containers is a list's content, in words.
func (h *hand) listed() string {
	list, v := h.ServeContainers(nil, h.now)
	switch {
	case len(v.Resolve) > 0:
		var wanted []string
		for _, q := range v.Resolve {
			wanted = append(wanted, cmp.Or(q.ID, q.Pod))
		}
		slices.Sort(wanted)
		return fmt.Sprintf("read %v", wanted)
	case v.Reason != "":
		return string(v.Reason)
	}
	var words []string
	for _, c := range list {
		words = append(words, fmt.Sprintf("%s%d", c.Id, criphase.OfContainer(c.State)))
	}
	slices.Sort(words)
	return fmt.Sprint(words)
}

func (h *hand) wantList(want string) {
	h.t.Helper()
	if got := h.listed(); got != want {
		h.t.Errorf("listed: %s, want %s", got, want)
	}
}

// claim claims a phase of a container in the pod.
func (h *hand) claim(id string, p Phase) { h.Claim(id, ContainerKind, p, "pod") }

// newOnes claims the creation of that many unknown containers.
func (h *hand) newOnes(n int) {
	for i := range n {
		h.Claim(fmt.Sprint("new", i), ContainerKind, Created, "")
	}
}

// TestRules plays a short history for each rule that TestSearch does not see broken, or too rarely:
// doubts and reads without need, reasons, bounds. C is created, r runs, x has ended.
func TestRules(t *testing.T) {
	byPod := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{PodUIDLabel: "pod"}}
	for _, tt := range []struct {
		name, want string
		play       func(h *hand)
	}{
		{"what a full list shows is served", "[c1 r2 x3]", func(*hand) {}},
		{"a claim makes no end known, it wants a read", "read [r]", func(h *hand) { h.claim("r", Exited) }},
		{"a read that began before a claim answers it if it shows what was claimed", "[c1 r3 x3]", func(h *hand) {
			before := h.Begin(h.now)
			h.claim("r", Exited)
			h.Containers(before, nil, []*runtimeapi.Container{ct("c", Created), ct("r", Exited), ct("x", Exited)}, h.now)
		}},
		{"a claim that tells nothing new is no doubt", "[c1 r2 x3]", func(h *hand) { h.claim("r", Running); h.Claim("x", EitherKind, Exited, "") }},
		{"a claim of an unknown ID wants a read", "read [new]", func(h *hand) { h.Claim("new", ContainerKind, Created, "other") }},
		{"a list that leaves it out answers", "[c1 r2 x3]", func(h *hand) { h.Claim("new", ContainerKind, Created, "other"); h.read("new") }},
		{"a list by labels does not: what is made by hand has none", "read [new]", func(h *hand) {
			h.claim("new", Created)
			h.Containers(h.Begin(h.now), byPod, []*runtimeapi.Container{ct("c", Created), ct("r", Running), ct("x", Exited)}, h.now)
		}},
		{"StartContainer: running", "[c2 r2 x3]", func(h *hand) { h.own(StartContainer, "c", Answer{}) }},
		{"the STARTED that overtakes its answer is no doubt", "[c2 r2 x3]", func(h *hand) {
			h.own(StartContainer, "c", Answer{}, func() { h.claim("c", Running) })
		}},
		{"an end that was read before its answer stays", "[c3 r2 x3]", func(h *hand) {
			h.own(StartContainer, "c", Answer{}, func() { h.read("c", ct("c", Exited)) })
		}},
		{"StopContainer of what runs: ended", "[c1 r3 x3]", func(h *hand) { h.own(StopContainer, "r", Answer{}) }},
		{"StopContainer of what was started meanwhile: in doubt", "read [c]", func(h *hand) {
			h.own(StopContainer, "c", Answer{}, func() { h.own(StartContainer, "c", Answer{}) })
		}},
		{"the STOPPED that overtakes its answer is no doubt", "[c1 r3 x3]", func(h *hand) {
			h.own(StopContainer, "r", Answer{}, func() { h.claim("r", Exited); h.wantList("[c1 r2 x3]") })
		}},
		{"but a removal is, which a stop does not bring", "read [r]", func(h *hand) {
			h.own(StopContainer, "r", Answer{}, func() { h.claim("r", Gone) })
		}},
		{"StopPodSandbox: what ran in it has ended, what was created is in doubt", "[c1 r3 x3]", func(h *hand) {
			h.own(StopPodSandbox, "s", Answer{}, func() { h.claim("r", Exited) })
			h.wantList("read [c]")
			h.read("c", ct("c", Created))
		}},
		{"StopPodSandbox failed: all that ran in it is in doubt", "read [c r]", func(h *hand) { h.own(StopPodSandbox, "s", failed) }},
		{"RemovePodSandbox: its containers went with it", "[]", func(h *hand) { h.own(RemovePodSandbox, "s", Answer{}) }},
		{"CreateContainer: a read must show it", "[c1 new1 r2 x3]", func(h *hand) {
			h.own(CreateContainer, "", Answer{Made: "new"})
			h.wantList("read [new]")
			h.read("new", ct("new", Created))
		}},
		{"or has", "[c1 new1 r2 x3]", func(h *hand) {
			h.own(CreateContainer, "", Answer{Made: "new"}, func() { h.read("new", ct("new", Created)) })
		}},
		{"a full list finds what a failed call has made", "[lost1]", func(h *hand) { h.own(CreateContainer, "", failed); h.full(ct("lost", Created)) }},
		{"a full list that began before does not count", "read [pod]", func(h *hand) {
			sandboxes, containers := h.Begin(h.now), h.Begin(h.now)
			h.own(CreateContainer, "", failed)
			h.Sandboxes(sandboxes, nil, []*runtimeapi.PodSandbox{ready()}, h.now)
			h.Containers(containers, nil, nil, h.now)
		}},
		{"what a call that was not answered makes is found by a full list some minutes later", "[lost1]", func(h *hand) {
			h.own(CreateContainer, "", unanswered)
			h.now = h.now.Add(LateCall + 1)
			h.full(ct("lost", Created))
		}},
		{"a start that was not answered may take effect as late", "failed_call", func(h *hand) {
			h.own(StartContainer, "c", unanswered)
			h.full(ct("c", Created))
		}},
		{"by one of containers, not by one of sandboxes", "failed_call", func(h *hand) {
			h.own(CreateContainer, "", unanswered)
			h.full(ct("c", Created))
			h.now = h.now.Add(LateCall + 1)
			h.Sandboxes(h.Begin(h.now), nil, []*runtimeapi.PodSandbox{ready()}, h.now)
			h.SetMaxAge(time.Hour)
		}},
		{"a sandbox that could not be made leaves no container", "[c1 r2 x3]", func(h *hand) { h.own(RunPodSandbox, "", unanswered) }},
		{"a list of its pod finds what an answered failure has made", "[c1 lost1 r2 x3]", func(h *hand) {
			h.own(CreateContainer, "", failed)
			h.wantList("read [pod]")
			h.Containers(h.Begin(h.now), byPod, []*runtimeapi.Container{ct("c", Created), ct("r", Running), ct("x", Exited), ct("lost", Created)}, h.now)
		}},
		{"what a call under way makes is left out, told or not", "[c1 r2 x3]", func(h *hand) {
			h.Start(CreateContainer, Subject{Pod: "pod", Sandbox: "s"})
			h.claim("new", Created)
		}},
		{"what another call has told before is not", "read [old]", func(h *hand) {
			h.claim("old", Created)
			h.Start(CreateContainer, Subject{Pod: "pod", Sandbox: "s"})
			h.claim("old", Created)
		}},
		{"nor an item of another pod", "read [new]", func(h *hand) {
			h.Start(CreateContainer, Subject{Pod: "pod", Sandbox: "s"})
			h.Claim("new", ContainerKind, Created, "other")
		}},
		{"nor what ended meanwhile", "read [new]", func(h *hand) {
			h.Start(CreateContainer, Subject{Pod: "pod", Sandbox: "s"})
			h.claim("new", Exited)
		}},
		{"a status of what an own call has made is a list's element", "[c1 new2 r2 x3]", func(h *hand) {
			h.own(CreateContainer, "", Answer{Made: "new"})
			h.own(StartContainer, "new", Answer{})
			h.status("new", Running)
		}},
		{"of a stranger it is not: its sandbox is unknown", "read [new]", func(h *hand) {
			h.claim("new", Created)
			h.status("new", Running)
		}},
		{"a state unknown to a list that overlaps the look that knew wants a read", "read [new]", func(h *hand) {
			first, second := h.Begin(h.now), h.Begin(h.now)
			h.Containers(first, nil, []*runtimeapi.Container{ct("new", Created)}, h.now)
			h.Containers(second, nil, []*runtimeapi.Container{ct("new", Unknown)}, h.now)
		}},
		{"the last of two counts", "failed_call", func(h *hand) {
			h.own(CreateContainer, "", unanswered)
			h.now = h.now.Add(LateCall)
			h.own(CreateContainer, "", unanswered)
			h.now = h.now.Add(1)
			h.full(ct("c", Created))
		}},
		{"the last full list is too old", "stale", func(h *hand) { h.now = h.now.Add(time.Minute + 1) }},
		{"many doubts are cheaper forwarded", "doubt", func(h *hand) { h.newOnes(5) }},
		{"a flood of claims is bounded, and refuses until the next full lists", "[r2]", func(h *hand) {
			h.newOnes(3 * maxDoubts)
			if _, _, doubts := h.Len(); doubts > maxDoubts {
				h.t.Errorf("%d IDs in doubt, want at most %d", doubts, maxDoubts)
			}
			clear(h.containers.doubts)
			h.wantList("doubt")
			h.full(ct("r", Running))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHand(t, ct("c", Created), ct("r", Running), ct("x", Exited))
			tt.play(h)
			h.wantList(tt.want)
		})
	}
}

// TestFailedCallOfAnotherPod: what a call without an answer may make yet is the concern of its
// pod's lists, and of those that show all pods.
func TestFailedCallOfAnotherPod(t *testing.T) {
	h := newHand(t, ct("r", Running))
	h.End(h.Start(CreateContainer, Subject{Pod: "other", Sandbox: "o"}), unanswered, h.now)
	for pod, want := range map[string]Reason{"pod": "", "other": FailedCall, "": FailedCall} {
		f := &runtimeapi.ContainerFilter{}
		if pod != "" {
			f.LabelSelector = map[string]string{PodUIDLabel: pod}
		}
		if _, v := h.ServeContainers(f, h.now); v.Reason != want {
			t.Errorf("the list of pod %q is refused for %q, want %q", pod, v.Reason, want)
		}
	}
}

// birth is that of a sandbox that the agent makes.
type birth struct {
	*hand
	call Call
}

// list shows the sandbox in a list of everything.
func (m *birth) list(r Read, state runtimeapi.PodSandboxState) {
	m.Sandboxes(r, nil, []*runtimeapi.PodSandbox{ready(), {Id: "new", State: state}}, m.now)
}

// answer is the end of the call.
func (m *birth) answer() { m.End(m.call, Answer{Made: "new"}, m.now) }

// want checks what a list from memory shows of the sandbox.
func (m *birth) want(want string) {
	m.t.Helper()
	got := "ready"
	list, v := m.ServeSandboxes(&runtimeapi.PodSandboxFilter{Id: "new"}, m.now)
	switch {
	case v.Reason == InDoubt && len(v.Resolve) == 1:
		got = "in doubt"
	case len(list) != 1:
		m.t.Fatalf("%v, %v", list, v)
	case list[0].State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY:
		got = "ended"
	}
	if got != want {
		m.t.Errorf("%s, want %s", got, want)
	}
}

// TestSandboxThatEndsWhileItIsMade: lists show a sandbox as not ready while it is made. One that
// was shown as ready before such a list began has ended, though, and another read tells; of one
// that was not, the list tells nothing.
func TestSandboxThatEndsWhileItIsMade(t *testing.T) {
	const isReady, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	for _, tt := range []struct {
		name string
		want string
		play func(m *birth)
	}{
		{"ready, then not", "in doubt", func(m *birth) {
			m.list(m.Begin(m.now), isReady)
			later := m.Begin(m.now)
			m.answer()
			m.list(later, notReady)
		}},
		{"not ready, then ready", "ready", func(m *birth) {
			early := m.Begin(m.now)
			later := m.Begin(m.now)
			m.answer()
			m.list(later, isReady)
			m.list(early, notReady)
		}},
		{"ready, then not in a status", "in doubt", func(m *birth) {
			m.list(m.Begin(m.now), isReady)
			later := m.Begin(m.now)
			m.answer()
			m.SandboxStatus(later, "new", &runtimeapi.PodSandboxStatus{Id: "new", State: notReady})
		}},
		{"not ready in a status, then ready", "ready", func(m *birth) {
			early := m.Begin(m.now)
			later := m.Begin(m.now)
			m.answer()
			m.list(later, isReady)
			m.SandboxStatus(early, "new", &runtimeapi.PodSandboxStatus{Id: "new", State: notReady})
		}},
		{"ready twice", "ready", func(m *birth) {
			m.list(m.Begin(m.now), isReady)
			later := m.Begin(m.now)
			m.answer()
			m.list(later, isReady)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHand(t)
			m := &birth{h, h.Start(RunPodSandbox, Subject{Pod: "new"})}
			tt.play(m)
			m.want(tt.want)
			m.list(m.Begin(m.now), notReady)
			m.want("ended")
		})
	}
}

func TestFilters(t *testing.T) {
	h := newHand(t, ct("c", Created), ct("r", Running))
	h.Claim("r", ContainerKind, Exited, "pod")
	state := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED}
	for _, c := range []struct {
		filter *runtimeapi.ContainerFilter
		want   []string
		reason Reason
	}{
		{&runtimeapi.ContainerFilter{Id: "c"}, []string{"c"}, ""},
		{&runtimeapi.ContainerFilter{Id: "c", PodSandboxId: "s"}, []string{"c"}, ""},
		{&runtimeapi.ContainerFilter{Id: "c", LabelSelector: map[string]string{"app": "b"}}, []string{}, ""},
		{&runtimeapi.ContainerFilter{Id: "c", State: state}, []string{"c"}, ""},
		{&runtimeapi.ContainerFilter{Id: "nobody"}, nil, UnknownID},
		{&runtimeapi.ContainerFilter{PodSandboxId: "nobody"}, nil, UnknownID},
		{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{PodUIDLabel: "elsewhere"}}, []string{}, ""},
		{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{PodUIDLabel: "pod"}}, nil, InDoubt},
		{&runtimeapi.ContainerFilter{State: state}, nil, InDoubt}, // r could be shown by none but the ledger cannot know
		{&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN}}, nil, UnknownState},
	} {
		list, v := h.ServeContainers(c.filter, h.now)
		var ids []string
		if list != nil {
			ids = []string{}
		}
		for _, x := range list {
			ids = append(ids, x.Id)
		}
		if diff := gocmp.Diff(c.want, ids); diff != "" || v.Reason != c.reason {
			t.Errorf("%v: %v because %q, want %v because %q", c.filter, ids, v.Reason, c.want, c.reason)
		}
	}
}

// TestOwnSlicesSharedElements: callers sort their slices, and nobody changes an element.
func TestOwnSlicesSharedElements(t *testing.T) {
	h := newHand(t, ct("c", Created), ct("r", Running))
	before := h.Revision()
	a, _ := h.ServeContainers(nil, h.now)
	b, _ := h.ServeContainers(nil, h.now)
	if &a[0] == &b[0] {
		t.Error("two callers share a slice")
	}
	created := slices.IndexFunc(a, func(c *runtimeapi.Container) bool { return c.Id == "c" })
	h.own(StartContainer, "c", Answer{})
	if a[created].State != runtimeapi.ContainerState_CONTAINER_CREATED {
		t.Error("an element that was served has changed")
	}
	if h.Revision() == before {
		t.Error("the revision stands although a list would show something else")
	}
	after, _ := h.ServeContainers(&runtimeapi.ContainerFilter{Id: "c"}, h.now)
	if c := after[0]; c.ImageRef != "ref" || c.Labels["app"] != "a" || c.PodSandboxId != "s" ||
		c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the copy in another state lacks something: %v", c)
	}
	still := h.Revision()
	h.full(ct("c", Running), ct("r", Running))
	if h.Revision() != still {
		t.Error("a list that shows nothing new moves the revision")
	}
	other := ct("r", Running)
	other.Annotations = map[string]string{"new": "one"}
	h.full(ct("c", Running), other)
	if list, _ := h.ServeContainers(&runtimeapi.ContainerFilter{Id: "r"}, h.now); h.Revision() == still || list[0] != other {
		t.Error("another annotation is not taken over")
	}
}

func TestLogPaths(t *testing.T) {
	h := newHand(t, ct("r", Running))
	h.status("r", Running)
	h.status("stranger", Running)
	if path, ok := h.LogPath("r"); !ok || path != "/log/r" {
		t.Errorf("LogPath: %q, %v", path, ok)
	}
	if path, ok := h.LogPath("stranger"); ok {
		t.Errorf("the path %q of an unknown container is kept", path)
	}
	h.status("r", Exited)
	h.wantList("[r3]")
	h.own(RemoveContainer, "r", Answer{})
	if _, ok := h.LogPath("r"); ok {
		t.Error("the path of a removed container is kept")
	}
}

// TestLogPathOfWhatIsGone: a list that does not show a container takes the log path along, whatever
// else the ledger knows.
func TestLogPathOfWhatIsGone(t *testing.T) {
	h := newHand(t, ct("r", Running))
	h.status("r", Running)
	h.full(ct("new", Created))
	h.wantList("[new1]")
	if path, ok := h.LogPath("r"); ok {
		t.Errorf("the path %q of a container that no list shows any more", path)
	}
}

// TestStatusesByAPartOfTheID: a runtime takes the begin of an ID for the ID, and its answer has all
// of it.
func TestStatusesByAPartOfTheID(t *testing.T) {
	h := newHand(t, ct("r123", Running))
	whole := &runtimeapi.PodSandbox{Id: "s123", Labels: map[string]string{PodUIDLabel: "pod"}}
	h.Sandboxes(h.Begin(h.now), nil, []*runtimeapi.PodSandbox{whole}, h.now)
	h.SandboxStatus(h.Begin(h.now), "s12", &runtimeapi.PodSandboxStatus{Id: "s123"})
	if list, v := h.ServeSandboxes(nil, h.now); len(list) != 1 || list[0].Id != "s123" {
		t.Errorf("sandboxes %v, %v, want s123 alone", list, v)
	}
	h.ContainerStatus(h.Begin(h.now), "r12", &runtimeapi.ContainerStatus{
		Id:      "r123",
		State:   containerState(Exited),
		LogPath: "/log",
	})
	h.wantList("[r1233]")
	if path, ok := h.LogPath("r123"); !ok || path != "/log" {
		t.Errorf("the path of r123 is %q, %v", path, ok)
	}
}

// TestWhatMayComeIsBounded: of more pods than there is room for no pod is told from another, until
// full lists have come late enough.
func TestWhatMayComeIsBounded(t *testing.T) {
	h := newHand(t)
	for i := range maxDoubts + 1 {
		h.End(h.Start(RunPodSandbox, Subject{Pod: fmt.Sprint("pod", i)}), unanswered, h.now)
	}
	h.full()
	other := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{PodUIDLabel: "other"}}
	if _, v := h.ServeSandboxes(other, h.now); v.Reason != FailedCall || len(h.sandboxes.failures) > maxDoubts {
		t.Errorf(
			"refused because %q with %d pods remembered, want %q",
			v.Reason,
			len(h.sandboxes.failures),
			FailedCall,
		)
	}
	h.now = h.now.Add(LateCall + 1)
	h.full()
	if _, v := h.ServeSandboxes(other, h.now); v.Reason != "" || len(h.sandboxes.failures) != 0 {
		t.Errorf(
			"later: refused because %q with %d pods remembered, want none",
			v.Reason,
			len(h.sandboxes.failures),
		)
	}
}

// TestSandboxThatWasNeverReady: lists show a sandbox as not ready while it is made, whoever makes
// it. Until one has shown it as ready its STARTED is news, and only a later look answers.
func TestSandboxThatWasNeverReady(t *testing.T) {
	const notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	show := func(h *hand, r Read, state runtimeapi.PodSandboxState) {
		h.Sandboxes(r, nil, []*runtimeapi.PodSandbox{ready(), {Id: "new", State: state}}, h.now)
	}
	for _, tt := range []struct {
		name, want string
		play       func(h *hand)
	}{
		{"a list, then the event", "in doubt", func(h *hand) {
			show(h, h.Begin(h.now), notReady)
			h.Claim("new", SandboxKind, Running, "new")
		}},
		{"the event while a list is under way", "in doubt", func(h *hand) {
			early := h.Begin(h.now)
			h.Claim("new", SandboxKind, Running, "new")
			show(h, early, notReady)
		}},
		{"our own call was given up and works late", "in doubt", func(h *hand) {
			h.own(RunPodSandbox, "", unanswered)
			show(h, h.Begin(h.now), notReady)
			h.Claim("new", SandboxKind, Running, "pod")
		}},
		{"the event, then a list", "ended", func(h *hand) {
			h.Claim("new", SandboxKind, Running, "new")
			show(h, h.Begin(h.now), notReady)
		}},
		{"a list, the event, and a list", "ready", func(h *hand) {
			show(h, h.Begin(h.now), notReady)
			h.Claim("new", SandboxKind, Running, "new")
			show(h, h.Begin(h.now), runtimeapi.PodSandboxState_SANDBOX_READY)
		}},
		{"it was ready before", "ended", func(h *hand) {
			show(h, h.Begin(h.now), runtimeapi.PodSandboxState_SANDBOX_READY)
			show(h, h.Begin(h.now), notReady)
			h.Claim("new", SandboxKind, Running, "new")
		}},
		{"two lists at once, the later is answered first", "in doubt", func(h *hand) {
			early := h.Begin(h.now)
			show(h, h.Begin(h.now), runtimeapi.PodSandboxState_SANDBOX_READY)
			show(h, early, notReady)
		}},
		{"the same, and the later shows it as not ready", "in doubt", func(h *hand) {
			early := h.Begin(h.now)
			show(h, h.Begin(h.now), notReady)
			show(h, early, runtimeapi.PodSandboxState_SANDBOX_READY)
		}},
		{"its end is announced while a list is under way that shows it as ready", "in doubt", func(h *hand) {
			show(h, h.Begin(h.now), notReady)
			early := h.Begin(h.now)
			h.Claim("new", SandboxKind, Exited, "new")
			show(h, early, runtimeapi.PodSandboxState_SANDBOX_READY)
		}},
		{"our own call has ended it", "ended", func(h *hand) {
			show(h, h.Begin(h.now), notReady)
			h.own(StopPodSandbox, "new", Answer{})
			h.Claim("new", SandboxKind, Running, "new")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHand(t)
			tt.play(h)
			(&birth{hand: h}).want(tt.want)
		})
	}
}

// TestASandboxStateOfALaterCRI: as with a container, lists that show such a sandbox, and lists by
// that state, are the runtime's.
func TestASandboxStateOfALaterCRI(t *testing.T) {
	const later, notReady = runtimeapi.PodSandboxState(42), runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	h := newHand(t)
	byState := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: later}}
	if list, v := h.ServeSandboxes(byState, h.now); v.Reason != UnknownState {
		t.Errorf("by a state of a later CRI: %v, %v, want %s", list, v, UnknownState)
	}
	show := func(state runtimeapi.PodSandboxState) {
		s := ready()
		s.State = state
		h.Sandboxes(h.Begin(h.now), nil, []*runtimeapi.PodSandbox{s}, h.now)
	}
	show(later)
	if list, v := h.ServeSandboxes(nil, h.now); v.Reason != UnknownState {
		t.Errorf("a sandbox in a state of a later CRI: %v, %v, want %s", list, v, UnknownState)
	}
	show(notReady)
	if list, v := h.ServeSandboxes(nil, h.now); len(list) != 1 || list[0].State != notReady {
		t.Errorf("the sandbox in a known state: %v, %v, want %v", list, v, notReady)
	}
	h.SandboxStatus(h.Begin(h.now), "s", &runtimeapi.PodSandboxStatus{Id: "s", State: later})
	if list, v := h.ServeSandboxes(nil, h.now); v.Reason != UnknownState {
		t.Errorf("a status in a state of a later CRI: %v, %v, want %s", list, v, UnknownState)
	}
}

// TestLateStartByID: a start that was not answered sends the lists of that container to the
// runtime, by its ID as by its pod, and those of no other.
func TestLateStartByID(t *testing.T) {
	h := newHand(t, ct("c", Created), ct("r", Running))
	h.own(StartContainer, "c", unanswered)
	h.read("c", ct("c", Created))
	for id, want := range map[string]Reason{"c": FailedCall, "r": ""} {
		if _, v := h.ServeContainers(&runtimeapi.ContainerFilter{Id: id}, h.now); v.Reason != want {
			t.Errorf("the list of %s is refused for %q, want %q", id, v.Reason, want)
		}
	}
}

// TestLateStartsAreBounded: where pods are no longer told apart, neither are the IDs of starts.
func TestLateStartsAreBounded(t *testing.T) {
	h := newHand(t, ct("c", Created))
	h.own(StartContainer, "c", unanswered)
	for i := range maxDoubts {
		h.End(h.Start(CreateContainer, Subject{Pod: fmt.Sprint("pod", i)}), unanswered, h.now)
	}
	h.read("c", ct("c", Created))
	if _, v := h.ServeContainers(&runtimeapi.ContainerFilter{Id: "c"}, h.now); v.Reason != FailedCall {
		t.Errorf("the list of c is refused for %q, want %q", v.Reason, FailedCall)
	}
}

// TestImageOfAStatus: an element made from a status is corrected by a list in whatever a list shows
// of the image, and made at all only if the handler that has pulled the image is known.
func TestImageOfAStatus(t *testing.T) {
	for name, image := range map[string]*runtimeapi.ImageSpec{
		"handler":     {Image: "tag", RuntimeHandler: "kata"},
		"user's name": {Image: "tag", UserSpecifiedImage: "name"},
		"annotations": {Image: "tag", Annotations: map[string]string{"a": "b"}},
	} {
		h := newHand(t)
		h.own(CreateContainer, "", Answer{Made: "new"})
		h.ContainerStatus(h.Begin(h.now), "new", &runtimeapi.ContainerStatus{
			ImageId: "image", Image: &runtimeapi.ImageSpec{Image: "tag"},
		})
		if list, v := h.ServeContainers(nil, h.now); len(list) != 1 {
			t.Errorf("%s: %v, %v, want the status's element", name, list, v)
		}
		for range 2 {
			h.full(&runtimeapi.Container{
				Id:           "new",
				PodSandboxId: "s",
				ImageId:      "image",
				Image:        image,
			})
		}
		if list, v := h.ServeContainers(nil, h.now); len(list) != 1 || list[0].Image != image {
			t.Errorf("%s: %v, %v: want the list's", name, list, v)
		}
	}
	for _, tt := range []struct {
		sandbox, image, id string
		want               int
	}{{"kata", "", "image", 0}, {"kata", "kata", "image", 1}, {"", "", "image", 1}, {"", "", "", 0}} {
		h := newHand(t)
		s := ready()
		s.RuntimeHandler = tt.sandbox
		h.Sandboxes(h.Begin(h.now), nil, []*runtimeapi.PodSandbox{s}, h.now)
		h.own(CreateContainer, "", Answer{Made: "new"})
		h.ContainerStatus(h.Begin(h.now), "new", &runtimeapi.ContainerStatus{
			ImageId: tt.id, Image: &runtimeapi.ImageSpec{Image: "tag", RuntimeHandler: tt.image},
		})
		if list, v := h.ServeContainers(nil, h.now); len(list) != tt.want {
			t.Errorf("%+v: %v, %v", tt, list, v)
		}
	}
}

// TestKindOfWhatIsGone: an event that does not name its kind, of what an own call has removed, is
// no news of the other kind. What a read alone has not shown may be of either.
func TestKindOfWhatIsGone(t *testing.T) {
	h := newHand(t, ct("c", Created))
	h.own(RemoveContainer, "c", Answer{})
	h.Claim("c", EitherKind, Gone, "")
	if list, v := h.ServeSandboxes(nil, h.now); len(list) != 1 {
		t.Errorf("after a container's end: %v, %v, want the sandbox", list, v)
	}
	for range 2 {
		h.own(RemovePodSandbox, "s", Answer{})
		h.Claim("s", EitherKind, Gone, "")
		h.wantList("[]")
	}
	h.Claim("new", EitherKind, Created, "")
	h.Sandboxes(h.Begin(h.now), nil, nil, h.now)
	early := h.Begin(h.now)
	h.Claim("new", EitherKind, Running, "")
	h.Containers(early, &runtimeapi.ContainerFilter{Id: "new"}, []*runtimeapi.Container{ct("new", Created)}, h.now)
	h.wantList("read [new]")
}
