// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// podStatus makes a status of sandboxes, the newest first.
func podStatus(t testing.TB, sandboxes ...*runtimeapi.PodSandboxStatus) *PodStatus {
	s := &PodStatus{uid: "u", encoded: &encodedStatus{}}
	for i, m := range sandboxes {
		m.Id, m.CreatedAt = string(rune('a'+i)), int64(1000-i)
		raw := encode(m)
		s.encoded.sandboxes = append(s.encoded.sandboxes, raw)
	}
	return s
}

func ips(state runtimeapi.PodSandboxState, ips ...string) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{State: state}
	for i, ip := range ips {
		if i == 0 {
			s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: ip}
		} else {
			s.Network.AdditionalIps = append(s.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return s
}

func TestKeepIPs(t *testing.T) {
	up := podStatus(t, ips(ready, "10.0.0.1", "fd00::1"))
	for name, tt := range map[string]struct {
		prev, next *PodStatus
		want       []string
	}{
		"torn down":                   {up, podStatus(t, ips(notReady)), []string{"10.0.0.1", "fd00::1"}},
		"torn down, still shown":      {up, podStatus(t, ips(notReady, "10.0.0.1")), []string{"10.0.0.1"}},
		"sandbox gone":                {up, podStatus(t), []string{"10.0.0.1", "fd00::1"}},
		"nothing known":               {up, EmptyStatus("u"), []string{"10.0.0.1", "fd00::1"}},
		"zero value":                  {up, new(PodStatus), []string{"10.0.0.1", "fd00::1"}},
		"new address":                 {up, podStatus(t, ips(ready, "10.0.0.2")), []string{"10.0.0.2"}},
		"in its teardown":             {up, podStatus(t, ips(ready)), []string{"10.0.0.1", "fd00::1"}},
		"new sandbox, no address yet": {up, podStatus(t, ips(notReady), ips(ready)), nil},
		"old sandbox still addressed": {up, podStatus(t, ips(ready), ips(notReady, "10.0.0.1")), nil},
		"never had one":               {podStatus(t, ips(ready)), podStatus(t, ips(notReady)), nil},
		"first status":                {nil, podStatus(t, ips(notReady)), nil},
		"kept before":                 {KeepIPs(up, podStatus(t, ips(notReady))), podStatus(t, ips(notReady)), []string{"10.0.0.1", "fd00::1"}},
		"kept, then up again":         {KeepIPs(up, podStatus(t, ips(notReady))), podStatus(t, ips(ready, "10.0.0.3"), ips(notReady)), []string{"10.0.0.3"}},
		"ready beats an older ready":  {nil, podStatus(t, ips(ready, "10.0.0.4"), ips(ready, "10.0.0.5")), []string{"10.0.0.4"}},
		"old ready, new not":          {nil, podStatus(t, ips(notReady, "10.0.0.4"), ips(ready, "10.0.0.5")), []string{"10.0.0.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			var before []string
			if tt.prev != nil {
				before = tt.prev.IPs()
			}
			if got := KeepIPs(tt.prev, tt.next).IPs(); !slices.Equal(got, tt.want) {
				t.Errorf("IPs are %v, want %v", got, tt.want)
			}
			if tt.prev != nil && !slices.Equal(before, tt.prev.IPs()) {
				t.Errorf("the status before has changed to %v", tt.prev.IPs())
			}
		})
	}
	if KeepIPs(up, nil) != nil {
		t.Error("KeepIPs made a status out of none")
	}
}

// TestWithout checks that Without takes out an ID, whatever its kind, keeps what cannot be decoded,
// and leaves the status as it is.
func TestWithout(t *testing.T) {
	s := podStatus(t, ips(ready, "10.0.0.1"), ips(notReady))
	s.encoded.containers = [][]byte{
		encode(&runtimeapi.ContainerStatus{Id: "c1"}),
		{0xff},
		encode(&runtimeapi.ContainerStatus{Id: "c2"}),
	}
	s.encoded.sandboxOf = map[string]string{"c1": "a", "c2": "b"}
	s.unread = []string{"c3", "c4"}
	shown := func(s *PodStatus) (ids []string) {
		for _, sandbox := range s.Sandboxes() {
			ids = append(ids, sandbox.ID)
		}
		for _, container := range s.Containers() {
			if container.ID != "" {
				ids = append(ids, container.ID+" in "+container.SandboxID)
			}
		}
		return append(ids, s.Unread()...)
	}
	before := []string{"a", "b", "c1 in a", "c2 in b", "c3", "c4"}
	for _, tt := range []struct {
		id   string
		want []string
	}{
		{"c1", []string{"a", "b", "c2 in b", "c3", "c4"}},
		{"b", []string{"a", "c1 in a", "c2 in b", "c3", "c4"}},
		{"c4", []string{"a", "b", "c1 in a", "c2 in b", "c3"}},
		{"nobody", before},
	} {
		got := Without(s, tt.id)
		if ids := shown(got); !slices.Equal(ids, tt.want) {
			t.Errorf("without %s: %v, want %v", tt.id, ids, tt.want)
		}
		if got.Err() == nil {
			t.Errorf("without %s: the container that cannot be decoded is gone", tt.id)
		}
	}
	if ids := shown(s); !slices.Equal(ids, before) {
		t.Errorf("the status has changed: %v", ids)
	}
	if got := Without(EmptyStatus("u"), "c1"); got == nil || got.UID() != "u" {
		t.Errorf("of nothing: %v", got)
	}
}

// TestKeepIPsDecodesNothing checks that merging an unread status does not decode the status.
func TestKeepIPsDecodesNothing(t *testing.T) {
	prev, next := podStatus(t, ips(ready, "10.0.0.1")), podStatus(t, ips(notReady))
	if got := KeepIPs(prev, next); got == next || next.keptIPs != nil || got.encoded != next.encoded || next.encoded.sandboxList != nil {
		t.Errorf("the status was decoded or changed: %+v", next)
	}
	up := podStatus(t, ips(ready, "10.0.0.1"))
	if n := testing.AllocsPerRun(100, func() { KeepIPs(prev, up) }); n != 0 {
		t.Errorf("KeepIPs of a ready pod makes %v allocations", n)
	}
}

// TestPodStatusIsSharable reads a status concurrently; the first reader causes the decoding.
func TestPodStatusIsSharable(t *testing.T) {
	s := must(statusOfEvent(encode(nodeEvent(1, 0))))(t)
	merged := KeepIPs(podStatus(t, ips(ready, "10.0.0.9")), s)
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			for _, s := range []*PodStatus{s, merged} {
				if len(s.Containers()) != 2 || len(s.Sandboxes()) != 1 || s.Name() == "" || s.Namespace() == "" || s.IPs()[0] != "10.0.0.1" || s.Err() != nil {
					t.Errorf("reader %d: %v", i, s)
				}
			}
		})
	}
	readers.Wait()
	sandboxes, containers, err := s.Messages()
	if err != nil || len(sandboxes) != 1 || len(containers) != 2 || containers[0].GetImage().GetUserSpecifiedImage() == "" {
		t.Errorf("Messages: %v, %v, %v", sandboxes, containers, err)
	}
	var zero PodStatus
	if s := zero.String(); s != "/() ips=[]" {
		t.Errorf("the zero status is %q", s)
	}
	if zero.Err() != nil || zero.Sandboxes() != nil || zero.Containers() != nil {
		t.Errorf("the zero status: %v", zero.Err())
	}
}

// TestMalformedStatus checks that the readable part is read.
func TestMalformedStatus(t *testing.T) {
	good := encode(&runtimeapi.ContainerStatus{Id: "c", State: exited, ExitCode: 4})
	bad := append(good, 0x62, 0x03, 0x0a, 0x7f, 0x00) // a label longer than its message
	s := &PodStatus{uid: "u", encoded: &encodedStatus{statusMessages: statusMessages{containers: [][]byte{bad}}}}
	if c := s.Containers(); len(c) != 1 || c[0].ID != "c" || c[0].ExitCode != 4 {
		t.Errorf("containers: %+v", c)
	}
	if err := s.Err(); err == nil {
		t.Error("the status is said to be whole")
	}
	if _, _, err := s.Messages(); err == nil {
		t.Error("Messages decoded it")
	}
}

// TestPresentFirst checks which of a pod's sandboxes and containers is the present one. A clock
// that was ahead before a reboot gives the dead ones the later stamps.
func TestPresentFirst(t *testing.T) {
	sandbox := func(id string, attempt uint32, created int64, state runtimeapi.PodSandboxState, ip string) []byte {
		s := sandboxStatus(id, "u", state)
		s.Metadata.Attempt, s.CreatedAt = attempt, created
		s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: ip}
		return encode(s)
	}
	container := func(id string, attempt uint32, created int64, state runtimeapi.ContainerState) []byte {
		c := wholeContainer(id, "u", state)
		c.Metadata.Attempt, c.CreatedAt = attempt, created
		return encode(c)
	}
	status := &PodStatus{uid: "u", encoded: &encodedStatus{statusMessages: statusMessages{
		sandboxes: [][]byte{
			sandbox("before-reboot", 0, 900, notReady, "10.0.0.1"),
			sandbox("after-reboot", 1, 100, ready, "10.0.0.2"),
		},
		containers: [][]byte{
			container("before-reboot", 0, 900, exited),
			container("ended", 1, 950, exited),
			container("created", 1, 101, runtimeapi.ContainerState_CONTAINER_CREATED),
			container("running", 1, 100, running),
			container("ended-first", 1, 99, exited),
		},
	}}}
	var got []string
	for _, c := range status.Containers() {
		got = append(got, c.ID)
	}
	if want := []string{"running", "created", "ended", "ended-first", "before-reboot"}; !slices.Equal(got, want) {
		t.Errorf("containers in the order %v, want %v", got, want)
	}
	if s := status.Sandboxes(); s[0].ID != "after-reboot" || !slices.Equal(status.IPs(), []string{"10.0.0.2"}) {
		t.Errorf("the present sandbox is %s with %v", s[0].ID, status.IPs())
	}
}

// TestSandboxOfAContainerThatIsNotKnown: where no list could tell the sandbox of a container, the
// one sandbox that is left is not taken for it.
func TestSandboxOfAContainerThatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		unread := ""
		s.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			if id == unread {
				return nil, status.Error(codes.Internal, "broken")
			}
			return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, "u", ready)}, nil
		}
		s.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			return &runtimeapi.ContainerStatusResponse{Status: wholeContainer(id, "u", running)}, nil
		}
		c := serve(t, s, Config{})
		s.on("ListContainers", failing(codes.Internal, "broken"))
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{
			{ID: "a", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning},
			{ID: "b", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning},
			{ID: "c-of-a", Phase: pleg.PhaseRunning},
		}}
		read := func() *PodStatus {
			in, err := c.Inspect(t.Context(), pod)
			if err == nil || in.Status == nil {
				t.Fatalf("%v, %+v", err, in)
			}
			return in.Status
		}
		both := read()
		unread = "a"
		for name, status := range map[string]*PodStatus{
			"both are there":   both,
			"one is taken out": Without(both, "a"),
			"one is unread":    read(),
		} {
			if got := status.Containers()[0].SandboxID; got != "" {
				t.Errorf("%s: the container is said to be of %q", name, got)
			}
		}
	})
}
