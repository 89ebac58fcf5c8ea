// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/reader"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// maxWaiting bounds the entries waiting for the printer: the stream must never wait for a terminal.
	maxWaiting = 10_000
	// hangs is how long a call to the runtime may take before the user is warned.
	hangs = 3 * time.Second
)

// tap stands between a generator and its client, sees the stream's messages, the reads under way,
// and the generator's reports, and keeps them for the printer.
type tap struct {
	wantRaw bool
	// contested: the runtime gives each event to a single client.
	contested bool
	// reader makes the client's connections; nil: the client does.
	reader *reader.Supervisor
	// listing is held during a list; nil if nobody else lists.
	listing turn

	mu    sync.Mutex // owns the fields below
	judge *stream.Judge
	// queue is for the printer: events, reports, hanging calls, and texts. Lost counts the entries
	// without room.
	queue   []any
	lost    int
	calls   []*call        // under way, oldest first
	hung    map[string]int // hung calls, past and present, by kind
	readErr int
	took    map[string]*bench.Histogram // how long reads took, by kind
	listErr error
	unknown int          // items read in the state UNKNOWN
	worth   doctor.Worth // of the last examination
	track   *track
	// evidence is for the judge.
	evidence evidence
	// listed: a list has ended, failed or not.
	listed bool
	// answered is when the runtime last answered a call or sent an event.
	answered time.Time
	// closing: the watch ends, at closedAt; later ends are intended.
	closing  bool
	closedAt time.Time
	// owed is the begin of the list that had no answer then, zero without one.
	owed time.Time
	// own counts the ends of the stream by this watch, for the runtime's sake.
	own int
	// ownErrors counts failed reads while this watch did not run, by kind; doubtful are the failures
	// possibly caused by the end of a reader.
	ownErrors map[string]int
	doubtful  []failure
}

// call is a read of the runtime under way.
type call struct {
	kind  string
	pod   string
	begun time.Time // later by the times in which this watch did not run
	told  bool
	// frozen: this watch did not run meanwhile.
	frozen bool
}

// failure is a failed read.
type failure struct {
	kind         string
	begun, ended time.Time
}

// mostDoubtful bounds the failures kept for a comparison with the ends of readers.
const mostDoubtful = 1000

// Kinds of reads.
const (
	listCall = "list of the runtime"
	readCall = "read of a pod"
)

func newTap(wantRaw bool) *tap {
	return &tap{
		wantRaw:   wantRaw,
		judge:     stream.New(0),
		evidence:  newEvidence(),
		hung:      make(map[string]int),
		ownErrors: make(map[string]int),
		track: &track{
			begun:   time.Now(),
			good:    thinned[bench.Point]{most: maxPoints},
			flawed:  thinned[bench.Point]{most: maxPoints},
			samples: thinned[bench.Sample]{most: maxSamples},
		},
		took: map[string]*bench.Histogram{listCall: new(bench.Histogram), readCall: new(bench.Histogram)},
	}
}

// message takes a message of the stream; see cri.Config.OnEvent.
func (t *tap) message(raw []byte) {
	at, event, ok := reader.Received(raw)
	if !ok {
		at = time.Now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run(time.Now())
	t.answered = time.Now()
	e := t.judge.Event(at, event)
	t.track.event(e)
	if t.wantRaw {
		t.print(e)
	}
}

// print queues something for the printer. The caller holds the mutex.
func (t *tap) print(what any) {
	if len(t.queue) < maxWaiting {
		t.queue = append(t.queue, what)
	} else {
		t.lost++
	}
}

// Record implements [pleg.Recorder].
func (t *tap) Record(r pleg.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print(r)
}

// take returns the queue, and begins another.
func (t *tap) take(now time.Time) []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run(now)
	queue := t.queue
	lost := t.lost
	t.queue = nil
	t.lost = 0
	for _, c := range t.calls {
		if !c.told && now.Sub(c.begun) >= hangs {
			c.told = true
			t.hung[c.kind]++
			queue = append(queue, *c)
		}
	}
	if lost > 0 {
		queue = append(
			queue,
			bench.Count(
				lost,
				"message or report was",
				"messages and reports were",
			)+" not printed: the output is too slow for them",
		)
	}
	return queue
}

// begin enters a read; its end is to be called with the read's result.
func (t *tap) begin(kind, pod string) (end func(error, ...pleg.Pod)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := time.Now()
	c := &call{kind: kind, pod: pod, begun: begun}
	t.calls = append(t.calls, c)
	return func(err error, shown ...pleg.Pod) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.run(time.Now())
		t.calls = slices.DeleteFunc(t.calls, func(of *call) bool { return of == c })
		if answer(err) {
			t.answered = time.Now()
		}
		if err == nil || !t.closing { // else the watch has ended the call, and nothing is measured
			t.took[kind].Record(time.Since(c.begun))
		}
		if kind == listCall {
			t.listed = true
		}
		if err != nil && !t.closing {
			if c.frozen {
				t.ownErrors[kind]++
			} else if len(t.doubtful) < mostDoubtful {
				t.doubtful = append(t.doubtful, failure{kind, begun, time.Now()})
			}
			if kind == listCall {
				t.listErr = err
				t.evidence.failed()
			} else {
				t.readErr++
			}
		}
		for _, p := range shown {
			for _, i := range p.Items {
				if i.Phase == pleg.PhaseUnknown {
					t.unknown++
				}
			}
		}
	}
}

// ownFailures counts this watch's own failures of a kind of read: the watch did not run, or ended
// its reader with the connection of the read. The caller holds the mutex.
func (t *tap) ownFailures(kind string, ends []time.Time) int {
	n := t.ownErrors[kind]
	for _, f := range t.doubtful {
		by := func(end time.Time) bool { return !end.Before(f.begun) && !end.After(f.ended) }
		if f.kind == kind && slices.ContainsFunc(ends, by) {
			n++
		}
	}
	return n
}

// sample enters the generator's numbers into the track.
func (t *tap) sample(now time.Time, st pleg.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.track.sample(now, st, t.readErr)
}

// hasListed reports whether a list has ended, failed or not.
func (t *tap) hasListed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listed
}

// close marks later ends as intended, and notes the list that has no answer yet.
func (t *tap) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	t.closedAt = time.Now()
	t.run(t.closedAt) // a stop of this process is no time that a call has taken
	for _, c := range t.calls {
		if c.kind == listCall {
			t.owed = c.begun
		}
	}
}

// answer reports whether the end of a call is a word of the runtime's, and not the end of a wait or
// of a connection.
func answer(err error) bool {
	if err == nil {
		return true
	}
	st, ok := status.FromError(err)
	silent := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable}
	return ok && !slices.Contains(silent, st.Code())
}

func (t *tap) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge.Opened(time.Now())
}

func (t *tap) ended(err error) {
	own := ""
	if t.reader != nil {
		own = t.reader.Why(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return
	}
	if own != "" { // the runtime is not to blame
		t.own++
		t.judge.Left(time.Now())
		t.print("this watch left the event stream: " + own)
		return
	}
	reason := printable.Text(why(err))
	t.judge.Ended(time.Now(), reason)
	t.print("the event stream ended: " + reason)
}

// why says why a stream ended.
func why(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "EOF, an orderly end by the runtime"
	case errors.Is(err, context.Canceled):
		return "closed by this PLEG, to open it anew"
	case errors.Is(err, cri.ErrMalformed):
		return "a message that is no event"
	}
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) && !errors.Is(err, cri.ErrMessageSize) { // else the client names the remedy
		st := answer.GRPCStatus()
		return st.Code().String() + ": " + st.Message()
	}
	return err.Error()
}

// source is a client with its reads observed by a tap.
type source struct {
	*cri.Client
	tap *tap
}

var _ pleg.Updater[cri.PodStatus] = source{}

func (s source) List(ctx context.Context, since pleg.Revision) (pleg.Listing, error) {
	defer s.tap.listing.take(ctx)()
	begun := time.Now()
	end := s.tap.begin(listCall, "")
	l, err := s.Client.List(ctx, since)
	end(err, l.Pods...)
	if err == nil {
		s.tap.list(begun, since, l, s.Client.Stats())
	}
	return l, err
}

func (s source) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	end := s.tap.begin(readCall, string(uid))
	p, err := s.Client.ListPod(ctx, uid)
	end(err, p)
	return p, err
}

func (s source) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[cri.PodStatus], error) {
	end := s.tap.begin(readCall, string(pod.UID))
	i, err := s.Client.Inspect(ctx, pod)
	end(err, i.Pod)
	s.tap.read(pod.UID, i, err)
	return i, err
}

func (s source) Update(
	ctx context.Context,
	pod pleg.Pod,
	prev *cri.PodStatus,
) (pleg.Inspection[cri.PodStatus], error) {
	end := s.tap.begin(readCall, string(pod.UID))
	i, err := s.Client.Update(ctx, pod, prev)
	end(err, i.Pod)
	s.tap.read(pod.UID, i, err)
	return i, err
}

// listener is a client with the begin and end of its stream observed by a tap.
type listener struct {
	client *cri.Client
	tap    *tap
}

func (l listener) Events(ctx context.Context) iter.Seq2[pleg.Claim[cri.PodStatus], error] {
	return func(yield func(pleg.Claim[cri.PodStatus], error) bool) {
		l.tap.opened()
		for claim, err := range l.client.Events(ctx) {
			if err != nil {
				l.tap.ended(err)
			}
			if !yield(claim, err) {
				return
			}
		}
	}
}

const (
	// maxPoints and maxSamples bound the stored part of a long watch: beyond them every second entry
	// is dropped, also of later entries.
	maxPoints, maxSamples = 100_000, 4_000
	// sampleEvery is how often a short watch samples.
	sampleEvery = 500 * time.Millisecond
)

// thinned is a list of every nth added value, so its length never exceeds most.
type thinned[T any] struct {
	list        []T
	most, every int
	n           int
}

// add keeps a value, unless its turn is to be left out.
func (t *thinned[T]) add(v T) {
	t.every = max(t.every, 1)
	t.n++
	if (t.n-1)%t.every != 0 {
		return
	}
	if len(t.list) >= t.most {
		half := t.list[:0]
		for i := 0; i < len(t.list); i += 2 {
			half = append(half, t.list[i])
		}
		clear(t.list[len(half):])
		t.list = half
		t.every *= 2
	}
	t.list = append(t.list, v)
}

// track is the record of a watch over time. The owner of the enclosing value owns the track.
type track struct {
	begun        time.Time
	good, flawed thinned[bench.Point]
	samples      thinned[bench.Sample]
	sampled      time.Time
	state        pleg.StreamState
}

// event enters a message of the stream with a stamp.
func (t *track) event(e stream.Event) {
	if e.AgeSeconds == nil {
		return
	}
	points := &t.good
	if len(e.Flaws) > 0 {
		points = &t.flawed
	}
	points.add(bench.Point{e.Received.Sub(t.begun).Seconds(), *e.AgeSeconds})
}

// sample enters the present knowledge, when due or after a change of the stream's state.
func (t *track) sample(now time.Time, st pleg.Stats, readErrors int) {
	if !t.sampled.IsZero() && st.State == t.state && now.Sub(t.sampled) < sampleEvery {
		return
	}
	t.sampled = now
	t.state = st.State
	t.samples.add(bench.Sample{
		At:            now.Sub(t.begun).Seconds(),
		State:         st.State.String(),
		Lists:         st.Relists,
		Reads:         st.Inspections,
		Received:      st.Claims,
		Missed:        st.Missed + st.Unheard,
		Failed:        st.RelistErrors + readErrors,
		PeriodSeconds: st.RelistPeriod.Seconds(),
	})
}

// timeline returns the kept values.
func (t *track) timeline() []bench.Series {
	list := []bench.Series{{Name: "events", Points: t.good.list, Samples: t.samples.list}}
	if len(t.flawed.list) > 0 {
		list = append(list, bench.Series{Name: "events with flaws", Points: t.flawed.list})
	}
	return list
}
