// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// TestMain keeps the log of thousands of virtual outages out of the output, looks for goroutines
// left behind outside of bubbles, and collects garbage at five times the live heap, which is small:
// a seventh less CPU.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// rig is a broadcaster with a recording server, inside of a bubble.
type rig struct {
	t      *testing.T
	server *eventstest.Server
	*Broadcaster
	rec  *Recorder
	stop context.CancelFunc
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const controller = "evented-pleg.dev/test"

// bubble runs a test in virtual time, with a rig of its own server.
func bubble(t *testing.T, change func(*Options), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, eventstest.NewServer(), change)) })
}

// newRig starts a rig. The rig ends with the test.
func newRig(t *testing.T, server *eventstest.Server, change func(*Options)) *rig {
	t.Helper()
	r := idleRig(t, server, change)
	r.start()
	return r
}

// idleRig does not start recording.
func idleRig(t *testing.T, server *eventstest.Server, change func(*Options)) *rig {
	t.Helper()
	opts := Options{Sink: server.Sink(), Instance: "node-1", NoRoster: true}
	if change != nil {
		change(&opts)
	}
	b := must(New(opts))(t)
	r := &rig{t: t, server: server, Broadcaster: b, rec: b.NewRecorder(scheme.Scheme, controller).(*Recorder)}
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
		b.mu.Lock()
		b.core.stage = stageOver
		for w := range b.watchers {
			b.watchers.remove(w)
		}
		b.mu.Unlock()
	})
	return r
}

func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	noError(r.t, r.StartRecordingToSinkWithContext(ctx))
}

// shutdown ends the rig within the time and returns the shutdown's error.
func (r *rig) shutdown(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return r.ShutdownWithContext(ctx)
}

// end is a shutdown that leaves nothing unsent.
func (r *rig) end(limit time.Duration) {
	r.t.Helper()
	if err := r.shutdown(limit); err != nil {
		r.t.Error(err)
	}
}

// pod emits n isomorphic events about a pod.
func (r *rig) pod(name string, n int) {
	for range n {
		r.rec.Eventf(podRef(name), nil, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off %s", name)
	}
}

// pods emits n isomorphic events about each of that many pods, p0 and on.
func (r *rig) pods(pods, n int) {
	for i := range pods {
		r.pod(fmt.Sprint("p", i), n)
	}
}

func podRef(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
}

func testPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}}
}

// pass lets time pass and then everything happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// verbs returns the received calls, as "create patch patch!"; the mark stands for a failure.
func (r *rig) verbs() string {
	var out strings.Builder
	for i, c := range r.server.Calls() {
		if i > 0 {
			out.WriteString(" ")
		}
		out.WriteString(string(c.Verb))
		if c.Err != nil {
			out.WriteString("!")
		}
	}
	return out.String()
}

// one returns the only event stored.
func (r *rig) one() eventsv1.Event {
	r.t.Helper()
	all := r.server.Events()
	if len(all) != 1 {
		r.t.Fatalf("%d events are stored, want 1: %s", len(all), brief(all))
	}
	return all[0]
}

// wantStored checks the number of the events stored.
func (r *rig) wantStored(want int) {
	r.t.Helper()
	if all := r.server.Events(); len(all) != want {
		r.t.Errorf("%d events are stored, want %d: %.1000s", len(all), want, brief(all))
	}
}

// about is the events about an object, in the order of their creation.
func about(all []eventsv1.Event, name string) []eventsv1.Event {
	return slices.DeleteFunc(all, func(e eventsv1.Event) bool { return e.Regarding.Name != name })
}

// wantAbout checks the events about an object.
func (r *rig) wantAbout(name, want string) []eventsv1.Event {
	r.t.Helper()
	all := about(r.server.Events(), name)
	var says []string
	for i := range all {
		says = append(says, told(&all[i]))
	}
	if got := strings.Join(says, ", "); got != want {
		r.t.Fatalf("the events about %s say %q, want %q", name, got, want)
	}
	return all
}

// kill ends the process without a word: nothing more of it reaches the server.
func (r *rig) kill() {
	r.stop()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.stage = stageOver
}

func brief(all []eventsv1.Event) (out []string) {
	for i := range all {
		out = append(out, all[i].Name+" "+told(&all[i]))
	}
	return out
}

// told is an event's content about its series, as "Finished ×3", or ≥3 for a lower bound.
func told(e *eventsv1.Event) string {
	sign := "×"
	switch {
	case e.Series == nil:
		return "single"
	case e.Annotations[AnnotationAtLeast] != "":
		sign = "≥"
	}
	return fmt.Sprintf("%s %s%d", e.Annotations[AnnotationState], sign, e.Series.Count)
}

// wantTold checks the only event.
func (r *rig) wantTold(want string) {
	r.t.Helper()
	e := r.one()
	if got := told(&e); got != want {
		r.t.Errorf("the event says %q, want %q", got, want)
	}
}

func (r *rig) wantVerbs(want string) {
	r.t.Helper()
	if got := r.verbs(); got != want {
		r.t.Errorf("calls are %q, want %q", got, want)
	}
}

// wantBooks checks the sum of the counts, and the numbers of dropped and unsent occurrences.
func (r *rig) wantBooks(dropped, unsent int64) {
	r.t.Helper()
	s := r.Stats()
	all := sum(s.Dropped)
	if s.Emitted != s.Acknowledged+all+s.Unsent {
		r.t.Errorf("the books do not balance: %+v", s)
	}
	if all != dropped || s.Unsent != unsent {
		r.t.Errorf("dropped %d %v, unsent %d; want %d and %d", all, s.Dropped, s.Unsent, dropped, unsent)
	}
}

// fewer is n, and under the race detector a part of it: more of the same shows no other race, and
// the same test with all of it runs without the detector.
func fewer(n, part int) int {
	if raceDetector {
		return n / part
	}
	return n
}

// underRace is the first and the last of a list under the race detector, else all of it.
func underRace[T any](list []T) []T {
	if raceDetector && len(list) > 2 {
		return []T{list[0], list[len(list)-1]}
	}
	return list
}
