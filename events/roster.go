// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/base64"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	rosterSoon     = time.Second / 4  // from a change to the write: other series may change too
	rosterEvery    = 10 * time.Second // the least time between two writes of a roster
	rosterRemovals = 2 * time.Minute  // from a removal to the write, if nothing else changes
	maxNames       = 4 << 20          // bytes of the lines read from a roster
	maxRoster      = 240 << 10        // bytes of a packed roster: annotations may have 256 KiB
	maxAnnotated   = 250 << 10        // bytes of the whole and its changes, without their keys
	maxChanges     = 120              // writes of changes before the whole is written again
	maxWaiting     = 8192             // changes that wait; beyond, the whole is written
	restoreTimeout = 5 * time.Second  // of a call for what an earlier process has left
	restoreTries   = 3                // after so many failed first reads, events do not wait
	// leftOver is the time in which the series are ended that an earlier process has left.
	leftOver = 5 * time.Minute
)

// rosterPhase is the knowledge about a roster's object.
type rosterPhase uint8

const (
	rosterUnread    rosterPhase = iota // read it first
	rosterAbsent                       // create it
	rosterStored                       // patch it
	rosterOvertaken                    // another write came: read the version, then patch it
)

// roster lets a source find the series of its earlier processes. A roster is a single Event with a
// constant name, and holds the names of the series that go on or wait for their end. A node may
// write a roster and read a roster with an empty patch, but may neither list nor get Events.
// Guarded by the broadcaster's lock.
//
// A roster is written as a whole, and then as changes, each an annotation of its own: a change
// costs a line. A process that ends in order writes the whole with the exact counts, last times
// and versions; a killed one leaves names that may have counted on.
//
// A patch carries the version of the object as this process knows it. So the server refuses a
// patch that was given up and is carried out late, and one beside another process's. After such a
// refusal the version is read, and the whole is written over what is there.
type roster struct {
	index uint32 // of the source
	src   source
	name  string // of the object
	phase rosterPhase
	// version is the resourceVersion of the object, "" if a sink does not tell it: then a patch
	// applies to any.
	version string
	// attempts counts the failures, and the patches of another version, since the last success.
	attempts int
	// conflicts are the patches of another version since the last success.
	conflicts int
	// lastTry is the number of attempts with which a shutdown gives the last write up.
	lastTry int
	// busy: a call is under way.
	busy bool
	// next is the time of the next call, zero for none.
	next time.Time
	// rest is the time before which there is no call.
	rest time.Time
	// shared counts how often another process's write was found.
	shared uint32

	// tag begins the annotation of the whole as this process has written it, "" for none.
	tag string
	// changes is how many annotations with changes the object may have.
	changes int
	// size and changed are the bytes of the whole, and of the changes since.
	size, changed int
	// entries: the object names series, or may do so by a write without an answer.
	entries bool
	// added are series stored since the last write, and removed the paths of those ended. Where the
	// whole comes next, neither is kept.
	added   []*series
	removed []string

	// own are the series in memory of this source, and listed is how many of them are listed.
	own    links
	listed int

	// left holds what an earlier process has left.
	left leftovers
	// exact: that process ended in order.
	exact bool
	// readAt is when they were read, and endAt when the next of them is to be ended.
	readAt, endAt time.Time
}

func newRoster(index uint32, src source) *roster {
	id := (&seriesKey{}).id(src)
	_, base, _ := strings.Cut(src.controller, "/")
	return &roster{
		index: index,
		src:   src,
		name:  nameFor(strings.ToLower(cmp.Or(base, src.controller)), ".roster-", id[:8]),
	}
}

func (r *roster) becomeStored(version string) {
	r.phase = rosterStored
	r.version = version
}

func (r *roster) becomeAbsent() {
	r.phase = rosterAbsent
	r.version = ""
	r.entries = false
	r.becomeDoubtful()
}

func (r *roster) becomeOvertaken() {
	r.phase = rosterOvertaken
	r.version = ""
	r.becomeDoubtful()
}

// becomeDoubtful books that what the object holds is not known: the whole is written next.
func (r *roster) becomeDoubtful() {
	r.tag = ""
	r.added = nil
	r.removed = nil
}

// due has the next call made at the given time, whatever was asked for.
func (r *roster) due(at time.Time) { r.next = at }

// hasToEnd lets the last write be tried a few times, whatever has failed before.
func (r *roster) hasToEnd(now time.Time) {
	r.due(now)
	r.lastTry = r.attempts + restoreTries
}

// answered forgets the failures. A shutdown that is under way has all its tries again.
func (r *roster) answered() {
	r.attempts = 0
	r.conflicts = 0
	r.lastTry = restoreTries
}

// called notes that a call is being made, and asks for no other.
func (r *roster) called() {
	r.busy = true
	r.next = time.Time{}
}

// want asks for a call at the given time, or as soon after as allowed.
func (r *roster) want(at time.Time) {
	if at.Before(r.rest) {
		at = r.rest
	}
	if r.next.IsZero() || at.Before(r.next) {
		r.next = at
	}
}

// first reports whether the roster has to be read before new events are sent.
func (r *roster) first() bool { return r.phase == rosterUnread && r.attempts < restoreTries }

// place is where the calls of a roster go.
func (r *roster) place(namespace string) place {
	p := place{
		namespace: namespace,
		kind:      callPatch,
		object:    objectKey{kind: "EventRecorder", namespace: namespace, name: r.name},
	}
	if r.phase == rosterAbsent {
		p.kind = callCreate
	}
	return p
}

// keepsChanges reports whether changes are kept for the next write. A call under way decides that,
// and while the roster cannot be written, they must not fill the memory.
func (r *roster) keepsChanges() bool {
	return r.busy || r.tag != "" && len(r.added)+len(r.removed) < maxWaiting
}

// add books a series that a restart continues, as often as it is written while it is not listed.
func (r *roster) add(s *series, now time.Time) {
	if r.keepsChanges() {
		r.added = append(r.added, s)
	} else {
		r.becomeDoubtful()
	}
	r.want(now.Add(rosterSoon))
}

// remove books the end of a series.
func (r *roster) remove(s *series, now time.Time) {
	if s.listed {
		r.unlist(s)
		r.drop(s.path(), now)
	}
}

// list books that the object names a series, or that the next write does.
func (r *roster) list(s *series) {
	if !s.listed {
		s.listed = true
		r.listed++
	}
}

// unlist books that the object names a series no longer, or another one by that name.
func (r *roster) unlist(s *series) {
	if s.listed {
		s.listed = false
		r.listed--
	}
}

// goesOn reports whether a restart would continue a series of the source.
func (r *roster) goesOn() bool {
	for x := r.own.first; x != nil; x = x.next {
		if x.owner.restarts() {
			return true
		}
	}
	return false
}

// goingOn returns the stored series of the source for a restart to continue, the latest first.
func (r *roster) goingOn() (out []*series) {
	for x := r.own.last; x != nil; x = x.prev {
		if x.owner.restarts() {
			out = append(out, x.owner)
		}
	}
	slices.SortStableFunc(out, func(a, b *series) int { return b.st.quiet().Compare(a.st.quiet()) })
	return out
}

// ending returns the other series of a source that the object names: they wait for their last
// write, for the first read of an earlier process's object, or for the end of a doubt.
func (r *roster) ending() (out []*series) {
	for x := r.own.first; x != nil; x = x.next {
		s := x.owner
		if s.listed && !s.restarts() {
			out = append(out, s)
		}
	}
	return out
}

// keeps reports whether the object names something that a restart would continue or end.
func (r *roster) keeps() bool { return r.listed+r.left.n > 0 }

// drop lets the object no longer name a series: a later process would take it for one that goes on.
func (r *roster) drop(path string, now time.Time) {
	if r.keepsChanges() {
		r.removed = append(r.removed, path)
	} else {
		r.becomeDoubtful()
	}
	r.want(now.Add(rosterRemovals))
}

// event is the roster's object, without its contents.
func (r *roster) event(namespace string, now time.Time) *eventsv1.Event {
	note := r.src.controller + " notes here which of its event series a restart continues"
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       namespace,
			Name:            r.name,
			ResourceVersion: r.version,
		},
		EventTime:           metav1.NewMicroTime(now),
		Type:                corev1.EventTypeNormal,
		Reason:              "EventSeriesKept",
		Action:              "Record",
		ReportingController: r.src.controller,
		ReportingInstance:   r.src.instance,
		Regarding: corev1.ObjectReference{
			Kind:      "EventRecorder",
			Namespace: namespace,
			Name:      r.src.instance,
		},
		Note: cut(note, maxNote),
	}
}

// rosterWrite is the content of a write of a roster.
type rosterWrite struct {
	// whole: the lines replace all others.
	whole bool
	// exact: the lines are the last of a process that ends in order.
	exact bool
	lines []string
	// number is that of the change, and changes those that the whole replaces.
	number, changes int
	// tag and size are of the annotation made.
	tag  string
	size int
}

// write returns the next write: the changes, or the whole, of which series yields the lines.
func (r *roster) write(exact bool, lines func() []string) *rosterWrite {
	w := &rosterWrite{exact: exact}
	for _, path := range r.removed { // first: an evicted series may go on, and be among those added
		w.lines = append(w.lines, "-"+path)
	}
	for _, s := range r.added {
		if !s.listed && s.restarts() {
			r.list(s)
			w.lines = append(w.lines, s.line())
		}
	}
	r.added = nil
	r.removed = nil
	much := r.changes >= maxChanges || r.changed > r.size
	w.whole = exact || r.tag == "" || much || r.size+r.changed+longest(w.lines) > maxAnnotated
	if w.whole {
		w.changes = r.changes
		w.lines = lines()
	} else {
		r.changes++
		w.number = r.changes
	}
	r.entries = r.entries || len(w.lines) > 0
	return w
}

// apply packs a write into an event's annotations, and returns those to be deleted. It reads
// nothing that changes: no lock is held.
func (w *rosterWrite) apply(e *eventsv1.Event) (gone []string) {
	lines := w.lines
	packed := packLines(lines)
	for len(packed) > maxRoster {
		lines = lines[:len(lines)*3/4]
		packed = packLines(lines)
	}
	// The time makes each write a change: a patch without a change does not prolong the object's
	// life.
	w.tag = e.EventTime.UTC().Format(time.RFC3339Nano)
	key := AnnotationRoster
	mode := "live"
	switch {
	case w.exact:
		mode = "end"
	case !w.whole:
		key = changeKey(w.number)
	}
	text := w.tag + " " + mode + " " + packed
	w.size = len(text)
	e.Annotations = map[string]string{key: text}
	for i := range w.changes {
		gone = append(gone, changeKey(i+1))
	}
	return gone
}

func changeKey(number int) string { return AnnotationRoster + "." + strconv.Itoa(number) }

// wrote books a successful write.
func (r *roster) wrote(w *rosterWrite, stored *eventsv1.Event) {
	r.becomeStored(stored.ResourceVersion)
	if w.whole {
		r.entries = len(w.lines) > 0
		r.tag = w.tag
		r.size = w.size
		r.changes = 0
		r.changed = 0
		return
	}
	r.changed += w.size
}

// reread takes in the version to be patched, and what a whole replaces.
func (r *roster) reread(e *eventsv1.Event) {
	r.becomeStored(e.ResourceVersion)
	r.changes = 0
	all, _ := readRoster(e, &r.changes)
	r.entries = len(all) > 0
}

// take takes in what an earlier process has left.
func (r *roster) take(e *eventsv1.Event, now time.Time) {
	r.readAt = now
	all, exact := readRoster(e, &r.changes)
	r.exact = exact
	r.entries = len(all) > 0
	r.left = leftovers{}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		r.left.add(all[path])
	}
}

// claim returns the object of an earlier process that a new series may continue, if there is one.
func (r *roster) claim(s *series) (l leftover, ok bool) {
	l, ok = r.left.latest(s.id.hint())
	if !ok || s.inflight || !s.st.unwritten() {
		return l, false
	}
	own := eventName(s.key.regarding.Name, &s.id, s.st.begun)
	begins := s.content.namespace + "/" + own[:len(own)-nameSuffix]
	if !strings.HasPrefix(l.path, begins) {
		return l, false
	}
	r.left.takeOf(s.id.hint())
	return l, true
}

// nextLeft returns an object that no series has continued within the threshold, once its turn has
// come; or the time until then. The turns are spread over minutes.
func (r *roster) nextLeft(now time.Time, after time.Duration) (l leftover, wait time.Duration) {
	if r.left.n == 0 {
		return l, forever
	}
	from := r.readAt.Add(after)
	if r.endAt.Before(from) {
		r.endAt = from
	}
	wait = r.endAt.Sub(now)
	if wait > 0 {
		return l, wait
	}
	rest := max(r.readAt.Add(after+leftOver).Sub(now), 0)
	r.endAt = now.Add(rest / time.Duration(r.left.n))
	return r.left.takeFirst(), 0
}

// same reports whether a stored event is that of a series.
func (r *roster) same(e *eventsv1.Event, s *series) bool {
	regarding := e.Regarding
	regarding.ResourceVersion = ""
	own := e.ReportingController == r.src.controller && e.ReportingInstance == r.src.instance
	if !own || e.Annotations[AnnotationRoster] != "" {
		return false
	}
	return s.left || regarding == s.key.regarding && e.Reason == s.key.reason && e.Type == s.key.eventType
}

// line is a series in a roster: path, count, last time, version, and a mark for a lower bound.
func (s *series) line() string {
	return leftover{path: s.path(), found: found{
		count:   max(s.st.stored, 1),
		last:    s.st.last,
		loose:   s.st.loose,
		version: s.st.version,
	}}.line()
}

func packLines(lines []string) string {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	_, _ = io.WriteString(w, strings.Join(lines, "\n")) // a buffer takes everything
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// longest returns the most bytes that an annotation with lines may have.
func longest(lines []string) int {
	const frame = 128 // the key, the time and the mode
	n := 0
	for _, line := range lines {
		n += len(line) + 1
	}
	return frame + base64.StdEncoding.EncodedLen(n+n/64+64) // what cannot be compressed grows a little
}

// unpackLines returns the lines in an annotation, nil for any not made by packLines.
func unpackLines(packed string) []string {
	in := flate.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	text, err := io.ReadAll(io.LimitReader(in, maxNames))
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}
