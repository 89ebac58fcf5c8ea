// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package plegtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Fault is a way in which a generator or its agent can be wrong.
type Fault string

// Faults.
const (
	// Repeated: Watch delivered an event of an ID twice.
	Repeated Fault = "repeated"
	// Disordered: Watch delivered an event after the event of a later phase.
	Disordered Fault = "disordered"
	// Ahead: Watch delivered an event before the cache showed the change.
	Ahead Fault = "ahead"
	// UnknownType: Watch delivered an event of a type that package pleg does not have.
	UnknownType Fault = "unknown-type"
	// WentBack: the cache shows an earlier phase than before, or an ID again that was removed.
	WentBack Fault = "went-back"
	// Differs: the cache at rest differs from the runtime.
	Differs Fault = "differs"
	// Lost: Watch at rest has delivered neither a change nor a PodSync in its place.
	Lost Fault = "lost"
	// StartedTwice: two sandboxes, or two containers of one name, of a pod run at once.
	StartedTwice Fault = "started-twice"
)

// Violation is a broken promise.
type Violation struct {
	Fault Fault
	Pod   cache.UID
	ID    string // empty if the violation concerns the whole pod
	What  string
}

func (v Violation) Error() string {
	return fmt.Sprintf("%s: pod %s: %s", v.Fault, v.Pod, v.What)
}

// Kept is the number of violations that a [Checker] keeps; all are counted.
const Kept = 20

// Checker judges a generator. The zero value is ready.
type Checker struct {
	mu         sync.Mutex         // owns the fields below
	records    map[string]*record // by ID
	pods       map[cache.UID][]*record
	running    map[cache.UID][]pleg.Item // in the runtime
	counts     map[Fault]int
	violations []Violation // the first ones
}

// record is the knowledge of an ID. Each phase is the furthest one seen.
type record struct {
	id      string
	pod     cache.UID
	shown   pleg.Phase // by the cache
	told    pleg.Phase // by Watch, or by the status at a PodSync
	runtime pleg.Phase // by a change in the runtime
	// events has a bit for the phase of each event.
	events uint8
}

// PhaseOf returns the phase that an event announces, PhaseUnknown for a PodSync. It returns false
// for a type that package pleg does not have.
func PhaseOf(t pleg.EventType) (phase pleg.Phase, ok bool) {
	switch t {
	case pleg.ContainerStarted:
		return pleg.PhaseRunning, true
	case pleg.ContainerDied:
		return pleg.PhaseExited, true
	case pleg.ContainerRemoved:
		return pleg.PhaseRemoved, true
	case pleg.PodSync:
		return pleg.PhaseUnknown, true
	}
	return pleg.PhaseUnknown, false
}

// Shows enters a status of the cache. Statuses of a pod must come in the order of their storage:
// from the Merge of the generator's Config, or from a single reader.
func (c *Checker) Shows(status Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range status.Items {
		r := c.record(status.UID, item.ID)
		again := item.Phase != pleg.PhaseUnknown || r.shown == pleg.PhaseRemoved
		if again && item.Phase < r.shown {
			c.violated(WentBack, status.UID, item.ID, "%v was %v in the cache before", item, r.shown)
			continue
		}
		r.shown = max(r.shown, item.Phase)
	}
}

// Event enters an event of Watch, in the order of delivery, with the status of its pod that the
// cache shows after the delivery. With an empty status the event is judged by the order alone.
func (c *Checker) Event(e pleg.Event, status Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	phase, known := PhaseOf(e.Type)
	switch {
	case !known:
		c.violated(UnknownType, e.Pod, e.ID, "an event of type %q", e.Type)
	case e.Type == pleg.PodSync:
		c.synced(e.Pod, status)
	default:
		c.told(e, phase)
		c.behind(e, phase, status)
	}
}

// synced takes a PodSync as the report of all that the status shows.
func (c *Checker) synced(uid cache.UID, status Pod) {
	for _, r := range c.pods[uid] {
		if _, shown := status.find(r.id); !shown {
			r.told = pleg.PhaseRemoved
		}
	}
	for _, item := range status.Items {
		r := c.record(uid, item.ID)
		r.told = max(r.told, item.Phase)
	}
}

// told checks the order of an ID's events.
func (c *Checker) told(e pleg.Event, phase pleg.Phase) {
	r := c.record(e.Pod, e.ID)
	bit := uint8(1) << phase
	switch {
	case r.events&bit != 0:
		c.violated(Repeated, e.Pod, e.ID, "%s of %s was delivered twice", e.Type, e.ID)
	case r.events > bit:
		c.violated(Disordered, e.Pod, e.ID, "%s of %s was delivered after the event of a later phase", e.Type, e.ID)
	}
	r.events |= bit
	r.told = max(r.told, phase)
	if phase == pleg.PhaseRemoved {
		r.shown = phase
	}
}

// behind checks that the cache shows the change of an event. Beside an error it may show an older
// status, and of a container of which the runtime has lost track since it shows no phase.
func (c *Checker) behind(e pleg.Event, phase pleg.Phase, status Pod) {
	if status.Err != nil {
		return
	}
	item, shown := status.find(e.ID)
	if shown && item.Phase != pleg.PhaseUnknown && item.Phase < phase {
		c.violated(Ahead, e.Pod, e.ID, "%s of %s was delivered while the cache shows %v", e.Type, e.ID, item)
	}
}

// Changed enters the begin of a phase of a container or sandbox in the runtime. An earlier phase
// than one entered before changes nothing.
func (c *Checker) Changed(pod cache.UID, item pleg.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record(pod, item.ID)
	if item.Phase <= r.runtime {
		return
	}
	r.runtime = item.Phase
	if item.Phase > pleg.PhaseRunning {
		c.stopped(pod, item.ID)
		return
	}
	if item.Phase != pleg.PhaseRunning {
		return
	}
	for _, other := range c.running[pod] {
		same := other.Kind == item.Kind && other.Name == item.Name
		if same && (item.Kind == pleg.Sandbox || item.Name != "") {
			c.violated(StartedTwice, pod, item.ID, "%v %s runs as %s and as %s", item.Kind, item.Name, other.ID, item.ID)
		}
	}
	c.running[pod] = append(c.running[pod], item)
}

// stopped forgets a running item.
func (c *Checker) stopped(pod cache.UID, id string) {
	c.running[pod] = slices.DeleteFunc(c.running[pod], func(i pleg.Item) bool { return i.ID == id })
	if len(c.running[pod]) == 0 {
		delete(c.running, pod)
	}
}

// Running returns the running items of a pod, by the entered changes of the runtime.
func (c *Checker) Running(pod cache.UID) []pleg.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.running[pod])
}

// Rest compares the cache with the runtime, and with the events so far. Call Rest when the runtime
// stands still, the generator has read its last change, and every event was entered with its
// status: the test waits until [Compare] finds nothing, or for as long as a change may take.
func (c *Checker) Rest(cached, runtime []Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range Compare(cached, runtime) {
		c.add(d)
	}
	present := make(map[string]bool)
	for _, p := range cached {
		for _, item := range p.Items {
			present[item.ID] = true
			r := c.record(p.UID, item.ID)
			if item.Phase >= pleg.PhaseRunning && item.Phase > r.told {
				c.violated(Lost, p.UID, item.ID, "%v, and Watch has delivered no event", item)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.records)) {
		r := c.records[id]
		if r.told > pleg.PhaseUnknown && r.told < pleg.PhaseRemoved && !present[id] {
			c.violated(Lost, r.pod, id, "%s is gone, and Watch has delivered no event", id)
		}
	}
}

// Err returns the kept violations, joined; nil for none.
func (c *Checker) Err() error {
	var errs []error
	for _, v := range c.Violations() {
		errs = append(errs, v)
	}
	return errors.Join(errs...)
}

// Violations returns the first violations, up to [Kept].
func (c *Checker) Violations() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// Count returns the number of violations of the faults, of all faults if none is given.
func (c *Checker) Count(faults ...Fault) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for fault, count := range c.counts {
		if len(faults) == 0 || slices.Contains(faults, fault) {
			n += count
		}
	}
	return n
}

func (c *Checker) violated(fault Fault, pod cache.UID, id, format string, args ...any) {
	c.add(Violation{
		Fault: fault,
		Pod:   pod,
		ID:    id,
		What:  fmt.Sprintf(format, args...),
	})
}

func (c *Checker) add(v Violation) {
	if c.counts == nil {
		c.counts = make(map[Fault]int)
	}
	c.counts[v.Fault]++
	if len(c.violations) < Kept {
		c.violations = append(c.violations, v)
	}
}

// record returns the record of an ID.
func (c *Checker) record(pod cache.UID, id string) *record {
	r := c.records[id]
	if r != nil {
		return r
	}
	if c.records == nil {
		c.records = make(map[string]*record)
		c.pods = make(map[cache.UID][]*record)
		c.running = make(map[cache.UID][]pleg.Item)
	}
	r = &record{id: id, pod: pod}
	c.records[id] = r
	c.pods[pod] = append(c.pods[pod], r)
	return r
}
