// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
)

var (
	seeds     = flag.Int("seeds", 3000, "random histories to search")
	firstSeed = flag.Uint64("from", 0, "seed of the first random history")
)

// TestSearch looks for a random history with a wrong served list. The oracle, at each list:
//
//   - too little: what the runtime has is shown, if an own call or an event that has come told of
//     it, or a full list began after it came, or a call made it that had just been given up; and
//     what was shown once is shown until it has gone;
//   - false end: nothing is shown as ended that has not ended, but a sandbox that others make, of
//     which nothing has told yet that it has become ready;
//   - too late: what has ended, or gone, is shown so under the same conditions, unless an own call
//     that ends it is under way;
//   - while everything is served, lists of one revision show the same;
//   - and once everything is at rest, lists are served and show exactly what there is.
func TestSearch(t *testing.T) {
	served, refused, ids := make([]int, len(situations)), 0, 0
	for n := range uint64(*seeds) {
		seed := *firstSeed + n
		w := newWorld(seed)
		for range 400 {
			w.turn(true)
		}
		w.rest()
		refused, ids = refused+w.refused, ids+w.ids
		for i, n := range w.served {
			served[i] += n
		}
		if w.wrong != "" {
			t.Fatalf("%s\nonce more: -run '^TestSearch$' -args -seeds=1 -from=%d", w.wrong, seed)
		}
	}
	t.Logf("%d histories: %d lists refused, %d reads of one ID", *seeds, refused, ids)
	for i, s := range situations {
		t.Logf("%s: %d lists served", s.name, served[i])
		if served[i] < *seeds/100 {
			t.Errorf("%s: %d lists served in %d histories, want one in a hundred", s.name, served[i], *seeds)
		}
	}
}

// situations are those in which lists must be served, again and again: the oracle is blind to a
// refused list, and a ledger with needless refusals would pass.
var situations = []struct {
	name string
	in   func(*world, filter) bool
}{
	{"an own call is under way", func(w *world, _ filter) bool { return len(w.calls) > 0 }},
	{"a call of another pod was not answered", func(w *world, f filter) bool {
		return len(w.l.sandboxes.failures)+len(w.l.containers.failures) > 0 && f.id == ""
	}},
	{
		"a call that makes something of another pod is under way",
		func(w *world, f filter) bool { return w.making() && f.pod() != "" },
	},
	{
		"a call that makes something is under way, and everything is asked for",
		func(w *world, f filter) bool { return w.making() && f.all() },
	},
	{"a read is under way", func(w *world, _ filter) bool { return len(w.reads) > 0 }},
	{"an event is on its way", func(w *world, _ filter) bool { return len(w.letters) > 0 }},
	{"another ID is in doubt", func(w *world, _ filter) bool { _, _, doubts := w.l.Len(); return doubts > 0 }},
	{"everything is asked for", func(_ *world, f filter) bool { return f.all() }},
	{"an ID is asked for", func(_ *world, f filter) bool { return f.id != "" }},
	{"a sandbox is asked for", func(_ *world, f filter) bool { return f.sandbox != "" }},
	{"a pod is asked for", func(_ *world, f filter) bool { return len(f.labels) > 0 }},
	{"a state is asked for", func(_ *world, f filter) bool { return f.hasState }},
}

// making reports whether an own call that makes something is under way.
func (w *world) making() bool {
	return slices.ContainsFunc(
		w.calls,
		func(c *ownCall) bool { return c.op == RunPodSandbox || c.op == CreateContainer },
	)
}

// turn makes a move.
func (w *world) turn(lists bool) {
	w.step++
	w.deliver()
	switch n := w.rng.IntN(100); {
	case n < 15:
		w.foreign()
	case n < 20 && len(w.calls) < 3:
		w.start()
	case n < 50 && len(w.calls) > 0 && w.oneIn(w.slow):
		w.proceed(w.rng.IntN(len(w.calls)))
	case n < 60 && len(w.reads) < w.mostReads:
		if t := w.pick(w.oneIn(2)); t != nil && w.oneIn(3) {
			w.beginStatus(t)
		} else {
			w.begin(w.oneIn(2), w.someFilter())
		}
	case n < 80 && len(w.reads) > 0:
		w.look(w.reads[w.rng.IntN(len(w.reads))])
	case n < 85 && len(w.reads) > 0:
		w.finish(w.reads[w.rng.IntN(len(w.reads))])
	case n == 85 && w.oneIn(w.loss):
		w.disconnect()
	case n < 90 && !w.connected:
		w.connected = true
	case n < 93 && len(w.orphans) > 0:
		w.orphan()
	case lists:
		w.list(w.oneIn(2), w.someFilter())
	}
}

// someFilter returns a filter of the CRI, for either kind.
func (w *world) someFilter() filter {
	f := filter{}
	if t := w.pick(w.oneIn(2)); t != nil {
		switch w.rng.IntN(8) {
		case 0:
			f.id = t.id
		case 1:
			f.sandbox = t.sandbox
		case 2:
			f.labels = map[string]string{PodUIDLabel: t.pod}
		}
	}
	if w.oneIn(4) {
		f.hasState, f.state = true, Running
	}
	return f
}

// begin begins a list.
func (w *world) begin(sandboxes bool, f filter) *toyRead {
	if sandboxes {
		f.sandbox = "" // the CRI's filter of sandboxes has none
	}
	w.l.Trust(w.connected)
	r := &toyRead{
		read:      w.l.Begin(w.now()),
		began:     w.step,
		sandboxes: sandboxes,
		filter:    f,
		looked:    map[*thing]bool{},
	}
	w.reads = append(w.reads, r)
	return r
}

// beginStatus begins a read of a thing's status.
func (w *world) beginStatus(t *thing) {
	w.l.Trust(w.connected)
	w.reads = append(
		w.reads,
		&toyRead{read: w.l.Begin(w.now()), began: w.step, status: t, looked: map[*thing]bool{}},
	)
}

// look looks at some of the things: a list does not show a single moment.
func (w *world) look(r *toyRead) {
	for _, t := range w.things {
		if w.oneIn(3) {
			r.lookAt(t)
		}
	}
}

func (r *toyRead) lookAt(t *thing) {
	if r.looked[t] || r.status == nil && t.sandboxed != r.sandboxes || r.status != nil && r.status != t {
		return
	}
	r.looked[t] = true
	if r.status != nil {
		r.state = t.seen()
		return
	}
	if t.phase == Gone || !r.filter.fits(t) {
		return
	}
	if s := t.seen(); !r.filter.hasState || s == r.filter.state {
		if t.sandboxed {
			r.listedSB = append(r.listedSB, t.asSandbox(s))
		} else {
			r.listedCT = append(r.listedCT, t.asContainer(s))
		}
	}
}

// seen is the thing's phase in a list.
func (t *thing) seen() Phase {
	switch {
	case t.murky && !t.sandboxed:
		return Unknown
	case t.unready || t.sandboxed && t.phase < Running:
		return Exited
	}
	return t.phase
}

func (f filter) fits(t *thing) bool {
	pod, wants := f.labels[PodUIDLabel]
	return (f.id == "" || f.id == t.id) && (f.sandbox == "" || f.sandbox == t.sandbox) &&
		(!wants || t.labelled && pod == t.pod)
}

func (t *thing) labels() map[string]string {
	if !t.labelled {
		return nil
	}
	return map[string]string{PodUIDLabel: t.pod}
}

func (t *thing) asSandbox(p Phase) *runtimeapi.PodSandbox {
	s := &runtimeapi.PodSandbox{
		Id:     t.id,
		Labels: t.labels(),
		State:  runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	}
	if p == Running {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return s
}

func (t *thing) asContainer(p Phase) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           t.id,
		PodSandboxId: t.sandbox,
		Labels:       t.labels(),
		State:        containerState(p),
	}
}

// finish ends a list.
func (w *world) finish(r *toyRead) {
	for _, t := range w.things {
		if t.at[t.first()] <= r.began || w.oneIn(2) { // additions during a list may be in it
			r.lookAt(t)
		}
	}
	if i := slices.Index(w.reads, r); i >= 0 {
		w.reads = slices.Delete(w.reads, i, i+1)
	}
	w.step++
	w.busy = append(w.busy, [2]int{r.began, w.step})
	if r.status != nil {
		w.finishStatus(r)
		return
	}
	i := 1
	if r.sandboxes {
		i = 0
		w.l.Sandboxes(r.read, r.filter.forSandboxes(), r.listedSB, w.now())
	} else {
		w.l.Containers(r.read, r.filter.forContainers(), r.listedCT, w.now())
	}
	if r.filter.all() {
		w.full[i] = max(w.full[i], r.began)
	}
}

// finishStatus ends a read of a status. Of a thing that has gone there is none.
func (w *world) finishStatus(r *toyRead) {
	t := r.status
	switch {
	case r.state == Gone:
	case t.sandboxed:
		s := t.asSandbox(r.state)
		w.l.SandboxStatus(
			r.read,
			t.id,
			&runtimeapi.PodSandboxStatus{Id: s.Id, Labels: s.Labels, State: s.State},
		)
	default:
		c := t.asContainer(r.state)
		w.l.ContainerStatus(
			r.read,
			t.id,
			&runtimeapi.ContainerStatus{Id: c.Id, Labels: c.Labels, State: c.State, ImageId: "image"},
		)
	}
}

func (f filter) forSandboxes() *runtimeapi.PodSandboxFilter {
	c := &runtimeapi.PodSandboxFilter{Id: f.id, LabelSelector: f.labels}
	if f.hasState {
		c.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	}
	return c
}

func (f filter) forContainers() *runtimeapi.ContainerFilter {
	c := &runtimeapi.ContainerFilter{Id: f.id, PodSandboxId: f.sandbox, LabelSelector: f.labels}
	if f.hasState {
		c.State = &runtimeapi.ContainerStateValue{State: containerState(f.state)}
	}
	return c
}

// list asks for a list like the service, and compares it with the runtime.
func (w *world) list(sandboxes bool, f filter) bool {
	if sandboxes {
		f.sandbox = ""
	}
	w.l.Trust(w.connected)
	_, ofSandboxes := w.l.ServeSandboxes(nil, w.now())
	_, ofContainers := w.l.ServeContainers(nil, w.now())
	if all := w.l.ServesAll(w.now()); all != (ofSandboxes.Reason == "" && ofContainers.Reason == "") {
		w.fail(
			"all: it serves everything: %t, and refuses sandboxes by %q and containers by %q",
			all,
			ofSandboxes.Reason,
			ofContainers.Reason,
		)
	}
	w.sameAsBefore()
	for range 2 {
		w.l.Trust(w.connected)
		shown, v := w.serve(sandboxes, f)
		if v.Reason == "" {
			for i, s := range situations {
				if s.in(w, f) {
					w.served[i]++
				}
			}
			w.compare(sandboxes, f, shown)
			if err := errors.Join(checkGroups(w.l.sandboxes), checkGroups(w.l.containers)); err != nil {
				w.fail("groups: %v", err)
			}
			return true
		}
		if len(v.Resolve) == 0 {
			break
		}
		slices.SortFunc(
			v.Resolve,
			func(a, b Query) int { return strings.Compare(a.ID+a.Pod, b.ID+b.Pod) },
		) // so a seed is a single history
		for _, q := range v.Resolve {
			w.ids++
			only := filter{id: q.ID}
			if q.Pod != "" {
				only.labels = map[string]string{PodUIDLabel: q.Pod}
			}
			r := w.begin(sandboxes, only)
			for range w.rng.IntN(3) {
				w.turn(false)
			}
			if slices.Contains(w.reads, r) {
				w.finish(r)
			}
		}
	}
	w.refused++
	return false
}

// sameAsBefore compares the lists of everything with those last served: while the revision stands,
// nobody asks for them.
func (w *world) sameAsBefore() {
	if !w.l.ServesAll(w.now()) {
		return
	}
	all, _ := w.serve(true, filter{})
	containers, _ := w.serve(false, filter{})
	maps.Copy(all, containers)
	revision := w.l.Revision()
	if w.revision == revision && !maps.Equal(w.before, all) {
		w.fail("revision: %d shows %v, and showed %v", revision, all, w.before)
	}
	w.revision, w.before = revision, all
}

// serve returns the phases in a list from memory, by ID.
func (w *world) serve(sandboxes bool, f filter) (shown map[string]Phase, v Verdict) {
	shown = make(map[string]Phase)
	if sandboxes {
		list, v := w.l.ServeSandboxes(f.forSandboxes(), w.now())
		for _, s := range list {
			shown[s.Id] = criphase.OfSandbox(s.State)
		}
		return shown, v
	}
	list, v := w.l.ServeContainers(f.forContainers(), w.now())
	for _, c := range list {
		shown[c.Id] = criphase.OfContainer(c.State)
	}
	return shown, v
}

// compare is the oracle.
func (w *world) compare(sandboxes bool, f filter, shown map[string]Phase) {
	for _, t := range w.things {
		if t.sandboxed != sandboxes || !f.fits(t) {
			if _, ok := shown[t.id]; ok {
				w.fail("misfit: %s is shown by filter %+v", t.id, f)
			}
			continue
		}
		as, is := shown[t.id]
		switch {
		case is && as == Unknown:
			w.fail("unknown: %s is shown in no known state", t.id)
		case is && f.hasState && as != f.state:
			w.fail("misfit: %s is shown as %d by filter %+v", t.id, as, f)
		case is && as == Exited && t.phase < Exited && !w.unripe(t):
			w.fail("false end: %s is shown as ended, and has come to %d", t.id, t.phase)
		case is && as < Exited && t.phase == Exited && w.knowable(t, Exited) && !w.ending(t):
			w.fail("too late: %s is shown as %d and has ended at %d", t.id, as, t.at[Exited])
		case is && t.phase == Gone && w.knowable(t, Gone) && !w.ending(t):
			w.fail("too late: %s is shown as %d and has gone at %d", t.id, as, t.at[Gone])
		case !is && t.phase != Gone && !f.hasState && (t.shown || w.knowable(t, t.first()) || t.raw && w.ripe(t)):
			w.fail("too little: %s is not shown and has been there since %d", t.id, t.at[t.first()])
		case !is && t.phase == Running && f.hasState && w.knowable(t, Running):
			w.fail("too little: %s is not shown as running and runs since %d", t.id, t.at[Running])
		}
		t.shown = t.shown || is
		t.shownReady = t.shownReady || is && as == Running
	}
}

// ripe reports whether the ledger must know that a sandbox has become ready.
func (w *world) ripe(t *thing) bool { return t.at[Running] > 0 && w.knowable(t, Running) }

// unripe reports whether a sandbox that others make may be shown as not ready.
func (w *world) unripe(t *thing) bool { return t.raw && !t.shownReady && !w.ripe(t) }

// first is the phase of its arrival.
func (t *thing) first() Phase {
	if t.sandboxed && !t.raw {
		return Running
	}
	return Created
}

// knowable reports whether the ledger must know it: by an own call, an event, or a full list begun
// after it. Later results of a read, or a call, under way then are undone by the next list only.
func (w *world) knowable(t *thing, p Phase) bool {
	if t.due[p] && !w.unanswered(t, p) {
		return true
	}
	i := 1
	if t.sandboxed {
		i = 0
	}
	switch p {
	case Exited: // shown as ended by a list begun before the answer, it may not have been ready yet
		return w.full[i] > max(t.at[p], t.made)
	case Created, Running:
		return w.full[i] > t.at[p]
	}
	for _, r := range w.reads {
		if r.began <= t.at[p] {
			return false
		}
	}
	for _, c := range w.calls {
		if c.began <= t.at[p] {
			return false
		}
	}
	quiet := t.at[p]
	for _, span := range w.busy {
		if span[0] <= t.at[p] {
			quiet = max(quiet, span[1])
		}
	}
	return w.full[i] > quiet
}

// ending reports whether an own call that ends it is under way.
func (w *world) ending(t *thing) bool {
	for _, c := range w.calls {
		if c.op != RunPodSandbox && c.op != CreateContainer && c.op != StartContainer &&
			(c.target == t || c.target.id == t.sandbox) {
			return true
		}
	}
	return false
}

// rest ends everything under way, lists everything, and wants to be served the truth.
func (w *world) rest() {
	for len(w.calls) > 0 {
		w.proceed(0)
	}
	for len(w.orphans) > 0 {
		w.orphan()
	}
	for len(w.reads) > 0 {
		w.finish(w.reads[0])
	}
	w.step += lateSteps
	w.letters, w.connected = nil, true
	for _, t := range w.things {
		t.murky = false
	}
	for _, sandboxes := range []bool{true, false} {
		w.step++
		w.finish(w.begin(sandboxes, filter{}))
	}
	for _, sandboxes := range []bool{true, false} {
		if !w.list(sandboxes, filter{}) {
			w.fail("refused: at rest a list is not served")
			return
		}
		w.truth(sandboxes)
	}
}

// truth compares the lists served at rest with the things, item by item.
func (w *world) truth(sandboxes bool) {
	shown, _ := w.serve(sandboxes, filter{})
	for _, t := range w.things {
		want := t.seen()
		if t.sandboxed != sandboxes || want == Gone {
			want = 0
		}
		if shown[t.id] != want {
			w.fail("at rest: %s is shown as %d, want %d", t.id, shown[t.id], want)
		}
	}
}
