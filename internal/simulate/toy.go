// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/processors"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// toyProfile is the behaviour of a toy runtime, after the families of real runtimes.
type toyProfile struct {
	name                           string
	sandboxCreated, sandboxDeleted bool
	silentCascade                  bool // containers removed with their sandbox get no event
	payloadPod                     bool // an event shows the whole pod, not its sandbox only
	backlog                        bool // unheard events are kept for the next subscriber
	events                         streamMode
}

// streamMode is a runtime's answer to a subscriber.
type streamMode uint8

const (
	streamOn streamMode = iota
	streamEOF
	streamUnimplemented
	streamRefuse
)

var toyProfiles = []toyProfile{
	{name: "containerd-2", sandboxCreated: true, sandboxDeleted: true, backlog: true},
	{name: "containerd-2.0", sandboxCreated: true, sandboxDeleted: true, backlog: true},
	{name: "containerd-1.7", sandboxCreated: true, sandboxDeleted: true},
	{name: "crio", silentCascade: true, payloadPod: true},
	{name: "crio-disabled", silentCascade: true, payloadPod: true, events: streamEOF},
	{name: "no-events", events: streamUnimplemented},
}

// toyItem is a sandbox or container of the toy.
type toyItem struct {
	id      string
	pod     cache.UID
	kind    pleg.Kind
	sandbox string // of a container
	phase   pleg.Phase
	prev    pleg.Phase // before the last change
	far     pleg.Phase // the furthest, which a lost state does not take back
	worker  bool       // made by a pod worker
	blurred bool       // lists do not know its state; statuses do
	version int        // of its content
	since   int        // the version at the last change of its phase
	spoilt  spoil      // its status cannot be read
	hidden  int        // number of coming looks without the item
	unseen  int        // number of looks in a row without the item
	missed  time.Time  // the last of them
	lacked  bool       // the last read of statuses missed the living item

	ghost  bool       // the item is gone, and lists still show it, in the phase haunts
	haunts pleg.Phase // of a ghost
}

// name is the name of a container for people.
func (x *toyItem) name() string {
	if x.kind == pleg.Sandbox {
		return ""
	}
	return "name of " + x.id
}

// toy is a runtime in memory: a source, a stream, and the commands that change the runtime. Its
// mutex owns everything.
type toy struct {
	truth *Truth
	upset func(until time.Time) // the runtime is not at rest before this time

	mu       sync.Mutex
	profile  toyProfile
	rng      *rand.Rand
	latency  time.Duration // reads take up to this
	work     time.Duration // of a processor, for the statuses of a pod
	cpu      processors.Processors
	readable chan struct{} // closed when a hanging item becomes readable
	sends    bool          // payloads are looked up when the events are sent, not at the changes
	apart    bool          // each claim is taken before the next is sent
	torn     bool          // a read looks at sandboxes and containers at different moments
	lacks    bool          // statuses lack their unreadable items
	bundles  bool          // statuses bring all IDs of their pod, also without a request
	delta    bool
	down     bool
	mode     streamMode
	stalled  bool
	skew     time.Duration // of the wall clock
	items    []*toyItem    // in the order they were made
	byID     map[string]*toyItem
	subs     []*subscriber
	backlog  []delivery
	recent   []delivery
	list     readFault
	pods     readFault
	inspect  readFault
	revision pleg.Revision
	shown    map[cache.UID][]pleg.Item
	cut      chan struct{}
}

// readFault is a fault of a kind of read.
type readFault struct {
	err  error
	slow time.Duration // before the look
	late time.Duration // after the look
	hang bool
	none int                    // so many more lists show nothing
	free chan struct{}          // closed when a hanging read is let go
	only map[cache.UID]struct{} // the pods with struck reads; nil: all
}

// strikes reports whether the fault strikes a read of a pod, or of everything.
func (f *readFault) strikes(uid cache.UID) bool {
	_, ok := f.only[uid]
	return f.only == nil || ok
}

var (
	errDown     = errors.New("connection refused")
	errVirtual  = errors.New("virtual failure")
	errNoSuch   = errors.New("no such sandbox or container")
	errExists   = errors.New("that ID is in use already")
	errWrongWay = errors.New("it cannot go that way")
)

func newToy(truth *Truth, seed uint64) *toy {
	return &toy{
		truth:    truth,
		rng:      rand.New(rand.NewPCG(seed, 1)),
		profile:  toyProfiles[0],
		latency:  time.Millisecond,
		byID:     make(map[string]*toyItem),
		cut:      make(chan struct{}),
		readable: make(chan struct{}),
		upset:    func(time.Time) {},
	}
}

func (r *toy) setProfile(name string) error {
	for _, p := range toyProfiles {
		if p.name == name {
			r.profile = p
			r.mode = p.events
			return nil
		}
	}
	return fmt.Errorf("unknown profile %q", name)
}

// wall is the runtime's wall clock.
func (r *toy) wall() time.Time { return time.Now().Add(r.skew) }

// add makes a sandbox or a container.
func (r *toy) add(it *toyItem, phase pleg.Phase, how telling) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[it.id] != nil {
		return errExists
	}
	if it.kind == pleg.Container {
		s := r.byID[it.sandbox]
		if s == nil || s.kind != pleg.Sandbox || s.phase == pleg.PhaseRemoved {
			return errNoSuch
		}
		it.pod = s.pod
	}
	r.byID[it.id] = it
	r.items = append(r.items, it)
	r.move(it, phase, how)
	r.truth.Rewrite(time.Now(), it.id, it.content())
	return nil
}

// set moves an ID to a phase: forward only, except for a recovering ID.
func (r *toy) set(id string, phase pleg.Phase, how telling) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.byID[id]
	if it == nil || it.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	recovers := it.phase == pleg.PhaseExited && phase == pleg.PhaseRunning && (it.kind == pleg.Sandbox || how.again)
	if (phase <= it.phase || phase < it.far) && !recovers {
		return errWrongWay
	}
	if phase == pleg.PhaseRunning && it.kind == pleg.Container {
		if s := r.byID[it.sandbox]; s.phase != pleg.PhaseRunning {
			return errWrongWay
		}
	}
	r.cascade(it, phase, how)
	return nil
}

// cascade moves an ID and its dependents: a stopping sandbox ends its containers, a removed sandbox
// takes them along; running containers die first.
func (r *toy) cascade(it *toyItem, phase pleg.Phase, how telling) {
	if it.kind == pleg.Sandbox && phase >= pleg.PhaseExited {
		for _, c := range r.items {
			if c.kind != pleg.Container || c.sandbox != it.id || c.phase >= phase {
				continue
			}
			quiet := how
			if phase == pleg.PhaseRemoved && r.profile.silentCascade {
				quiet.no = true
			}
			if c.phase < pleg.PhaseExited && (phase == pleg.PhaseRemoved || c.phase == pleg.PhaseRunning) {
				r.move(c, pleg.PhaseExited, how)
			}
			if phase == pleg.PhaseRemoved {
				r.move(c, pleg.PhaseRemoved, quiet)
			}
		}
	}
	if phase == pleg.PhaseRemoved && it.phase < pleg.PhaseExited {
		r.move(it, pleg.PhaseExited, how)
	}
	r.move(it, phase, how)
}

// move changes a phase and sends the event.
func (r *toy) move(it *toyItem, phase pleg.Phase, how telling) {
	it.prev = it.phase
	it.phase = phase
	it.far = max(it.far, phase)
	it.since = it.version
	now := time.Now()
	r.truth.Record(now, it.pod, it.id, it.kind, phase)
	r.upset(now)
	r.tell(it, phase, how)
}

// podItems returns the items of a pod, or of one of its sandboxes. Stale shows the other items in
// their earlier state.
func (r *toy) podItems(pod cache.UID, sandbox, own string, stale bool) []pleg.Item {
	var items []pleg.Item
	for _, x := range r.items {
		if x.pod != pod || sandbox != "" && x.id != sandbox && x.sandbox != sandbox {
			continue
		}
		phase := x.phase
		if stale && x.id != own && x.prev != pleg.PhaseUnknown {
			phase = x.prev
		}
		if phase != pleg.PhaseRemoved {
			items = append(items, pleg.Item{ID: x.id, Kind: x.kind, Phase: phase})
		}
	}
	return items
}

// lose makes the runtime lose the state of a container: reads show the container in an unknown
// state.
func (r *toy) lose(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.byID[id]
	if it == nil || it.kind != pleg.Container || it.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	it.prev = it.phase
	it.phase = pleg.PhaseUnknown
	r.truth.Record(time.Now(), it.pod, id, it.kind, pleg.PhaseUnknown)
	r.upset(time.Now())
	return nil
}

// blur makes lists lose or regain the state of a container, while statuses keep it.
func (r *toy) blur(id string, yes bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.byID[id]
	if it == nil || it.kind != pleg.Container || it.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	it.blurred = yes
	r.upset(time.Now())
	return nil
}

// announce sends the removal of an ID ahead of the removal.
func (r *toy) announce(id string, how telling) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.byID[id]
	if it == nil || it.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	how.gone = true
	r.tell(it, pleg.PhaseRemoved, how)
	r.upset(time.Now().Add(how.lag))
	return nil
}

// calm ends every fault.
func (r *toy) calm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range []*readFault{&r.list, &r.pods, &r.inspect} {
		f.release()
		*f = readFault{}
	}
	r.down = false
	r.stalled = false
	r.mode = r.profile.events
	for _, x := range r.items {
		if x.spoilt != spoilNot {
			r.truth.Spoil(x.id, false)
		}
		x.spoilt = spoilNot
		x.hidden = 0
		x.ghost = false
	}
	r.release()
}

func (f *readFault) release() {
	if f.free != nil {
		close(f.free)
		f.free = nil
	}
}

// live returns the matching IDs of a pod.
func (r *toy) live(pod cache.UID, match func(*toyItem) bool) []*toyItem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(
		slices.Clone(r.items),
		func(x *toyItem) bool { return x.pod != pod || x.phase == pleg.PhaseRemoved || !match(x) },
	)
}
