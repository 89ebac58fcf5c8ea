// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var (
	randomSeeds = flag.Int("events.seeds", fewer(50, 6), "histories of TestRandomHistories")
	randomSeed  = flag.Uint64("events.seed", 0, "run this history only")
)

// TestRandomHistories drives whole recorders through random loads, outages, lost answers,
// evictions, pauses and restarts. In the end every occurrence is in exactly one stored count, or
// was dropped and counted.
func TestRandomHistories(t *testing.T) {
	if *randomSeed != 0 {
		randomHistory(t, *randomSeed)
		return
	}
	for seed := range uint64(*randomSeeds) {
		randomHistory(t, seed+1)
	}
}

// randomWeather makes what the server of a random history does while it is not healthy.
type randomWeather struct {
	healthy atomic.Bool
	mu      sync.Mutex // guards draws, of which the writers draw
	draws   *rand.Rand
}

// randomTroubles are answers of a server that is not healthy. It carries out as many calls as it
// answers so.
var randomTroubles = []error{
	errAway,
	status(429, metav1.StatusReasonTooManyRequests, 0),
	status(429, metav1.StatusReasonTooManyRequests, 2),
	status(500, metav1.StatusReasonInternalError, 0),
	status(503, metav1.StatusReasonServiceUnavailable, 0),
	&eventstest.LateError{Err: errReset},
}

func (w *randomWeather) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draws.IntN(n)
}

// fault is the [eventstest.Fault] of the weather.
func (w *randomWeather) fault(ctx context.Context, c eventstest.Call) error {
	if w.healthy.Load() {
		return nil
	}
	i := w.draw(2 * len(randomTroubles))
	if i >= len(randomTroubles) {
		return slowly(time.Duration(w.draw(2000))*time.Millisecond)(ctx, c)
	}
	err := randomTroubles[i]
	var late *eventstest.LateError
	if errors.As(err, &late) {
		return w.late(ctx, late.Err)
	}
	return err
}

// late breaks a call off, or lets its time end, and carries it out within two minutes.
func (w *randomWeather) late(ctx context.Context, err error) error {
	if w.draw(2) == 0 {
		<-ctx.Done()
		err = ctx.Err()
	}
	return &eventstest.LateError{
		After: time.Duration(w.draw(120_000)) * time.Millisecond,
		Err:   err,
	}
}

// after is the [eventstest.AfterFault] of the weather.
func (w *randomWeather) after(eventstest.Call) error {
	if !w.healthy.Load() && w.draw(4) == 0 {
		return errReset
	}
	return nil
}

// history is a random history: processes of an instance, one after the other, and their server.
type history struct {
	*rig
	weather *randomWeather
	rnd     *rand.Rand
	// emitted and dropped are those of the processes that have ended.
	emitted, dropped int64
}

func randomHistory(t *testing.T, seed uint64) {
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := eventstest.NewServer()
			server.SetTTL(1000 * time.Hour) // so that the sum in the end is of everything
			h := &history{
				weather: &randomWeather{draws: rand.New(rand.NewPCG(seed, 7))},
				rnd:     rand.New(rand.NewPCG(seed, 42)),
			}
			h.weather.healthy.Store(true)
			server.SetFault(h.weather.fault)
			server.SetAfterFault(h.weather.after)
			h.begin(t, server)
			for range 20 + h.rnd.IntN(60) {
				h.step()
				h.checkRosters()
			}
			h.end()
			pass(2 * time.Minute) // late calls end
			if count, _ := stored(server); count != h.emitted-h.dropped {
				t.Fatalf("emitted %d, dropped %d, stored %d: %s", h.emitted, h.dropped, count, brief(server.Events()))
			}
		})
	})
}

// begin starts a process.
func (h *history) begin(t *testing.T, server *eventstest.Server) {
	h.rig = newRig(t, server, func(o *Options) {
		o.Writers = 1 + h.rnd.IntN(3)
		o.MaxSeries = []int{2, 5, 100}[h.rnd.IntN(3)]
		o.MaxQueue = []int{4, 100}[h.rnd.IntN(2)]
		o.Burst = []int{-1, 3}[h.rnd.IntN(2)]
		o.BackoffMax = 20 * time.Second
		o.NoRoster = h.rnd.IntN(2) == 0
	})
}

// step is a change of the weather, a pause, a restart, or a few occurrences.
func (h *history) step() {
	switch h.rnd.IntN(12) {
	case 0:
		h.weather.healthy.Store(!h.weather.healthy.Load())
	case 1:
		pass(time.Duration(1+h.rnd.IntN(20)) * time.Minute)
	case 2:
		h.end()
		h.begin(h.t, h.server)
	default:
		h.pod(fmt.Sprint("p", h.rnd.IntN(8)), 1+h.rnd.IntN(5))
		pass(time.Duration(h.rnd.IntN(90_000)) * time.Millisecond)
	}
}

// end ends the process in order, on a healthy server, and checks its books.
func (h *history) end() {
	h.t.Helper()
	h.weather.healthy.Store(true)
	h.rig.end(time.Hour)
	s := h.Stats()
	h.emitted += s.Emitted
	h.dropped += sum(s.Dropped)
	if s.Emitted != s.Acknowledged+s.Unsent+sum(s.Dropped) || s.Unsent != 0 {
		h.t.Fatalf("books: %+v", s)
	}
}

// checkRosters compares what the rosters count with what is in memory.
func (r *rig) checkRosters() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := 0
	for _, roster := range r.core.rosters {
		listed := 0
		for x := roster.own.first; x != nil; x = x.next {
			if x.owner.listed {
				listed++
			}
		}
		if listed != roster.listed {
			r.t.Fatalf("%d series are listed, counted %d", listed, roster.listed)
		}
		all += roster.own.n
		r.checkStored(roster)
	}
	if all != r.core.table.all {
		r.t.Fatalf("the sources have %d series, the table %d", all, r.core.table.all)
	}
}

// checkStored compares a roster's object with what the process believes of it. A process in doubt
// believes nothing, and writes the whole.
func (r *rig) checkStored(roster *roster) {
	r.t.Helper()
	if roster.busy || roster.tag == "" {
		return
	}
	all := r.server.Events()
	i := slices.IndexFunc(all, func(e eventsv1.Event) bool { return e.Name == roster.name })
	if i < 0 {
		r.t.Fatal("there is no roster")
	}
	changes := 0
	says, _ := readRoster(&all[i], &changes)
	known := map[string]bool{}
	for _, path := range roster.removed {
		known[path] = true
	}
	for l := range roster.left.all() {
		known[l.path] = true
	}
	for x := roster.own.first; x != nil; x = x.next {
		path := x.owner.path()
		known[path] = true
		if _, named := says[path]; x.owner.listed && !named {
			r.t.Fatalf("the roster does not name %s", path)
		}
	}
	for path := range says {
		if !known[path] {
			r.t.Fatalf("the roster names %s, which has ended", path)
		}
	}
}

func sum(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// world is the object of a series, with the version of its last write: a slow and obvious server.
type world struct {
	object  *found
	version int
	// delayed are the calls that take effect later, after the client gave them up.
	delayed []delayed
	// back: a write has taken a count or a time back.
	back bool
}

// delayed is a call on its way, with the beginning of its series.
type delayed struct {
	call  call
	begun time.Time
}

// carry does a call and returns the verdict.
func (w *world) carry(d delayed) verdict {
	c := d.call
	switch {
	case c.kind == callCreate && w.object != nil:
		return verdictConflict
	case c.kind != callCreate && w.object == nil:
		return verdictMissing
	case c.kind == callRead:
		return verdictOK
	case c.kind == callPatch && c.version != w.object.version:
		return verdictConflict
	}
	w.write(found{
		count: c.count,
		begun: d.begun,
		last:  c.last,
		state: c.state,
		loose: c.loose,
	})
	return verdictOK
}

// write stores a content as another version.
func (w *world) write(f found) {
	if w.object != nil {
		w.back = w.back || f.count < w.object.count || f.last.Before(w.object.last)
	}
	w.version++
	f.version = string(rune(w.version))
	w.object = &f
}

// land lets a delayed call take effect, whatever its turn.
func (w *world) land(i int) {
	d := w.delayed[i]
	w.delayed = slices.Delete(w.delayed, i, i+1)
	w.carry(d)
}

// encounter is a series with its world, and with what both should count.
type encounter struct {
	t      fatalist
	world  world
	series state
	now    time.Time
	// total are the occurrences, own those of the series, and acked the acknowledged ones of these.
	total, own, acked int64
}

var encounterOptions = Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}

// outcome is what happens to a call.
type outcome string

const (
	answered   outcome = "send" // and carried out
	lostAnswer outcome = "lost" // carried out
	lostCall   outcome = "fail" // known never to arrive
	lateCall   outcome = "late" // carried out after the client gave up
)

// send makes the call that the series owes.
func (e *encounter) send(as outcome) {
	s := &e.series
	c := s.next(e.now, &encounterOptions)
	if c.kind == callNone {
		return
	}
	ends := c.state == stateFinished || c.state == stateUnknown
	if ends && c.count < s.count {
		e.t.Fatalf("the end is told with %d of %d", c.count, s.count)
	}
	d := delayed{c, s.begun}
	switch as {
	case lostCall:
		return
	case lostAnswer:
		e.world.carry(d)
		s.doubtful(c)
		return
	case lateCall:
		e.world.delayed = append(e.world.delayed, d)
		s.doubtful(c)
		return
	}
	switch e.world.carry(d) {
	case verdictOK:
		e.booked(c)
	case verdictMissing:
		s.becomeAbsent()
	case verdictConflict:
		s.becomeUnread()
	}
}

// booked books a call that was carried out and answered.
func (e *encounter) booked(c call) {
	s := &e.series
	if c.kind == callRead {
		e.acked += s.merge(*e.world.object, e.now)
		return
	}
	w := written{
		call:    c,
		version: e.world.object.version,
		now:     e.now,
		jitter:  0.5,
	}
	e.acked += s.done(w, &encounterOptions)
}

// emit is an occurrence.
func (e *encounter) emit() {
	if e.series.occur(e.now, &encounterOptions) {
		e.total++
		e.own++
	}
}

// other is a write of another process, which rebases as the series does.
func (e *encounter) other(n int64) {
	if e.world.object == nil || e.series.sent != 0 {
		return
	}
	f := *e.world.object
	f.count += n
	f.last = e.now
	f.state = stateOngoing
	e.world.write(f)
	e.total += n
}

// expire lets the object of a series that goes on go: it has expired, or somebody has deleted it.
func (e *encounter) expire() {
	if e.series.phase != phaseDone {
		e.world.object = nil
	}
}

// end ends the series, with calls of which all are answered.
func (e *encounter) end() {
	e.series.becomeSuspended()
	for i := 0; e.series.owes(e.now); i++ {
		if i > 10 {
			e.t.Fatalf("it does not end: %+v", e.series)
		}
		e.send(answered)
	}
}

// step does what a word says. draw returns a number of a range.
func (e *encounter) step(word string, draw func(least, most int, what string) int) {
	switch word {
	case "emit":
		e.emit()
	case "wait":
		e.now = e.now.Add(time.Duration(draw(1, 200, "s")) * time.Second)
	case "land":
		if n := len(e.world.delayed); n > 0 {
			e.world.land(draw(0, n-1, "which"))
		}
	case "expire":
		e.expire()
	case "other":
		e.other(int64(draw(1, 3, "n")))
	default:
		e.send(outcome(word))
	}
	e.now = e.now.Add(time.Millisecond)
}

// check ends the series, and compares its object with what both processes have counted.
func (e *encounter) check(expires bool) {
	e.t.Helper()
	e.end()
	gone := expires && e.world.object == nil // with its count, or with its last word
	for len(e.world.delayed) > 0 {
		e.world.land(0)
	}
	object := e.world.object
	if object != nil && object.loose && object.count <= e.total { // a lost answer and another process at once
		return
	}
	if !gone && (object == nil || object.count != e.total) {
		e.t.Fatalf("%d occurrences, stored %+v, state %+v", e.total, object, e.series)
	}
	if e.world.back {
		e.t.Fatalf("a count or a time went back, stored %+v", object)
	}
	if e.acked != e.own {
		e.t.Fatalf("%d own occurrences, %d acknowledged: %+v", e.own, e.acked, e.series)
	}
}

// fatalist is a test that can be ended: of this package, or of rapid.
type fatalist interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newEncounter(t fatalist) *encounter {
	now := time.Unix(1_000_000, 0)
	return &encounter{
		t:      t,
		series: begin(now),
		now:    now,
		total:  1,
		own:    1,
	}
}

// TestSeriesAgainstEverything drives a series and another process with the same object through
// random occurrences, pauses, failures, lost answers, calls that take effect after the client gave
// them up, expiry and an end. The object must count every occurrence of both exactly once.
func TestSeriesAgainstEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newEncounter(t)
		expires := rapid.Bool().Draw(t, "expires") // an object that goes takes what the other process wrote with it
		do := []string{"emit", "emit", "emit", "send", "send", "lost", "fail", "late", "land", "wait"}
		if expires {
			do = append(do, "expire")
		} else {
			do = append(do, "other")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			word := rapid.SampledFrom(do).Draw(t, "do")
			e.step(word, func(least, most int, what string) int {
				return rapid.IntRange(least, most).Draw(t, what)
			})
		}
		e.check(expires)
	})
}

// TestLateCreateOfAGoneObject: the object goes twice while creates are on their way. What the last
// of them brings back is this process's own, and counts once.
func TestLateCreateOfAGoneObject(t *testing.T) {
	e := newEncounter(t)
	for word := range strings.FieldsSeq("late send land emit late send expire send land late send expire land") {
		e.step(word, func(int, int, string) int { return 0 })
	}
	e.check(true)
}
