// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// What a runtime may say without end, and what is kept of it.

// TestListingsKeepNoLongText: of a sandbox with enormous metadata, or an enormous label beside the
// UID of its metadata, a listing keeps little, and recognises it all the same. A streaming list has
// a limit of items, and none of bytes.
func TestListingsKeepNoLongText(t *testing.T) {
	const long = 1 << 20
	text := strings.Repeat("x", long)
	withField := sandbox("s", "u", ready)
	withField.Metadata = nil
	for name, item := range map[string][]byte{
		"a name": encode(&runtimeapi.PodSandbox{
			Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: text, Namespace: "ns", Uid: "u"},
		}),
		"a field that the CRI lacks": append(encode(withField),
			field(2, slices.Concat(encode(sandbox("s", "u", ready).Metadata), field(99, []byte(text))))...),
		"a label": encode(&runtimeapi.PodSandbox{
			Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Uid: "u"}, Labels: map[string]string{labelPodUID: text},
		}),
	} {
		x := newIndex()
		list := func(item []byte, since pleg.Revision) pleg.Listing {
			l, ok := x.list(cut(field(1, item), 1000), nil, since, new(unlabelled))
			if !ok {
				t.Fatalf("%s: the list is refused", name)
			}
			return l
		}
		first := list(item, 0)
		if len(first.Pods) != 1 || first.Pods[0].UID != "u" {
			t.Errorf("%s: listing %+v", name, first)
		}
		s := x.sandboxes["s"]
		if kept := len(s.metadata) + len(s.label) + len(s.pod.name); kept > 4*maxText {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
		again := list(item, first.Revision)
		if len(again.Pods) != 0 {
			t.Errorf("%s: the same list once more is a difference", name)
		}
		other := slices.Replace(slices.Clone(item), len(item)/2, len(item)/2+1, 'y')
		if changed := list(other, again.Revision); len(changed.Pods) != 1 {
			t.Errorf("%s: another one is no difference", name)
		}
	}
}

// TestListsThatFailFillNoMemory: of what listings have shown that failed, the next keeps nothing
// that no listing before has shown, however often they fail. What callers have seen stays known.
func TestListsThatFailFillNoMemory(t *testing.T) {
	const many = 100
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("stays", "stays", ready), sandbox("goes", "goes", ready)},
		containers: []*runtimeapi.Container{container("of-stays", "stays", "stays", running)},
	}
	c := serve(t, s, Config{Filter: func(p PodMeta) bool { return p.UID != "refused" }})
	first := mustList(t, c, 0)
	failed := 0
	s.on("ListContainers", func(call *call) error {
		failed++
		list := &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{container("of-stays", "stays", "", running)}}
		for i := range many {
			list.Containers = append(list.Containers, container(fmt.Sprintf("c%d-%d", failed, i), fmt.Sprintf("lost%d-%d", failed, i), "", running))
		}
		return call.send(append(encode(list), 0xff))
	})
	for round := range 20 {
		s.set(func() {
			s.sandboxes = []*runtimeapi.PodSandbox{sandbox("stays", "stays", ready), sandbox("refused", "refused", ready)}
			for i := range many {
				id := fmt.Sprintf("s%d-%d", round, i)
				s.sandboxes = append(s.sandboxes, sandbox(id, id, ready))
			}
		})
		if _, err := c.List(t.Context(), first.Revision); err == nil {
			t.Fatal("the list did not fail")
		}
	}
	x := c.index
	for what, n := range map[string]int{
		"sandboxes":    len(x.sandboxes),
		"containers":   len(x.containers),
		"pods":         len(x.pods),
		"dirty pods":   len(x.dirty),
		"unattributed": len(x.unattributed),
		"dependents":   len(x.sandboxes["stays"].dependents),
		"of a pod":     len(x.pods["stays"].containers),
	} {
		if n > 3*many {
			t.Errorf("%s: %d are kept", what, n)
		}
	}
	s.on("ListContainers", nil)
	s.set(func() { s.sandboxes = s.sandboxes[:3] })
	last := mustList(t, c, first.Revision)
	var pods []string
	for _, p := range last.Pods {
		pods = append(pods, string(p.UID))
	}
	if !last.Delta || !slices.Equal(pods, []string{"s19-0", "stays"}) || fmt.Sprint(last.Gone) != "[goes]" || last.Total != 2 {
		t.Errorf("the list that succeeds: pods %q, %+v", pods, last)
	}
	x.check(t)
}

// TestAPodThatAFailedListEmptiesIsGone: a pod of which only a list that failed has taken the last
// item is gone for its callers with the list that succeeds, and counts among the refused until
// then.
func TestAPodThatAFailedListEmptiesIsGone(t *testing.T) {
	s := &stub{containers: []*runtimeapi.Container{
		container("a", "", "shown", running), container("b", "", "refused", running), container("c", "", "stays", running),
	}}
	c := serve(t, s, Config{Filter: func(p PodMeta) bool { return p.UID != "refused" }})
	first := mustList(t, c, 0)
	if len(first.Pods) != 2 || first.Total != 2 {
		t.Fatalf("listing %+v", first)
	}
	s.set(func() {
		s.sandboxes = []*runtimeapi.PodSandbox{sandbox("a", "other", ready), sandbox("b", "other", ready)}
	})
	s.on("ListContainers", failing(codes.Internal, "broken"))
	for range 3 {
		if _, err := c.List(t.Context(), first.Revision); err == nil {
			t.Fatal("the list did not fail")
		}
	}
	s.on("ListContainers", nil)
	s.set(func() {
		s.sandboxes = nil
		s.containers = s.containers[2:]
	})
	last := mustList(t, c, first.Revision)
	if !last.Delta || len(last.Pods) != 0 || fmt.Sprint(last.Gone) != "[shown]" || last.Total != 1 {
		t.Errorf("listing %+v", last)
	}
	c.index.check(t)
}

// TestAContainerThatWandersLeavesNothing: a container whose list names another sandbox each time is
// remembered once, and a sandbox that nothing names any more not at all.
func TestAContainerThatWandersLeavesNothing(t *testing.T) {
	x := newIndex()
	byID := new(unlabelled)
	sandboxes := encode(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "a"}, {Id: "b"}}})
	list := func(containers ...*runtimeapi.Container) {
		t.Helper()
		one := mem.BufferSlice{mem.SliceBuffer(sandboxes)}
		other := mem.BufferSlice{mem.SliceBuffer(encode(&runtimeapi.ListContainersResponse{Containers: containers}))}
		if _, ok := x.list(one, other, 0, byID); !ok {
			t.Fatal("the list is refused")
		}
	}
	in := func(sandbox string) *runtimeapi.Container { return container("c", sandbox, "", running) }
	for range 100 {
		list(in("a"), in("b"), in("a"))
		list(in("b"))
	}
	for range 100 {
		list(in("a"), in("b"), in("a"))
	}
	if n := len(x.sandboxes["a"].dependents) + len(x.sandboxes["b"].dependents); n > 4 {
		t.Errorf("a container is remembered %d times", n)
	}
	list(in("lost"))
	list(container("c", "lost", "u", running))
	if x.sandboxes["lost"] != nil {
		t.Error("a sandbox is remembered that nothing names")
	}
}

// TestTheLimitsRemedyFitsTheCall: an answer that is larger than the limit has a remedy of its own
// where no streaming list can help.
func TestTheLimitsRemedyFitsTheCall(t *testing.T) {
	s := new(stub)
	c := serve(t, s, Config{MaxMessageSize: 1000})
	large := raw(make([]byte, 2000))
	for _, m := range []string{"Version", "PodSandboxStatus", "ContainerStatus", "GetContainerEvents", "ListPodSandbox", "StreamPodSandboxes"} {
		s.on(m, large)
	}
	_, version := c.Version(t.Context())
	_, sandbox := c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}}})
	_, container := c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "c"}}})
	_, streaming := c.List(t.Context(), 0)
	_, plain := c.ListPod(t.Context(), "u")
	var events error
	for _, err := range c.Events(t.Context()) {
		events = err
	}
	for name, err := range map[string]error{
		"Version": version, "PodSandboxStatus": sandbox, "ContainerStatus": container,
		"GetContainerEvents": events, "StreamPodSandboxes": streaming, "ListPodSandbox": plain,
	} {
		wantError(t, err, name, "1000 bytes", "Config.MaxMessageSize")
		if helps := name == "ListPodSandbox"; strings.Contains(fmt.Sprint(err), "streaming lists") != helps {
			t.Errorf("a streaming list helps: %v, and the error is %v", helps, err)
		}
	}
	for name, err := range map[string]error{"GetContainerEvents": nil, "ListContainers": nil} {
		err = status.Error(codes.ResourceExhausted, "trying to send message larger than max (3 vs. 2)")
		s.on(name, func(*call) error { return err })
	}
	for _, err := range c.Events(t.Context()) {
		wantError(t, err, "runtime's own grpc send limit")
		if strings.Contains(fmt.Sprint(err), "streaming lists") {
			t.Errorf("a streaming list helps no event: %v", err)
		}
	}
}

// TestStampsBeyondAllTime: the delay of an end is known only from two stamps of the CRI's range.
func TestStampsBeyondAllTime(t *testing.T) {
	for _, createdAt := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0} {
		ended := wholeContainer("c", "u", exited)
		ended.FinishedAt = 2
		e, ok := readEvent(encode(&runtimeapi.ContainerEventResponse{
			ContainerId:        "c",
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			CreatedAt:          createdAt,
			PodSandboxStatus:   sandboxStatus("s", "u", ready),
			ContainersStatuses: []*runtimeapi.ContainerStatus{ended},
		}))
		c := serve(t, &stub{}, Config{})
		if claim, made := c.claim(&e, new(interner), newEventBuffer()); !ok || !made || !claim.CreatedAt.IsZero() {
			t.Errorf("stamp %d: the claim is of %v", createdAt, claim.CreatedAt)
		}
		if n := c.Stats().LateExits; n != 0 {
			t.Errorf("stamp %d: %d late exits", createdAt, n)
		}
	}
}

// TestNamesForgeNoLine: what tells of a status in a log is one line of bounded length, whatever the
// runtime calls the pod and its containers.
func TestNamesForgeNoLine(t *testing.T) {
	evil := "a\nE0101 forged\x1b[2J" + strings.Repeat("x", 2*maxText)
	id := evil[:100]
	sandbox := sandboxStatus(id, id, ready)
	sandbox.Metadata.Name = evil
	sandbox.Metadata.Namespace = evil
	sandbox.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: evil}
	container := wholeContainer(id, id, exited)
	container.Metadata.Name = evil
	broken := append(encode(container), 0xff)
	for name, text := range map[string]string{
		"a status":             (&PodStatus{uid: "u", unread: []string{id}, encoded: &encodedStatus{statusMessages: statusMessages{sandboxes: [][]byte{encode(sandbox)}, containers: [][]byte{encode(container)}}}}).String(),
		"the UID of a status":  (&PodStatus{uid: "a\nb"}).String(),
		"a malformed status":   fmt.Sprint((&PodStatus{uid: "a\nb", encoded: &encodedStatus{statusMessages: statusMessages{sandboxes: [][]byte{append(encode(sandbox), 0xff)}, containers: [][]byte{broken}}}}).Err()),
		"a malformed message":  errorOfMessages(&PodStatus{uid: "a\nb", encoded: &encodedStatus{statusMessages: statusMessages{containers: [][]byte{broken}}}}),
		"a malformed sandbox":  errorOfMessages(&PodStatus{uid: "a\nb", encoded: &encodedStatus{statusMessages: statusMessages{sandboxes: [][]byte{broken}}}}),
		"a malformed event":    (&eventBuffer{pod: "a\nb"}).malformed().Error(),
		"a runtime's version":  Version{RuntimeName: evil, RuntimeVersion: evil}.String(),
		"a version of nothing": Version{}.String(),
	} {
		if strings.ContainsAny(text, "\n\x1b") || len(text) > 7*maxText || strings.TrimSpace(text) != text || text == "" {
			t.Errorf("%s: %d bytes, %.300q", name, len(text), text)
		}
	}
}

func errorOfMessages(s *PodStatus) string {
	_, _, err := s.Messages()
	return fmt.Sprint(err)
}

// TestSameStatusOfRepeatedFields: of a field that stands in a message twice the last counts, so
// their order is no order that says nothing.
func TestSameStatusOfRepeatedFields(t *testing.T) {
	status := func(reasons ...string) *PodStatus {
		raw := encode(wholeContainer("c", "u", exited))
		for _, reason := range reasons {
			raw = append(raw, field(10, []byte(reason))...)
		}
		return &PodStatus{uid: "u", encoded: &encodedStatus{statusMessages: statusMessages{containers: [][]byte{raw}}}}
	}
	if SameStatus(status("OOMKilled", "Error"), status("Error", "OOMKilled")) {
		t.Error("another reason makes no difference")
	}
	if SameStatus(status("Error", ""), status("Error")) {
		t.Error("a reason taken back makes no difference")
	}
	name := func(names ...string) *PodStatus {
		var raw []byte
		for _, n := range names {
			raw = append(raw, field(2, field(1, []byte(n)))...)
		}
		return &PodStatus{uid: "u", encoded: &encodedStatus{statusMessages: statusMessages{containers: [][]byte{raw}}}}
	}
	if SameStatus(name("a", "b"), name("b", "a")) {
		t.Error("another name in a part of the metadata makes no difference")
	}
	groups := func(groups ...uint64) *PodStatus {
		var user []byte
		for _, g := range groups {
			user = protowire.AppendVarint(protowire.AppendTag(user, 3, protowire.VarintType), g)
		}
		raw := field(18, field(1, user))
		return &PodStatus{uid: "u", encoded: &encodedStatus{statusMessages: statusMessages{containers: [][]byte{raw}}}}
	}
	if SameStatus(groups(0, 5), groups(5)) {
		t.Error("the group of root makes no difference")
	}
	ips := func(ips ...string) []byte {
		var network []byte
		for _, ip := range ips {
			network = append(network, field(2, field(1, []byte(ip)))...)
		}
		return field(5, network)
	}
	of := shapeOfSandboxStatus()
	if of.digest(ips("1", "2")) != of.digest(ips("2", "1")) {
		t.Error("the order of a list makes a difference")
	}
}

// TestAnAddressTakenBack: of an address given twice the last counts, also for KeepIPs.
func TestAnAddressTakenBack(t *testing.T) {
	address := append(field(1, []byte("10.0.0.1")), field(1, nil)...)
	raw := append(encode(sandboxStatus("s", "u", ready)), field(5, field(2, address))...)
	b := encodedStatus{statusMessages: statusMessages{sandboxes: [][]byte{raw}}}
	status, ok := decodeSandbox(raw)
	if !ok || len(status.IPs) != 0 || b.addressed() {
		t.Errorf("addresses %q, addressed %v", status.IPs, b.addressed())
	}
}

// TestAContainerCoversNoSandbox: a sandbox whose status failed is unread, though another sandbox's
// answer brings a container with its ID, and is not shown as a container.
func TestAContainerCoversNoSandbox(t *testing.T) {
	s := &stub{podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
		if id == "s1" {
			return nil, status.Error(codes.Internal, "broken")
		}
		return &runtimeapi.PodSandboxStatusResponse{
			Status:             sandboxStatus(id, "u", ready),
			ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("s1", "u", exited), wholeContainer("c", "u", running)},
		}, nil
	}}
	c := serve(t, s, Config{})
	pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s1", Kind: pleg.Sandbox}, {ID: "s2", Kind: pleg.Sandbox}, {ID: "c"}}}
	in, err := c.Inspect(t.Context(), pod)
	wantError(t, err, "PodSandboxStatus of s1", "broken")
	if fmt.Sprint(in.Unread) != "[s1]" {
		t.Errorf("unread %v, read %+v", in.Unread, in.Pod.Items)
	}
	for _, item := range in.Pod.Items {
		if item.ID == "s1" && item.Kind != pleg.Sandbox {
			t.Errorf("the sandbox is shown as %+v", item)
		}
	}
	if containers := in.Status.Containers(); len(containers) != 1 || containers[0].ID != "c" {
		t.Errorf("containers %+v", containers)
	}
}

// TestTextOfAStatusIsUTF8: bytes that are none are replaced, wherever a status has text.
func TestTextOfAStatusIsUTF8(t *testing.T) {
	const bad, good = "a\xff\xfe", "a\uFFFD"
	raw := slices.Concat(
		field(2, field(1, []byte(bad))), field(8, field(1, []byte(bad))), field(9, []byte(bad)), field(10, []byte(bad)),
		field(11, []byte(bad)), field(12, append(field(1, []byte(bad)), field(2, []byte(bad))...)), field(15, []byte(bad)),
		field(14, append(field(1, []byte(bad)), field(2, []byte(bad))...)), field(17, []byte(bad)),
	)
	c, ok := decodeContainer(raw)
	for _, text := range []string{
		c.Name, c.Image, c.ImageRef, c.Reason, c.Message, c.Labels[good], c.LogPath,
		c.Mounts[0].ContainerPath, c.Mounts[0].HostPath, c.ImageID,
	} {
		if !ok || text != good {
			t.Errorf("the text is %q in %+v", text, c)
		}
	}
	s, ok := decodeSandbox(slices.Concat(
		field(2, slices.Concat(field(1, []byte(bad)), field(2, []byte(bad)), field(3, []byte(bad)))),
		field(5, append(field(1, []byte(bad)), field(2, field(1, []byte(bad)))...)), field(9, []byte(bad)),
	))
	for _, text := range append([]string{s.Name, s.UID, s.Namespace, s.RuntimeHandler}, s.IPs...) {
		if !ok || text != good {
			t.Errorf("the text is %q in %+v", text, s)
		}
	}
}

// TestASandboxIDThatIsNone: a container of one of several sandboxes whose list names no usable ID.
func TestASandboxIDThatIsNone(t *testing.T) {
	for _, id := range []string{"", "\xff", strings.Repeat("x", maxID+1)} {
		raw := encode(container("c", "", "u", running))
		raw = append(raw, protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), id)...)
		found := podBuilder{client: new(Client), uid: "u", at: make(map[string]int), sandboxOf: make(map[string]string)}
		if !found.container(raw, nil) || len(found.pod.Items) != 1 || found.sandboxOf["c"] != "" {
			t.Errorf("sandbox %.10q: items %v, of sandbox %.10q", id, found.pod.Items, found.sandboxOf["c"])
		}
	}
}

// TestFilterOfAPodAlone: the list of a pod that the filter refuses is empty, as in lists of
// everything: else a read on request would show it, and the next list would take it away.
func TestFilterOfAPodAlone(t *testing.T) {
	s := &stub{
		sandboxes: []*runtimeapi.PodSandbox{
			inNamespace("s-sys", "sys", "kube-system", ""),
			inNamespace("s-web", "web", "shop", ""),
		},
		containers: []*runtimeapi.Container{
			container("c-sys", "s-sys", "sys", running),
			container("c-web", "s-web", "web", running),
			container("c-orphan", "s-gone", "orphan", exited),
		},
	}
	for i, uid := range []string{"sys", "web", "orphan"} {
		s.containers[i].Labels[labelPodNamespace] = map[string]string{"web": "shop"}[uid]
	}
	s.containers[2].Labels[labelPodNamespace] = "kube-system"
	c := serve(t, s, Config{Filter: func(p PodMeta) bool { return p.Namespace == "shop" }})
	for _, listed := range []bool{false, true} {
		orphans := 1 // until a listing has asked about it
		if listed {
			mustList(t, c, 0)
			orphans = 0
		}
		for uid, want := range map[string]int{"sys": 0, "web": 2, "orphan": orphans} {
			pod := must(c.ListPod(t.Context(), cache.UID(uid)))(t)
			if len(pod.Items) != want || pod.UID != cache.UID(uid) {
				t.Errorf("after a list %v: pod %+v, want %d items", listed, pod, want)
			}
		}
	}
}

// TestNameInParts: of a name that stands in several parts of the metadata the last counts, an empty
// one too, as for the generated decoder.
func TestNameInParts(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}, {"a", ""}, {"", "a"}} {
		raw := field(1, []byte("c"))
		for _, n := range names {
			raw = append(raw, field(3, field(1, []byte(n)))...)
		}
		var want runtimeapi.Container
		if err := proto.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		var c containerItem
		if !c.readListed(raw) || string(c.name) != want.Metadata.Name {
			t.Errorf("%q: the name %q, want %q", names, c.name, want.Metadata.Name)
		}
	}
}
