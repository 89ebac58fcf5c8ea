// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// rival is a recorder over a whole REST client: this project's by either interface, or one of
// client-go's two.
type rival struct {
	name  string
	ours  bool
	start func(ctx context.Context, t *testing.T, client kubernetes.Interface) (emit rivalEmits, stop func())
}

// rivalEmits emits an event by either interface.
type rivalEmits func(about *corev1.ObjectReference, reason, note string)

func byEvents(r clientevents.EventRecorder) rivalEmits {
	return func(about *corev1.ObjectReference, reason, note string) {
		r.Eventf(about, nil, corev1.EventTypeWarning, reason, "Act", "%s", note)
	}
}

func byRecord(r record.EventRecorder) rivalEmits {
	return func(about *corev1.ObjectReference, reason, note string) {
		r.Event(about, corev1.EventTypeWarning, reason, note)
	}
}

// ownRival starts a broadcaster over the client.
func ownRival(ctx context.Context, t *testing.T, client kubernetes.Interface) *Broadcaster {
	t.Helper()
	b := must(NewForClient(client, Options{Instance: "node-1"}))(t)
	noError(t, b.StartRecordingToSinkWithContext(ctx))
	return b
}

var rivals = []rival{
	{"ours", true, func(ctx context.Context, t *testing.T, client kubernetes.Interface) (rivalEmits, func()) {
		b := ownRival(ctx, t, client)
		return byEvents(b.NewRecorder(nil, controller)), b.Shutdown
	}},
	{"ours by record", true, func(ctx context.Context, t *testing.T, client kubernetes.Interface) (rivalEmits, func()) {
		b := ownRival(ctx, t, client)
		return byRecord(b.NewLegacyRecorder(nil, ofKubelet)), b.Shutdown
	}},
	{"client-go events", false, func(ctx context.Context, t *testing.T, client kubernetes.Interface) (rivalEmits, func()) {
		b := clientevents.NewBroadcaster(&clientevents.EventSinkImpl{Interface: client.EventsV1()})
		noError(t, b.StartRecordingToSinkWithContext(ctx))
		emit := byEvents(b.NewRecorder(scheme.Scheme, controller))
		return func(about *corev1.ObjectReference, reason, note string) {
			time.Sleep(time.Microsecond) // two events of one nanosecond would have one name
			emit(about, reason, note)
		}, b.Shutdown
	}},
	{"client-go record", false, func(ctx context.Context, t *testing.T, client kubernetes.Interface) (rivalEmits, func()) {
		b := record.NewBroadcaster(record.WithContext(ctx))
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		emit := byRecord(b.NewRecorder(scheme.Scheme, ofKubelet))
		return func(about *corev1.ObjectReference, reason, note string) {
			time.Sleep(time.Microsecond)
			emit(about, reason, note)
		}, b.Shutdown
	}},
}

// clientInBubble is a whole REST client without a network.
func clientInBubble(t *testing.T, server *eventstest.Server) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{Host: "http://server", Transport: server.Transport(), QPS: -1}
	return must(kubernetes.NewForConfig(config))(t)
}

// arena is a recorder over a whole client, in a bubble, with the time at which each event about an
// object of its own was emitted and stored.
type arena struct {
	t       *testing.T
	server  *eventstest.Server
	emit    rivalEmits
	emitted map[string]time.Time
	total   int64
}

// inArena runs a test in a bubble with one of the recorders.
func inArena(t *testing.T, r rival, test func(a *arena)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &arena{t: t, server: eventstest.NewServer(), emitted: map[string]time.Time{}}
		a.server.SetTTL(100 * time.Hour) // the sums in the end are of everything
		ctx, cancel := context.WithCancel(t.Context())
		emit, stop := r.start(ctx, t, clientInBubble(t, a.server))
		a.emit = emit
		test(a)
		stop()
		cancel()
		time.Sleep(5 * time.Minute)
	})
}

// about emits an event about a pod of a namespace.
func (a *arena) about(namespace, name string) {
	key := name
	if _, again := a.emitted[key]; !again {
		a.emitted[key] = time.Now()
	}
	a.total++
	a.emit(podIn(namespace, name), "BackOff", "back-off")
}

func podIn(namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind:       "Pod",
		APIVersion: "v1",
		Namespace:  namespace,
		Name:       name,
		UID:        types.UID("uid-" + name),
	}
}

// shown is what an arena's server holds in the end.
type shown struct {
	lost    int64
	ongoing int
	calls   int64
	// worst is the longest time from an emission to the first object about its pod, of the pods in
	// question.
	worst time.Duration
}

// storedAt returns when the first object about each pod was created.
func (a *arena) storedAt() map[string]time.Time {
	at := map[string]time.Time{}
	for _, c := range a.server.Calls() {
		name, _, _ := strings.Cut(c.Name, ".")
		if _, again := at[name]; c.Err == nil && c.Verb == eventstest.Create && !again {
			at[name] = c.At
		}
	}
	return at
}

// result counts what is stored; these selects the pods whose delay counts.
func (a *arena) result(these func(name string) bool) shown {
	count, ongoing := stored(a.server)
	out := shown{lost: a.total - count, ongoing: ongoing}
	out.calls = int64(len(a.server.Calls()))
	storedAt := a.storedAt()
	for name, at := range a.emitted {
		if !these(name) {
			continue
		}
		when, ok := storedAt[name]
		if !ok {
			when = time.Now()
		}
		out.worst = max(out.worst, when.Sub(at))
	}
	return out
}

// afterwards fails a call after a time.
func afterwards(d time.Duration, err error) eventstest.Fault {
	return func(ctx context.Context, c eventstest.Call) error {
		if late := slowly(d)(ctx, c); late != nil {
			return late
		}
		return err
	}
}

// localTroubles are the kinds of trouble that a single tenant's webhook, limit or role makes.
var localTroubles = []struct {
	name  string
	fault eventstest.Fault
}{
	{"429", always(status(429, metav1.StatusReasonTooManyRequests, 0))},
	{"429, Retry-After 1", always(status(429, metav1.StatusReasonTooManyRequests, 1))},
	{"500", always(status(500, metav1.StatusReasonInternalError, 0))},
	{"503", always(status(503, metav1.StatusReasonServiceUnavailable, 0))},
	{"504 after 10 s", afterwards(10*time.Second, status(504, metav1.StatusReasonTimeout, 0))},
	{"hangs for 40 s", afterwards(40*time.Second, status(504, metav1.StatusReasonTimeout, 0))},
	{"reset", always(errReset)},
}

// extent is where a trouble is.
type extent struct {
	name string
	in   func(c eventstest.Call) bool
}

var extents = []extent{
	{"everywhere", func(eventstest.Call) bool { return true }},
	{"one namespace", func(c eventstest.Call) bool { return c.Namespace == "bad" }},
	{"one object", func(c eventstest.Call) bool { return strings.HasPrefix(c.Name, "bad-0.") }},
}

// localWeather is five minutes of a trouble. At its beginning, 100 pods of the namespace "bad" have
// an event each; from then on, a pod of each of ten other namespaces has one, a new pod each ten
// seconds, beside a loop of one a second.
func localWeather(t *testing.T, r rival, fault eventstest.Fault, e extent) (out shown) {
	inArena(t, r, func(a *arena) {
		for i := range 10 {
			a.about(fmt.Sprint("ns-", i), fmt.Sprint("before-", i))
		}
		pass(time.Minute)
		until := time.Now().Add(5 * time.Minute)
		a.server.SetFault(func(ctx context.Context, c eventstest.Call) error {
			if !e.in(c) || !time.Now().Before(until) {
				return nil
			}
			return fault(ctx, c)
		})
		for i := range 100 {
			a.about("bad", fmt.Sprint("bad-", i))
		}
		pass(time.Second)
		for i := 0; time.Now().Before(until.Add(10 * time.Second)); i++ {
			a.about("ns-0", "loop")
			if i%10 == 0 {
				a.about(fmt.Sprint("ns-", i/10%10), fmt.Sprint("other-", i))
			}
			pass(time.Second)
		}
		pass(40 * time.Minute)
		out = a.result(func(name string) bool { return e.name == "everywhere" || strings.HasPrefix(name, "other-") })
	})
	return out
}

// TestLocalTrouble: nothing is lost, and trouble of a namespace or of an object delays no other
// namespace.
func TestLocalTrouble(t *testing.T) {
	for _, e := range extents {
		for _, trouble := range underRace(localTroubles) {
			name := trouble.name + ", " + e.name
			own := localWeather(t, rivals[0], trouble.fault, e)
			limit := 2 * besideAfter // calls that may hang delay no other by more
			if e.name == "everywhere" {
				limit = 6*time.Minute + 30*time.Second
			}
			if own.lost != 0 || own.ongoing != 0 || own.worst > limit {
				t.Errorf("%s: %d lost, %d Ongoing for ever, %d calls, worst %v of at most %v",
					name, own.lost, own.ongoing, own.calls, own.worst, limit)
			}
			if *showTables {
				var row strings.Builder
				row.WriteString(fmt.Sprintf("| %s |", name))
				for _, r := range []rival{rivals[0], rivals[2], rivals[3]} {
					s := own
					if !r.ours {
						s = localWeather(t, r, trouble.fault, e)
					}
					row.WriteString(fmt.Sprintf(" %d, %d, %d, %v |", s.lost, s.ongoing, s.calls, s.worst.Round(10*time.Millisecond)))
				}
				t.Log(row.String())
			}
		}
	}
}

// TestCallsInTroubleOfAll: in a minute of trouble of the whole server, the calls are few, however
// many namespaces and objects have events.
func TestCallsInTroubleOfAll(t *testing.T) {
	all, runs := int64(0), int64(0)
	for _, trouble := range underRace(localTroubles) {
		for _, namespaces := range []int{1, 20} {
			inArena(t, rivals[0], func(a *arena) {
				a.about("warm", "up")
				pass(time.Second)
				before, _ := a.server.Count()
				a.server.SetFault(trouble.fault)
				for second := range 60 {
					for i := range fewer(10, 5) {
						n := second*10 + i
						a.about(fmt.Sprint("ns-", n%namespaces), fmt.Sprint("p", n))
					}
					pass(time.Second)
				}
				during, _ := a.server.Count()
				if *showTables {
					t.Logf("%s, %d namespaces: %d calls in a minute", trouble.name, namespaces, during-before)
				}
				all += during - before
				runs++
				if n := during - before; n > 12 { // 4 to 10 by the jitter, of 600 events
					t.Errorf("%s, %d namespaces: %d calls in a minute", trouble.name, namespaces, n)
				}
				a.server.SetFault(nil)
				pass(20 * time.Minute)
				if s := a.result(func(string) bool { return false }); s.lost != 0 || s.ongoing != 0 {
					t.Errorf("%s, %d namespaces: %d lost, %d Ongoing", trouble.name, namespaces, s.lost, s.ongoing)
				}
			})
		}
	}
	if all > 9*runs && !raceDetector { // 8 on average; the troubles played under the race detector have more
		t.Errorf("%d calls in %d minutes", all, runs)
	}
}

// refusals is ten minutes of a server that answers some percent of all calls with 429, while a pod
// of one of ten namespaces has an event each second. It returns the delay of each event, in the
// order of the pods, and how many are lost.
func refusals(t *testing.T, r rival, percent int, seed uint64) (delays []time.Duration, lost int64) {
	const events = 600
	inArena(t, r, func(a *arena) {
		draw := rand.New(rand.NewPCG(seed, uint64(percent)))
		var lock sync.Mutex
		a.server.SetFault(func(context.Context, eventstest.Call) error {
			lock.Lock()
			defer lock.Unlock()
			if draw.IntN(100) < percent {
				return status(429, metav1.StatusReasonTooManyRequests, 1)
			}
			return nil
		})
		for i := range events {
			a.about(fmt.Sprint("ns-", i%10), fmt.Sprint("p", i))
			pass(time.Second)
		}
		pass(20 * time.Minute)
		storedAt := a.storedAt()
		for i := range events {
			name := fmt.Sprint("p", i)
			at, ok := storedAt[name]
			if !ok {
				lost++
				continue
			}
			delays = append(delays, at.Sub(a.emitted[name]))
		}
	})
	return delays, lost
}

// TestPartialRefusals: a server that refuses a part of the calls is no server in trouble: events
// are late by their own bad luck, a second or so for each refusal, and no gate adds to that. In the
// first minute of a process a row of refusals is all that is known of the server: a gate may close.
func TestPartialRefusals(t *testing.T) {
	runs := uint64(8)
	switch {
	case *showTables:
		runs = 60
	case raceDetector:
		runs = 1 // whose median is its worst
	}
	for _, c := range []struct {
		percent              int
		median, worst, first time.Duration
	}{
		{20, 6 * time.Second, 15 * time.Second, time.Minute},
		{50, 15 * time.Second, 40 * time.Second, 3 * time.Minute},
	} {
		for _, r := range []rival{rivals[0], rivals[2], rivals[3]} {
			if !r.ours && !*showTables {
				continue
			}
			var worst []time.Duration // of each run
			later := time.Duration(0) // the worst of the events after the first minute
			all := int64(0)
			for seed := range runs {
				delays, lost := refusals(t, r, c.percent, seed)
				worst = append(worst, slices.Max(delays))
				later = max(later, slices.Max(delays[60:]))
				all += lost
			}
			slices.Sort(worst)
			median := worst[len(worst)/2]
			last := worst[len(worst)-1]
			if *showTables {
				t.Logf("%d %% refused, %s: lost %d; the latest event of a run: median %v, nine of ten %v, worst %v; after a minute %v",
					c.percent, r.name, all, median, worst[len(worst)*9/10], last, later)
			}
			if r.ours && (all != 0 || median > c.median && runs > 1 || later > c.worst || last > c.first) {
				t.Errorf("%d %% refused: lost %d; the latest event of a run: median %v, worst %v; after a minute %v",
					c.percent, all, median, last, later)
			}
		}
	}
}

// TestLonePoison: an event at which the server fails, on an idle recorder, is not retried without
// end.
func TestLonePoison(t *testing.T) {
	for _, trouble := range localTroubles {
		inArena(t, rivals[0], func(a *arena) {
			a.server.SetFault(where(func(c eventstest.Call) bool { return strings.HasPrefix(c.Name, "poison.") }, trouble.fault))
			a.about("ns", "poison")
			pass(6 * time.Hour)
			if n, _ := a.server.Count(); n > 150 {
				t.Errorf("%s: %d calls in six hours", trouble.name, n)
			}
		})
	}
}

// TestChangingNotes: with the older interface, a message that changes each time is counted, not
// dropped.
func TestChangingNotes(t *testing.T) {
	for _, pause := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second} {
		for _, r := range []rival{rivals[1], rivals[3]} {
			if !r.ours && !*showTables {
				continue
			}
			inArena(t, r, func(a *arena) {
				for begin := time.Now(); time.Since(begin) < time.Hour; pass(pause) {
					a.total++
					a.emit(podRef("a"), "Unhealthy", "Readiness probe failed: at "+time.Now().Format(time.RFC3339))
				}
				pass(20 * time.Minute)
				count, _ := stored(a.server)
				objects := about(a.server.Events(), "a")
				if *showTables {
					t.Logf("| a new message each %v | %s | lost %d %%, objects %d |", pause, r.name, 100*(a.total-count)/a.total, len(objects))
				}
				if r.ours && (count != a.total || len(objects) > maxNotes+2) {
					t.Errorf("every %v: %d of %d are stored, in %d objects", pause, count, a.total, len(objects))
				}
			})
		}
	}
}

// TestManyContainers: each of the containers of a large pod has its events, by either interface.
func TestManyContainers(t *testing.T) {
	for _, r := range rivals {
		if !r.ours && !*showTables {
			continue
		}
		inArena(t, r, func(a *arena) {
			for _, reason := range []string{"Pulled", "Created", "Started"} {
				for i := range 40 {
					ref := podRef("a")
					ref.FieldPath = fmt.Sprintf("spec.containers{c%d}", i)
					a.total++
					a.emit(ref, reason, "container "+reason)
				}
			}
			pass(20 * time.Minute)
			count, _ := stored(a.server)
			if *showTables {
				t.Logf("| 40 containers | %s | %d of %d, objects %d |", r.name, count, a.total, len(about(a.server.Events(), "a")))
			}
			if r.ours && count != a.total {
				t.Errorf("%s: %d of %d are stored", r.name, count, a.total)
			}
		})
	}
}

// TestRoleForOneGroup: a role covers the events of one API group only, or of one for each
// namespace.
func TestRoleForOneGroup(t *testing.T) {
	const group = "events.k8s.io"
	for name, allowed := range map[string]func(c eventstest.Call) bool{
		"core":          func(c eventstest.Call) bool { return c.Group == "" },
		"events.k8s.io": func(c eventstest.Call) bool { return c.Group == group },
		"by namespace":  func(c eventstest.Call) bool { return (c.Group == group) == (c.Namespace == "ns-1") },
	} {
		for _, r := range rivals[:2] {
			inArena(t, r, func(a *arena) {
				a.server.SetFault(where(func(c eventstest.Call) bool { return !allowed(c) }, always(forbidden("x"))))
				for i := range fewer(300, 5) {
					for n := range 3 {
						a.about(fmt.Sprint("ns-", n), fmt.Sprint("p", i, "-", n))
						a.about(fmt.Sprint("ns-", n), fmt.Sprint("loop-", n))
						synctest.Wait() // else up to four calls begin before one of them has failed
					}
					pass(time.Second)
				}
				pass(20 * time.Minute)
				all, failed := a.server.Count()
				if s := a.result(func(string) bool { return true }); s.lost != 0 || s.ongoing != 0 || failed > 8 {
					t.Errorf("role for %s, %s: %d lost, %d Ongoing, %d of %d calls failed", name, r.name, s.lost, s.ongoing, failed, all)
				}
			})
		}
	}
}

// lastSeen is the latest occurrence that a reader sees.
func lastSeen(e *eventsv1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.DeprecatedLastTimestamp.IsZero():
		return e.DeprecatedLastTimestamp.Time
	}
	return e.EventTime.Time
}

// TestFastLoops: a series with tokens shows when it was last seen, to five minutes, and its count,
// in the first minute to ten seconds, for no more calls than client-go's older recorder makes.
func TestFastLoops(t *testing.T) {
	for _, r := range rivals {
		if !r.ours && !*showTables {
			continue
		}
		inArena(t, r, func(a *arena) {
			begin := time.Now()
			emittedBy := []int64{}
			var stale time.Duration
			for range 3600 {
				a.emit(podRef("a"), "BackOff", "back-off")
				a.total++
				pass(time.Second / 2)
				emittedBy = append(emittedBy, a.total)
				stored := about(a.server.Events(), "a")[0]
				stale = max(stale, time.Since(lastSeen(&stored)))
				second := len(emittedBy)
				if count := seriesCount(&stored); r.ours && second < 60 && second > 11 && count < emittedBy[second-12] {
					t.Fatalf("%s: after %d s it stands as x%d", r.name, second, count)
				}
				pass(time.Second / 2)
			}
			calls, _ := a.server.Count()
			if *showTables {
				t.Logf("| one a second for an hour | %s | last seen %v ago, %d calls | from %v", r.name, stale, calls, begin)
			}
			if r.ours && (stale > 5*time.Minute || calls > 38) {
				t.Errorf("%s: last seen %v ago, %d calls", r.name, stale, calls)
			}
			for range 15 {
				a.emit(podRef("b"), "BackOff", "back-off")
				pass(100 * time.Millisecond)
			}
			pass(10 * time.Second)
			if b := about(a.server.Events(), "b")[0]; r.ours && seriesCount(&b) != 15 {
				t.Errorf("%s: 15 in 1.5 s stand as x%d", r.name, seriesCount(&b))
			}
		})
	}
}

func seriesCount(e *eventsv1.Event) int64 {
	if e.Series != nil {
		return int64(e.Series.Count)
	}
	return int64(max(e.DeprecatedCount, 1))
}

// TestCallsAfterARestart: a series that nothing continues costs one call after a restart, and these
// calls are spread over minutes.
func TestCallsAfterARestart(t *testing.T) {
	sizes := []int{1000}
	switch {
	case *showTables:
		sizes = []int{1000, 4000}
	case raceDetector:
		sizes = []int{200}
	}
	for _, n := range sizes {
		for _, end := range []string{"end", "kill"} {
			bubble(t, continuing, func(t *testing.T, r *rig) {
				for i := range n {
					r.pod(fmt.Sprint("web-", i), 2)
				}
				pass(2 * time.Minute)
				if end == "kill" {
					r.kill()
				} else {
					r.end(time.Minute)
				}
				before, _ := r.server.Count()
				next := newRig(t, r.server, continuing)
				pass(time.Second)
				most, at := int64(0), before
				for range 30 {
					pass(time.Minute)
					now, _ := r.server.Count()
					most = max(most, now-at)
					at = now
				}
				if *showTables {
					t.Logf("%s with %d series: %d calls, %d in a minute at most", end, n, at-before, most)
				}
				if calls := at - before; calls > int64(n)+5 || most > int64(n)/3 {
					t.Errorf("%s with %d series: %d calls, %d in a minute", end, n, calls, most)
				}
				if _, ongoing := stored(r.server); ongoing > 0 {
					t.Errorf("%s: %d are Ongoing", end, ongoing)
				}
				next.wantBooks(0, 0)
			})
		}
	}
}

// TestRosterBytes: a thousand live series, and a new one each ten seconds: the roster is a small
// part of what is sent, at most 1 MiB an hour.
func TestRosterBytes(t *testing.T) {
	seconds := 20 * 60
	switch {
	case *showTables:
		seconds = 60 * 60
	case raceDetector:
		seconds = 2 * 60
	}
	bubble(t, continuing, func(t *testing.T, r *rig) {
		for second := range seconds {
			if second%60 == 0 {
				for i := range 1000 {
					r.pod(fmt.Sprint("web-", i), 2)
				}
			}
			if second%10 == 0 {
				r.pod(fmt.Sprint("new-", second), 2)
			}
			pass(time.Second)
		}
		roster, calls := 0, 0
		for _, c := range r.server.Calls() {
			if strings.Contains(c.Name, ".roster-") {
				roster += len(c.Body)
				calls++
			}
		}
		if *showTables {
			t.Logf("%d KiB in %d writes of the roster", roster>>10, calls)
		}
		if roster > 1<<20*max(seconds, 20*60)/3600 { // the first roster is whole
			t.Errorf("%d KiB in %d writes of the roster", roster>>10, calls)
		}
	})
}
