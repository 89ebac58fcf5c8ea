// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"math"
	"testing"
	"unsafe"
)

// TestMarksBeginAnew compares reports with a pod while the numbers of comparisons are used up: no
// item bears the mark of a comparison to come.
func TestMarksBeginAnew(t *testing.T) {
	r := newRecords()
	p := r.ensure("p")
	both := []Item{
		{ID: "s", Kind: Sandbox, Phase: PhaseRunning},
		{ID: "c", Kind: Container, Phase: PhaseRunning},
	}
	r.show(p, both)
	for _, x := range p.items {
		x.mark = 1 // by a comparison of the last round of numbers
	}
	r.marks = math.MaxUint32
	if !r.matches(p, both) {
		t.Error("the pod does not match what it shows")
	}
	if r.matches(p, both[:1]) {
		t.Error("the pod matches a report without its container")
	}
	if r.marks != 2 {
		t.Errorf("the second comparison of the round has number %d", r.marks)
	}
}

// TestRecordsFillTheirClassOfMemory checks that a pod and an item take no more than a class of
// sizes of Go's allocator: a field more puts a record into the next class, which costs 1.6 MB for
// 50,000 pods. What is remembered of a container beside its status is to stay below 1 KiB: see
// docs/performance.md. With pointers of 32 bits the records are smaller.
func TestRecordsFillTheirClassOfMemory(t *testing.T) {
	if size := unsafe.Sizeof(pod{}); size > 384 {
		t.Errorf("the record of a pod has %d bytes, want 384 at most: put small fields together, or give up one", size)
	}
	if size := unsafe.Sizeof(item{}); size > 80 {
		t.Errorf("the record of an item has %d bytes, want 80 at most: put small fields together, or give up one", size)
	}
}

// TestAListOfAHugePodIsSoughtInTheIndex: who has brought about what a list shows of a pod is asked
// of each item, so no answer may search the pod. The items in its record are decoys here, which the
// index does not have.
func TestAListOfAHugePodIsSoughtInTheIndex(t *testing.T) {
	r := newRecords()
	l := newLists()
	p := r.ensure("p")
	var shown []Item
	for i := range 4 * manyIDs {
		shown = append(shown, Item{ID: fmt.Sprint("c-", i), Kind: Container, Phase: PhaseExited})
	}
	r.show(p, shown)
	l.compare(p, shown, 1, false)
	decoy := &item{id: "decoy", pod: p, kind: Container}
	for i := range p.items {
		p.items[i] = decoy
	}
	p.expected.add(expectation{reportKey: reportKey{"decoy", CauseAck}, phase: PhaseRemoved})
	cfg := &limits{}
	if !p.explains(&r, cfg) {
		t.Error("what the status shows is taken for made by others")
	}
	if !p.brings(&r, cfg) {
		t.Error("what the status shows is taken for changed by others")
	}
	if n := len(p.diff.shows.many); n != len(shown) {
		t.Errorf("of %d IDs that the list shows %d are indexed", len(shown), n)
	}
}
