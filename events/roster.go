// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
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
	rosterUnread rosterPhase = iota // read it first
	rosterAbsent                    // create it
	rosterStored                    // patch it
)

// roster lets a source find the series of its earlier processes. A roster is a single Event with a
// constant name, and holds the names of the series that go on or wait for their end. A node may
// write a roster and read a roster with an empty patch, but may neither list nor get Events.
// Guarded by the broadcaster's lock.
//
// A roster is written as a whole, and then as changes, each an annotation of its own: a change
// costs a line. A process that ends in order writes the whole with the exact counts, last times
// and versions; a killed one leaves names that may have counted on.
type roster struct {
	index uint32 // of the source
	src   source
	name  string // of the object
	phase rosterPhase
	// attempts counts the failures since the last answer.
	attempts int
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
	// entries: the object names series.
	entries bool
	// added are series stored since the last write, and removed the paths of those ended. Where the
	// whole comes next, neither is kept.
	added   []*series
	removed []string

	// left holds the objects left by an earlier process and not continued.
	left map[hint]leftover
	// older are those of which the hint is also that of a later one: nothing continues them.
	older []leftover
	// exact: that process ended in order.
	exact bool
	// readAt is when they were read, and endAt when the next of them is to be ended.
	readAt, endAt time.Time
}

// leftover is an object of an earlier process.
type leftover struct {
	path string // namespace/name
	found
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

func (r *roster) becomeStored() { r.phase = rosterStored }

func (r *roster) becomeAbsent() {
	r.phase = rosterAbsent
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
		s.listed = false
		r.drop(s.path(), now)
	}
}

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
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: r.name},
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
		if !s.listed && s.age.held() && s.st.continuing() {
			s.listed = true
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

// wrote books a successful write; another process's writes are overwritten by the next whole.
func (r *roster) wrote(w *rosterWrite, stored *eventsv1.Event) {
	r.becomeStored()
	r.entries = r.entries && !w.whole || len(w.lines) > 0
	if w.whole {
		r.tag = w.tag
		r.size = w.size
		r.changes = 0
		r.changed = 0
		return
	}
	r.changed += w.size
	if !strings.HasPrefix(stored.Annotations[AnnotationRoster], r.tag+" ") {
		r.becomeDoubtful()
	}
}

// take takes in what an earlier process has left.
func (r *roster) take(e *eventsv1.Event, now time.Time) {
	r.left = map[hint]leftover{}
	r.older = nil
	r.readAt = now
	all, exact := readRoster(e, &r.changes)
	r.exact = exact
	r.entries = len(all) > 0
	for _, l := range all {
		h, ok := hintOf(l.path)
		if !ok {
			continue
		}
		other, twice := r.left[h]
		if twice && bornOf(other.path).After(bornOf(l.path)) {
			l, other = other, l
		}
		if twice {
			r.older = append(r.older, other)
		}
		r.left[h] = l
	}
}

// remaining is how many objects of an earlier process are neither continued nor ended.
func (r *roster) remaining() int { return len(r.left) + len(r.older) }

// claim returns the object of an earlier process that a new series may continue, if there is one.
func (r *roster) claim(s *series) (l leftover, ok bool) {
	l, ok = r.left[s.id.hint()]
	if !ok || !s.st.unwritten() {
		return l, false
	}
	own := eventName(s.key.regarding.Name, &s.id, s.st.begun)
	begins := s.content.namespace + "/" + own[:len(own)-nameSuffix]
	if !strings.HasPrefix(l.path, begins) {
		return l, false
	}
	delete(r.left, s.id.hint())
	return l, true
}

// nextLeft returns an object that no series has continued within the threshold, once its turn has
// come; or the time until then. The turns are spread over minutes.
func (r *roster) nextLeft(now time.Time, after time.Duration) (l leftover, wait time.Duration) {
	if r.remaining() == 0 {
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
	r.endAt = now.Add(rest / time.Duration(r.remaining()))
	if last := len(r.older) - 1; last >= 0 {
		one := r.older[last]
		r.older = r.older[:last]
		return one, 0
	}
	for h, one := range r.left {
		delete(r.left, h)
		return one, 0
	}
	return l, forever
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
	return leftover{s.path(), found{
		count:   max(s.st.stored, 1),
		last:    s.st.last,
		loose:   s.st.loose,
		version: s.st.version,
	}}.line()
}

func (l leftover) line() string {
	last := strconv.FormatInt(l.last.UnixMilli(), 36)
	text := fmt.Sprintf("%s %d %s %s", l.path, l.count, last, cmp.Or(l.version, "-"))
	if l.loose {
		text += " ~"
	}
	return text
}

// parseLine reads a line of a roster. A line of an earlier version of this package is a path only.
func parseLine(line string) (l leftover, ok bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return l, false
	}
	l.path = fields[0]
	namespace, name, _ := strings.Cut(l.path, "/")
	if namespace == "" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return l, false
	}
	if len(fields) < 4 {
		return l, true
	}
	count, err := strconv.ParseInt(fields[1], 10, 64)
	last, bad := strconv.ParseInt(fields[2], 36, 64)
	if err != nil || bad != nil || count < 1 {
		return l, true // to be read
	}
	l.count = count
	l.last = time.UnixMilli(last)
	l.begun = bornOf(name)
	if fields[3] != "-" {
		l.version = fields[3]
	}
	l.loose = len(fields) > 4
	return l, true
}

// bornOf returns the time in a name, as made by eventName.
func bornOf(name string) time.Time {
	var suffix [12]byte
	n, err := hex.Decode(suffix[:], []byte(name[max(len(name)-2*len(suffix), 0):]))
	if err != nil || n != len(suffix) {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(suffix[:8])))
}

// hintOf returns the hint at the end of a name.
func hintOf(name string) (h hint, ok bool) {
	n, err := hex.Decode(h[:], []byte(name[max(len(name)-2*len(h), 0):]))
	return h, err == nil && n == len(h)
}

// readRoster returns the series named in a roster, and whether its writer ended in order. changes
// is set to the highest number of a change.
func readRoster(e *eventsv1.Event, changes *int) (all map[string]leftover, exact bool) {
	all = map[string]leftover{}
	for number := range maxChanges + 1 {
		key := AnnotationRoster
		if number > 0 {
			key = changeKey(number)
		}
		text, ok := e.Annotations[key]
		if !ok {
			continue
		}
		*changes = number
		_, rest, _ := strings.Cut(text, " ")
		mode, packed, modern := strings.Cut(rest, " ")
		if !modern {
			packed = rest
		}
		exact = modern && mode == "end"
		for _, line := range unpackLines(packed) {
			path, removed := strings.CutPrefix(line, "-")
			l, ok := parseLine(line)
			switch {
			case removed:
				delete(all, path)
			case ok:
				all[l.path] = l
			}
		}
	}
	return all, exact
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
