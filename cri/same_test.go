// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shuffledFields returns a message with its fields, and those of the messages in them, in a random
// order.
func shuffledFields(raw []byte, of *shape, random *rand.Rand) []byte {
	var parts [][]byte
	f := fields{rest: raw}
	for before := raw; f.next(); before = f.rest {
		part := before[:len(before)-len(f.rest)]
		if k := of.field(&f); k.message != nil {
			inner := shuffledFields(f.data, k.message, random)
			part = protowire.AppendBytes(protowire.AppendTag(nil, f.num, protowire.BytesType), inner)
		}
		parts = append(parts, part)
	}
	random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	var out []byte
	for _, part := range parts {
		out = append(out, part...)
	}
	return out
}

func TestSameStatus(t *testing.T) {
	full := func(edit func(*runtimeapi.ContainerStatus)) *runtimeapi.ContainerStatus {
		c := wholeContainer("c", "u", running)
		c.Annotations = map[string]string{"a": "1", "b": "2"}
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/a", HostPath: "/b"}, {ContainerPath: "/b", HostPath: "/a"}}
		c.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 64,
			Unified:            map[string]string{"x": "1", "y": "2"},
		}}
		if edit != nil {
			edit(c)
		}
		return c
	}
	status := func(containers ...[]byte) *PodStatus {
		return &PodStatus{uid: "u", encoded: &encodedStatus{statusMessages: statusMessages{
			sandboxes: [][]byte{encode(sandboxStatus("s", "u", ready))}, containers: containers,
		}}}
	}
	was := status(encode(full(nil)), encode(wholeContainer("d", "u", exited)))
	random := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		again := status(encode(wholeContainer("d", "u", exited)), shuffledFields(encode(full(nil)), shapeOfContainerStatus(), random))
		if !SameStatus(was, again) {
			t.Fatal("the order of fields makes a difference")
		}
	}
	for name, edit := range map[string]func(*runtimeapi.ContainerStatus){
		"a limit":                  func(c *runtimeapi.ContainerStatus) { c.Resources.Linux.MemoryLimitInBytes = 128 },
		"a limit taken away":       func(c *runtimeapi.ContainerStatus) { c.Resources.Linux.MemoryLimitInBytes = 0 },
		"a reason":                 func(c *runtimeapi.ContainerStatus) { c.Reason = "OOMKilled" },
		"an exit code":             func(c *runtimeapi.ContainerStatus) { c.ExitCode = 255 },
		"an entry of a map":        func(c *runtimeapi.ContainerStatus) { c.Resources.Linux.Unified["x"] = "2" },
		"two values exchanged":     func(c *runtimeapi.ContainerStatus) { c.Annotations = map[string]string{"a": "2", "b": "1"} },
		"paths of another mount":   func(c *runtimeapi.ContainerStatus) { c.Mounts[0].HostPath = "/a" },
		"a value to another field": func(c *runtimeapi.ContainerStatus) { c.Reason, c.Message = c.Message, "m" },
	} {
		if SameStatus(was, status(encode(full(edit)), encode(wholeContainer("d", "u", exited)))) {
			t.Errorf("%s makes no difference", name)
		}
	}
	later := append(encode(full(nil)), encode(&runtimeapi.ContainerStatus{})...)
	later = protowire.AppendString(protowire.AppendTag(later, 5000, protowire.BytesType), "of a later CRI")
	if !SameStatus(was, status(later, encode(wholeContainer("d", "u", exited)))) {
		t.Error("a field unknown to the CRI makes a difference")
	}
	zeros := protowire.AppendVarint(protowire.AppendTag(encode(full(nil)), 7, protowire.VarintType), 0) // exit_code
	zeros = append(zeros, field(10, nil)...)                                                            // reason
	if !SameStatus(was, status(zeros, encode(wholeContainer("d", "u", exited)))) {
		t.Error("a zero makes a difference")
	}
	one, none := status(encode(full(nil))), EmptyStatus("u")
	if SameStatus(was, one) || SameStatus(was, none) || SameStatus(none, was) || SameStatus(nil, was) {
		t.Error("a missing container makes no difference")
	}
	if !SameStatus(none, new(PodStatus)) || !SameStatus(nil, nil) || !SameStatus(was, was) {
		t.Error("a status differs from itself")
	}
}

// sorted returns a status with its list in an order of its own, as SameStatus takes lists.
func sorted(c ContainerStatus) ContainerStatus {
	c.Mounts = slices.Clone(c.Mounts)
	slices.SortFunc(c.Mounts, func(a, b Mount) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return c
}

// FuzzSameStatus compares SameStatus with the generated decoder: messages that decode alike are the
// same, a message is the same as itself with its fields shuffled, and messages that are the same
// decode alike, in any encoding.
func FuzzSameStatus(f *testing.F) {
	f.Add(encode(wholeContainer("c", "u", running)), uint64(1))
	r := rand.New(rand.NewPCG(20, 21))
	for i := range 100 {
		for _, c := range fullEvent(r).ContainersStatuses {
			f.Add(append(mangled(r, c), field(10, []byte{byte('a' + i%3)})...), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		var m runtimeapi.ContainerStatus
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		of := shapeOfContainerStatus()
		encoded, err := proto.Marshal(&m)
		if err != nil {
			return // not UTF-8
		}
		shuffled := shuffledFields(encoded, of, rand.New(rand.NewPCG(seed, seed)))
		if !sameMessages([][]byte{encoded}, [][]byte{shuffled}, of) {
			t.Fatalf("%q and %q differ", encoded, shuffled)
		}
		odd := shuffledFields(raw, of, rand.New(rand.NewPCG(seed, seed)))
		if !sameMessages([][]byte{raw}, [][]byte{odd}, of) {
			return // a field that is no list stands there twice
		}
		one, _ := decodeContainer(raw)
		other, _ := decodeContainer(odd)
		if d := gocmp.Diff(sorted(one), sorted(other)); d != "" {
			t.Fatalf("%q and %q are the same, and differ: %s", raw, odd, d)
		}
	})
}
