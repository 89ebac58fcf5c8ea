// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestMain collects garbage at five times the live heap, which is small: a quarter less CPU.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a node and its API server, in a bubble of virtual time. It outlives the agents on it.
type world struct {
	t       testing.TB
	runtime *fakeruntime.Runtime
	listen  *bufconn.Listener
	server  *eventstest.Server
	down    atomic.Bool  // the runtime, whose socket refuses connections then
	away    atomic.Bool  // the API server
	sick    atomic.Value // the namespace, a string, of which it takes no Event
	ledger  string
	burst   int // Burst of the agents' recorders
}

func newWorld(t testing.TB, config fakeruntime.Config) *world {
	w := &world{
		t:       t,
		runtime: must(fakeruntime.New(config))(t),
		listen:  bufconn.Listen(1 << 16),
		server:  eventstest.NewServer(),
		ledger:  filepath.Join(t.TempDir(), "reported.json"),
		burst:   -1,
	}
	w.server.SetTTL(1000 * time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = w.runtime.Serve(ctx, w.listen) })
	t.Cleanup(func() {
		cancel()
		w.runtime.Close()
		served.Wait()
	})
	return w
}

func (w *world) dial(ctx context.Context) (net.Conn, error) {
	if w.down.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return w.listen.DialContext(ctx)
}

// deleteNamespace has the API server refuse the Events of a namespace, which is being deleted.
func (w *world) deleteNamespace(name string) {
	w.server.SetFault(func(_ context.Context, c eventstest.Call) error {
		if c.Namespace != name {
			return nil
		}
		err := apierrors.NewForbidden(eventsv1.Resource("events"), c.Name, errors.New("it is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	})
}

// report is an end as the agents of a world handed it to their recorder, or left it out.
type report struct {
	End
	outcome Outcome
	at      time.Time
}

// agent is a process on the node: client, generator, recorder and reporter.
type agent struct {
	w           *world
	client      *cri.Client
	generator   *pleg.Generator[cri.PodStatus]
	broadcaster *events.Broadcaster
	reporter    *Reporter[cri.PodStatus]
	sink        *Sink
	reports     []report                  // owned by the reporter's goroutine while it runs
	tookAt      atomic.Pointer[time.Time] // when the API server last took an Event about an end
	before      int64                     // in the ledger when it started
	dead        atomic.Bool
	saved       bool
	cancel      context.CancelFunc
	running     sync.WaitGroup
}

var errAway = errors.New("the API server is away")

// sink is the API server for one agent: a killed agent reaches nothing.
type sink struct {
	*eventstest.Sink[eventsv1.Event]
	a *agent
}

func (s *sink) gate(e *eventsv1.Event) error {
	if s.a.dead.Load() || s.a.w.away.Load() || s.a.w.sick.Load() == e.Namespace {
		return errAway
	}
	return nil
}

func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if err := s.gate(e); err != nil {
		return nil, err
	}
	return s.took(e)(s.Sink.Create(ctx, e))
}

func (s *sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if err := s.gate(e); err != nil {
		return nil, err
	}
	return s.took(e)(s.Sink.Patch(ctx, e, data))
}

// took notes the time of an answer.
func (s *sink) took(e *eventsv1.Event) func(*eventsv1.Event, error) (*eventsv1.Event, error) {
	return func(stored *eventsv1.Event, err error) (*eventsv1.Event, error) {
		if err == nil && (e.Regarding.Kind == "Pod" || e.Regarding.Kind == "Namespace") {
			now := time.Now()
			s.a.tookAt.Store(&now)
		}
		return stored, err
	}
}

var _ clientevents.EventSink = (*sink)(nil)

// start starts an agent that reports all kinds of ends; change may change its configuration.
func (w *world) start(change func(*Config[cri.PodStatus])) *agent {
	t := w.t
	a := &agent{w: w, before: unsentIn(must(loadLedger(w.ledger, time.Now()))(t))}
	a.client = must(cri.New(cri.Config{
		Endpoint: "unix:///fake",
		Dialer:   w.dial,
	}))(t)
	statuses := cache.New(cri.EmptyStatus)
	a.generator = must(pleg.New(pleg.Config[cri.PodStatus]{
		Source: a.client, Stream: a.client, Cache: statuses, Merge: cri.KeepIPs, Seed: 1,
	}))(t)
	a.sink = NewSink(&sink{w.server.Sink(), a})
	a.broadcaster = must(events.New(events.Options{Sink: a.sink, Instance: "node", Burst: w.burst, MaxPerObject: -1}))(t)
	config := Config[cri.PodStatus]{
		Generator:     a.generator,
		Statuses:      statuses,
		View:          FromCRI,
		Exit:          a.client.Exit,
		Recorder:      a.broadcaster.NewSeriesRecorder(nil, "pleg-agent"),
		Sink:          a.sink,
		Unsent:        func() int64 { return a.broadcaster.Stats().Unsent },
		Path:          w.ledger,
		Choice:        Choice{Kinds: Kinds()},
		NamespaceRate: Rate{1000, 100000},
		NodeRate:      Rate{1000, 100000},
		Observe: func(e End, outcome Outcome) {
			if !a.dead.Load() {
				a.reports = append(a.reports, report{e, outcome, time.Now()})
			}
		},
	}
	if change != nil {
		change(&config)
	}
	a.reporter = must(New(config))(t)
	quiet := klog.NewContext(context.Background(), logr.Discard())
	ctx, cancel := context.WithCancel(quiet)
	a.cancel = cancel
	a.running.Go(func() { _ = a.broadcaster.Run(quiet) })
	a.running.Go(func() { _ = a.generator.Run(ctx) })
	a.running.Go(func() { _ = a.reporter.Run(ctx) })
	return a
}

// stop ends an agent in order, as SIGTERM does, and returns its reports.
func (a *agent) stop() []report {
	a.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for !a.reporterEnded() {
		time.Sleep(time.Millisecond)
	}
	var unsent *events.UnsentError
	occurrences := int64(0)
	if errors.As(a.broadcaster.ShutdownWithContext(ctx), &unsent) { // the server may be away
		occurrences = unsent.Occurrences
	}
	a.running.Wait()
	check(a.w.t, a.reporter.Save(occurrences))
	a.saved = true
	check(a.w.t, a.client.Close())
	return a.reports
}

func (a *agent) reporterEnded() bool {
	a.reporter.mu.Lock()
	defer a.reporter.mu.Unlock()
	return a.reporter.ended != nil || a.saved
}

// unsentIn returns the number of the ends in a ledger that the next process tells again.
func unsentIn(r record) int64 {
	n := int64(len(r.Unsent))
	for _, c := range r.Combined {
		n += c.Ends
	}
	return n
}

// kill ends an agent as kill -9 does: nothing that it does from now on has an effect. It returns
// the reports, the number of those of its last second that the server had not been sent, and the
// number of those that the server took in the last second and that the ledger still holds.
func (a *agent) kill() (reports []report, unsent, again int64) {
	killed := time.Now()
	content, err := os.ReadFile(a.w.ledger)
	a.dead.Store(true)
	synctest.Wait() // what the server has taken is answered
	a.sink.mu.Lock()
	left := max(0, a.before-int64(a.sink.handed)) // not told again yet: it has just started
	waiting := slices.Clone(a.sink.reports)
	tallies := make(map[eventKey]tally)
	for key, t := range a.sink.tallies {
		tallies[key] = tally{spells: slices.Clone(t.spells)}
	}
	a.sink.mu.Unlock()
	a.cancel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.broadcaster.ShutdownWithContext(ctx)
	a.running.Wait()
	a.reporter.unlock() // by the end of the process
	for _, r := range waiting {
		if !r.again && killed.Sub(r.at) < tick {
			unsent++
		}
	}
	for _, t := range tallies {
		for _, p := range t.spells {
			if !p.again && killed.Sub(p.first) < tick {
				unsent += p.ends
			}
		}
	}
	check(a.w.t, a.client.Close())
	if err != nil {
		_ = os.Remove(a.w.ledger)
		return a.reports, unsent, 0
	}
	check(a.w.t, os.WriteFile(a.w.ledger, content, 0o600))
	kept := must(loadLedger(a.w.ledger, killed))(a.w.t)
	for _, c := range kept.Combined {
		t := tallies[keyOfCombined(c.Namespace, c.Kind)]
		again += max(0, c.Ends-t.ends())
	}
	for _, e := range kept.Unsent {
		if !slices.ContainsFunc(waiting, func(r handed) bool { return r.end.ID == e.ID }) {
			again++
		}
	}
	again = max(0, again-left)
	took := a.tookAt.Load()
	if again > 0 && (took == nil || killed.Sub(*took) > tick) {
		a.w.t.Errorf("the ledger holds %d reports that the server took more than a second ago, by %v", again, took)
	}
	return a.reports, unsent, again
}
