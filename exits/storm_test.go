// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"
	clientrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
	"github.com/evented-pleg/evented-pleg/pleg"
)

var (
	stormFor  = flag.Duration("storm", 5*time.Second, "length of the crash storm, in virtual time")
	stormRate = flag.Int("storm-rate", 500, "pods that end each second in the storm")
)

// stormPods is a generator of pods that are there for their ends. It answers a read at once.
type stormPods struct {
	statuses *cache.Cache[Pod]
	watch    chan pleg.Event
	mu       sync.Mutex // owns shown
	shown    map[cache.UID]*Pod
}

func (g *stormPods) Watch() <-chan pleg.Event { return g.watch }
func (g *stormPods) HasSynced() bool          { return true }
func (g *stormPods) RequestReinspect(uid cache.UID) {
	g.mu.Lock()
	pod := g.shown[uid]
	g.mu.Unlock()
	if pod != nil {
		g.statuses.Set(uid, pod, nil, time.Now().Add(time.Nanosecond))
	}
}

// end shows a pod whose only container has ended for the first time.
func (g *stormPods) end(namespace string, n int) { g.endAgain(namespace, n, 0) }

// endAgain shows a pod whose only container has ended after so many restarts.
func (g *stormPods) endAgain(namespace string, n, attempt int) {
	now := time.Now()
	g.show(namespace, n, pleg.ContainerDied, Container{
		ID:         fmt.Sprint("c", namespace, n, "-", attempt),
		Name:       "app",
		Attempt:    uint32(attempt),
		Phase:      pleg.PhaseExited,
		ExitCode:   1,
		Reason:     "Error",
		CreatedAt:  now,
		StartedAt:  now.Add(-time.Second),
		FinishedAt: now,
	})
}

// start shows a pod with two containers that run.
func (g *stormPods) start(namespace string, n int) {
	var both []Container
	for _, name := range []string{"app", "sidecar"} {
		both = append(both, Container{
			ID:        fmt.Sprint("c", namespace, n, "-", name),
			Name:      name,
			Phase:     pleg.PhaseRunning,
			CreatedAt: time.Now(),
			StartedAt: time.Now(),
		})
	}
	g.show(namespace, n, pleg.ContainerStarted, both...)
}

// show shows a pod with these containers, and tells of each.
func (g *stormPods) show(namespace string, n int, what pleg.EventType, containers ...Container) {
	uid := cache.UID(fmt.Sprint(namespace, n))
	now := time.Now()
	pod := &Pod{Ref: Ref{UID: uid, Namespace: namespace, Name: string(uid)}}
	pod.Containers = containers
	g.mu.Lock()
	g.shown[uid] = pod
	g.mu.Unlock()
	g.statuses.Set(uid, pod, nil, now)
	for _, x := range containers {
		g.watch <- pleg.Event{Pod: uid, Type: what, ID: x.ID, Seen: now}
	}
}

// remove removes the pod.
func (g *stormPods) remove(namespace string, n int) {
	uid := cache.UID(fmt.Sprint(namespace, n))
	g.mu.Lock()
	delete(g.shown, uid)
	g.mu.Unlock()
	g.statuses.Delete(uid, time.Now())
	g.statuses.Prune(time.Now())
	g.watch <- pleg.Event{Pod: uid, Type: pleg.ContainerRemoved, ID: fmt.Sprint("c", uid, "-0"), Seen: time.Now()}
}

// slowServer is an API server that takes 20 calls a second of a client, 100 at once, 10 ms each, as
// the limits of pleg-agent have it.
type slowServer struct {
	*eventstest.Server
	calls atomic.Int64
	away  atomic.Bool

	// client-go's recorder of events.k8s.io/v1 writes series with its mutex held, at intervals that
	// meet each half an hour. One that waits for a mutex is not idle to the clock of a bubble, which
	// would stand still for ever while the other waits for its answer.
	patchesAtOnce bool

	mu      sync.Mutex // owns the fields below
	tokens  bucket
	created map[string]time.Time // the calls that created an Event, by its namespace and name
}

var clientRate = Rate{PerSecond: 20, Burst: 100}

func newSlowServer() *slowServer {
	s := &slowServer{
		Server:  eventstest.NewServer(),
		tokens:  bucket{tokens: 100, at: time.Now()},
		created: make(map[string]time.Time),
	}
	s.SetTTL(1000 * time.Hour)
	s.SetFault(s.wait)
	return s
}

// wait waits for a token, in the order of the calls, and for the server.
func (s *slowServer) wait(ctx context.Context, c eventstest.Call) error {
	s.mu.Lock()
	s.tokens.fill(time.Now(), clientRate)
	s.tokens.tokens--
	pause := 10*time.Millisecond + time.Duration(max(0, -s.tokens.tokens)/clientRate.PerSecond*float64(time.Second))
	s.mu.Unlock()
	if s.patchesAtOnce && c.Verb == eventstest.Patch {
		pause = 0
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.calls.Add(1)
	if s.away.Load() {
		return errAway
	}
	if c.Verb == eventstest.Create {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.created[c.Namespace+"/"+c.Name] = time.Now()
	}
	return nil
}

// arrivals returns how long after their ends the Events about single containers of a namespace were
// created, the longest last.
func (s *slowServer) arrivals(namespace string) (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.Events() {
		ended, err := time.Parse(time.RFC3339Nano, e.Annotations[AnnotationFinishedAt])
		if err == nil && e.Regarding.Namespace == namespace && e.Regarding.Kind == "Pod" {
			all = append(all, s.created[e.Namespace+"/"+e.Name].Sub(ended))
		}
	}
	slices.Sort(all)
	return all
}

// annotated is client-go's recorder of events.k8s.io/v1, whose interface lacks annotations in 0.34:
// the concrete type may have them.
type annotated struct{ clientevents.EventRecorder }

func (a annotated) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any) {
	if r, ok := a.EventRecorder.(Recorder); ok {
		r.AnnotatedEventf(regarding, related, annotations, eventtype, reason, action, note, args...)
		return
	}
	a.Eventf(regarding, related, eventtype, reason, action, note, args...)
}

// older is client-go's recorder of core/v1, as a kubelet has it.
type older struct{ clientrecord.EventRecorder }

func (o older) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, eventtype, reason, _, note string, args ...any) {
	o.EventRecorder.AnnotatedEventf(regarding, annotations, eventtype, reason, note, args...)
}

// olderSink is the sink of client-go's recorder of core/v1.
type olderSink struct{ *eventstest.Sink[corev1.Event] }

func (s olderSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.Sink.Create(context.Background(), e)
}

func (s olderSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.Sink.Update(context.Background(), e)
}

func (s olderSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.Sink.Patch(context.Background(), e, data)
}

// contestant is a recorder behind the reporter, with the rates of the reporter.
type contestant struct {
	name    string
	rate    Rate
	connect func(ctx context.Context, t *testing.T, server *slowServer) (r Recorder, stop func())
}

// contestants are this project's recorder, with the rates of pleg-agent, and client-go's two, with
// all ends.
var contestants = []contestant{
	{"pleg-agent", Rate{1, 100}, func(ctx context.Context, t *testing.T, server *slowServer) (Recorder, func()) {
		b := must(events.New(events.Options{Sink: server.Sink(), Instance: "node"}))(t)
		var running sync.WaitGroup
		running.Go(func() { _ = b.Run(ctx) })
		return b.NewSeriesRecorder(nil, "pleg-agent"), func() {
			running.Wait()
			b.Shutdown()
		}
	}},
	{"client-go tools/events", Rate{1e9, 1e9}, func(ctx context.Context, t *testing.T, server *slowServer) (Recorder, func()) {
		server.patchesAtOnce = true
		b := clientevents.NewBroadcaster(server.Sink())
		check(t, b.StartRecordingToSinkWithContext(ctx))
		return annotated{b.NewRecorder(runtime.NewScheme(), "pleg-agent")}, b.Shutdown
	}},
	{"client-go tools/record", Rate{1e9, 1e9}, func(ctx context.Context, _ *testing.T, server *slowServer) (Recorder, func()) {
		b := clientrecord.NewBroadcaster(clientrecord.WithContext(ctx))
		b.StartRecordingToSink(olderSink{server.LegacySink()})
		source := corev1.EventSource{Component: "pleg-agent", Host: "node"}
		return older{b.NewRecorder(runtime.NewScheme(), source)}, b.Shutdown
	}},
}

// counted is the number of ends that the server knows of in a namespace, and the Events for them.
func counted(server *slowServer, namespace string) (ends int64, objects int) {
	for _, e := range server.Events() {
		if e.Regarding.Namespace != namespace || e.Regarding.Kind == "" {
			continue
		}
		n := max(int64(e.DeprecatedCount), 1)
		if e.Series != nil {
			n = int64(e.Series.Count)
		}
		objects++
		ends += n
	}
	return ends, objects
}

// outcome is what the server knows after a scene.
type outcome struct {
	ends    int64 // of the namespace "loud", without those of the Events' own losses
	events  int
	calls   int64
	cpu     time.Duration   // of the process in the scene: the reporter, the recorder and the fake server
	quiet   []time.Duration // from the ends of the namespace "quiet" to their Events, the longest last
	handled uint64          // ends with an outcome in the reporter
}

// perform plays a scene with a recorder, and returns what the server knows an hour later.
func perform(t *testing.T, c contestant, play func(g *stormPods, server *slowServer)) (out outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := newSlowServer()
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
		recorder, stop := c.connect(ctx, t, server)
		g := &stormPods{
			statuses: cache.New[Pod](nil),
			watch:    make(chan pleg.Event, 1000),
			shown:    make(map[cache.UID]*Pod),
		}
		r := must(New(Config[Pod]{
			Generator:     g,
			Statuses:      g.statuses,
			View:          func(p *Pod) Pod { return *p },
			Recorder:      recorder,
			NamespaceRate: c.rate,
			NodeRate:      Rate{c.rate.PerSecond * 5, c.rate.Burst * 5},
			Settle:        500 * time.Millisecond,
		}))(t)
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		time.Sleep(time.Second)
		before := cpu()
		play(g, server)
		time.Sleep(time.Hour)
		out.cpu = cpu() - before
		cancel()
		running.Wait()
		stop()
		time.Sleep(10 * time.Minute) // client-go's recorders leave goroutines that end by themselves
		out.ends, out.events = counted(server, "loud")
		out.calls = server.calls.Load()
		out.quiet = server.arrivals("quiet")
		for _, n := range r.Stats().Outcomes {
			out.handled += n
		}
	})
	return out
}

// cpu is the CPU time of the process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// playStorm ends containers of new pods of the namespace "loud", at a rate, for a time, and one of
// the namespace "quiet" each four seconds.
func playStorm(rate int, length time.Duration) func(*stormPods, *slowServer) {
	return func(g *stormPods, _ *slowServer) {
		step := time.Second / time.Duration(rate)
		total := int(length.Seconds()) * rate
		lag := 2 * rate
		for n := range total {
			g.end("loud", n)
			if n >= lag {
				g.remove("loud", n-lag)
			}
			if n%(4*rate) == rate {
				g.end("quiet", n)
			}
			time.Sleep(step)
		}
	}
}

// TestACrashStorm: the API server gets no more calls than the limits allow, every end is counted,
// and the Events of other namespaces come within a second of their report.
func TestACrashStorm(t *testing.T) {
	seconds := int64(stormFor.Seconds())
	total := seconds * int64(*stormRate)
	out := perform(t, contestants[0], playStorm(*stormRate, *stormFor))
	t.Logf("%v of %d ends a second: %d of %d ends in %d Events, %d calls; %d in the quiet namespace, the slowest after %v",
		*stormFor, *stormRate, out.ends, total, out.events, out.calls, len(out.quiet), slices.Max(append(out.quiet, 0)))
	quiet := (seconds + 2) / 4
	if out.ends != total || out.handled != uint64(total+quiet) || int64(len(out.quiet)) != quiet {
		t.Errorf("the server knows of %d ends of %d, the reporter of %d, and of %d quiet ones of %d", out.ends, total, out.handled, len(out.quiet), quiet)
	}
	// Each admitted end is a new pod's, with a create. The two combined series have a write each ten
	// seconds in the first minute and each five minutes then; the roster and the quiet namespace take
	// a few more.
	limit := 100 + seconds + seconds/2 + 100
	if out.calls > limit {
		t.Errorf("%d calls, want at most %d", out.calls, limit)
	}
	if len(out.quiet) == 0 || out.quiet[len(out.quiet)-1] > 1500*time.Millisecond {
		t.Errorf("the Events of the quiet namespace came %v after the ends", out.quiet)
	}
}

// playOutage has containers end once, and then so many times more, with the given pause, while the
// API server is away.
func playOutage(containers, times int, pause time.Duration) func(g *stormPods, server *slowServer) {
	return func(g *stormPods, server *slowServer) {
		for attempt := range times + 1 {
			server.away.Store(attempt > 0)
			for n := range containers {
				g.endAgain("loud", n, attempt)
			}
			time.Sleep(pause)
		}
		server.away.Store(false)
	}
}

// TestBesideClientGo plays the same ends to this project's recorder and to client-go's two: ours
// counts each end exactly, for about as few calls as a kubelet's recorder at most.
func TestBesideClientGo(t *testing.T) {
	for _, scene := range []struct {
		name string
		ends int64
		play func(g *stormPods, server *slowServer)
	}{
		{"500 pods end each second, for 5 s", 2500, playStorm(500, 5*time.Second)},
		{"ten containers in a crash loop, each 10 s to 5 min, for an hour", 10 * 17, func(g *stormPods, _ *slowServer) {
			pause := 10 * time.Second
			for attempt := range 17 {
				for n := range 10 {
					g.endAgain("loud", n, attempt)
				}
				time.Sleep(pause)
				pause = min(2*pause, 5*time.Minute)
			}
		}},
		{"the API server is away for 5 min, in which 60 containers end five times each", 60 * 6, playOutage(60, 5, time.Minute)},
		{"the API server is away for an hour, in which 60 containers end twelve times each", 60 * 13, playOutage(60, 12, 5*time.Minute)},
	} {
		var all [3]outcome
		var row strings.Builder
		row.WriteString("| " + scene.name + " |")
		for i, c := range contestants {
			all[i] = perform(t, c, scene.play)
			row.WriteString(fmt.Sprintf(" %d of %d in %d Events, %d calls, CPU %v |",
				all[i].ends, scene.ends, all[i].events, all[i].calls, all[i].cpu.Round(100*time.Microsecond)))
		}
		t.Log(row.String())
		ours := all[0]
		if ours.ends != scene.ends {
			t.Errorf("%s: the server knows of %d ends of %d", scene.name, ours.ends, scene.ends)
		}
		// An Event of a slow loop is written at each end, as by a kubelet's recorder: tools/events makes
		// fewer calls, and shows a count that is half an hour old. The roster and the last write of each
		// series come on top.
		if kubelets := all[2]; kubelets.ends == scene.ends && ours.calls > kubelets.calls*6/5 {
			t.Errorf("%s: %d calls, %s %d", scene.name, ours.calls, contestants[2].name, kubelets.calls)
		}
	}
}

// TestAnIdleNode: where 110 pods run and nothing ends, the API server is asked once in an hour, for
// what an earlier process has left.
func TestAnIdleNode(t *testing.T) {
	for i, c := range contestants {
		out := perform(t, c, func(g *stormPods, _ *slowServer) {
			for n := range 110 {
				g.start("loud", n)
			}
		})
		t.Logf("%s: %d calls, CPU %v", c.name, out.calls, out.cpu.Round(10*time.Microsecond))
		if i == 0 && (out.calls > 1 || out.events > 0) {
			t.Errorf("%d calls for %d Events, want one call and no Event", out.calls, out.events)
		}
	}
}
