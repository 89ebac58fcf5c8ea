// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func reasonOf(i int) string { return fmt.Sprintf("Reason%04d", i) }

var resource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}

func slowly(d time.Duration) eventstest.Fault {
	return func(ctx context.Context, _ eventstest.Call) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
}

// during fails every call within a time from now.
func during(d time.Duration, err error) eventstest.Fault {
	until := time.Now().Add(d)
	return func(context.Context, eventstest.Call) error {
		if time.Now().Before(until) {
			return err
		}
		return nil
	}
}

// always fails every call.
func always(err error) eventstest.Fault {
	return func(context.Context, eventstest.Call) error { return err }
}

// serially lets a fault see one call at a time: it may keep what it has seen.
func serially(fault eventstest.Fault) eventstest.Fault {
	var lock sync.Mutex
	return func(ctx context.Context, c eventstest.Call) error {
		lock.Lock()
		defer lock.Unlock()
		return fault(ctx, c)
	}
}

// where limits a fault to some calls.
func where(these func(eventstest.Call) bool, fault eventstest.Fault) eventstest.Fault {
	return func(ctx context.Context, c eventstest.Call) error {
		if these(c) {
			return fault(ctx, c)
		}
		return nil
	}
}

// inNS selects the calls about the pods of [rig.pod].
func inNS(c eventstest.Call) bool { return c.Namespace == "ns" }

func status(code int32, reason metav1.StatusReason, after int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Details: &metav1.StatusDetails{RetryAfterSeconds: after},
	}}
}

// errAway is a client's error when nobody listens.
var errAway = fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)

// errReset is a client's error when the connection breaks off.
var errReset = fmt.Errorf("read: %w", syscall.ECONNRESET)

// TestNothingIsLostInTrouble puts trouble of each kind and length between 30 objects' crash loops
// and the server.
func TestNothingIsLostInTrouble(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		for_ time.Duration
	}{
		{"429 without Retry-After", status(429, metav1.StatusReasonTooManyRequests, 0), time.Minute},
		{"429 with Retry-After", status(429, metav1.StatusReasonTooManyRequests, 1), time.Minute},
		{"429 with a long Retry-After", status(429, metav1.StatusReasonTooManyRequests, 40), time.Minute},
		{"500", status(500, metav1.StatusReasonInternalError, 0), time.Minute},
		{"503", status(503, metav1.StatusReasonServiceUnavailable, 0), time.Minute},
		{"503 with Retry-After", status(503, metav1.StatusReasonServiceUnavailable, 5), time.Minute},
		{"504", status(504, metav1.StatusReasonTimeout, 0), time.Minute},
		{"502 of a proxy", status(502, "", 0), time.Minute},
		{"401 while credentials rotate", status(401, metav1.StatusReasonUnauthorized, 0), time.Minute},
		{"refused", errAway, 150 * time.Second},
		{"reset", fmt.Errorf("read: %w", syscall.ECONNRESET), 150 * time.Second},
		{"EOF", errors.New("unexpected EOF"), 150 * time.Second},
		{"refused for an hour", errAway, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.pod("before", 3)
				pass(time.Second)
				r.server.SetFault(during(tc.for_, tc.err))
				end := time.Now().Add(tc.for_)
				const pods = 30
				n := 0
				for time.Now().Before(end) {
					r.pods(pods, 1)
					r.pod("before", 1)
					n++
					pass(10 * time.Second)
				}
				if _, failed := r.server.Count(); failed > 10+int64(tc.for_/(20*time.Second)) {
					t.Errorf("%d calls failed: that is no aggressive backoff", failed)
				}
				pass(20 * time.Minute)
				all := r.server.Events()
				if len(all) != pods+1 {
					t.Fatalf("%d events, want %d: %s", len(all), pods+1, brief(all))
				}
				for i := range all {
					want := fmt.Sprintf("Finished ×%d", n)
					if all[i].Regarding.Name == "before" {
						want = fmt.Sprintf("Finished ×%d", n+3)
					}
					if told(&all[i]) != want {
						t.Errorf("%s says %s, want %s", all[i].Name, told(&all[i]), want)
					}
				}
				r.wantBooks(0, 0)
			})
		})
	}
}

// TestRetryAfterIsHonoured up to five minutes, for the object alone, or, once three objects are
// refused, for all.
func TestRetryAfterIsHonoured(t *testing.T) {
	for asked, pause := range map[int32]string{77: "75s", 3600: "298s"} {
		refused := status(429, metav1.StatusReasonTooManyRequests, asked)
		play(t, "fault start a×1 1s mended b×1 "+pause+" [calls: create! create] 2s [calls: create! create create]",
			always(refused), nil)
		play(t, "fault start a×1 0s b×1 0s c×1 1s mended d×1 "+pause+" [calls: create! create! create!] 2s [calls: create! create! create! create create create create]",
			always(status(429, metav1.StatusReasonTooManyRequests, asked)), nil)
	}
}

// TestRetryAfterOfTenants: several namespaces are at their limits and ask to wait for long. Another
// one hardly waits, and none of these is asked before its time.
func TestRetryAfterOfTenants(t *testing.T) {
	for tenants, limit := range map[int]time.Duration{4: 9 * time.Second, 6: time.Minute} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.in("good", "before")
			pass(time.Minute)
			bad := func(c eventstest.Call) bool { return strings.HasPrefix(c.Namespace, "bad") }
			r.server.SetFault(where(bad, always(status(429, metav1.StatusReasonTooManyRequests, 300))))
			sent := func(least, most int) {
				t.Helper()
				calls := map[string]int{}
				for _, c := range r.server.Calls() {
					if bad(c) {
						calls[c.Name]++
					}
				}
				for name, n := range calls {
					if n < least || n > most {
						t.Errorf("%s is sent %d times", name, n)
					}
				}
			}
			for i := range tenants {
				r.in(fmt.Sprint("bad", i), fmt.Sprint("b", i))
				pass(time.Millisecond)
			}
			if r.Stats().Closed["server"] != 1 {
				t.Error("the server is not closed: the test proves nothing")
			}
			r.in("good", "after")
			pass(limit)
			r.wantAbout("after", "single")
			pass(295*time.Second - limit)
			sent(1, 1)
			pass(20 * time.Minute)
			sent(2, 6)
		})
	}
}

func TestBackoffGrowsToItsLimit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetFault(during(24*time.Hour, errAway))
		r.pod("a", 1)
		pass(24 * time.Hour)
		var longest time.Duration
		calls := r.server.Calls()
		for i := 1; i < len(calls); i++ {
			d := calls[i].At.Sub(calls[i-1].At)
			longest = max(longest, d)
			if floor := min(time.Second<<(i-1), 30*time.Second) / 2; i < 30 && d < floor {
				t.Errorf("try %d came after %v, want at least %v", i, d, floor)
			}
		}
		if longest > 30*time.Second || longest < 25*time.Second {
			t.Errorf("the longest pause is %v", longest)
		}
		if n := len(calls); n > 24*3600/20 {
			t.Errorf("%d calls in a day", n)
		}
	})
}

func TestRefusedForGood(t *testing.T) {
	terminating := apierrors.NewForbidden(resource, "x", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tc := range []struct {
		name, reason string
		err          error
	}{
		{"400", "BadRequest", apierrors.NewBadRequest("no")},
		{"403", "Forbidden", apierrors.NewForbidden(resource, "x", errors.New("no"))},
		{"413", "RequestEntityTooLarge", apierrors.NewRequestEntityTooLargeError("no")},
		{"422", "UnprocessableEntity", apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "x", nil)},
		{"namespace terminating", "NamespaceTerminating", terminating},
		{"namespace gone", "NamespaceNotFound", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.server.SetFault(where(inNS, always(tc.err)))
				r.pod("a", 1000)
				pass(time.Second)
				r.pod("a", 1000)
				r.rec.Eventf(&corev1.ObjectReference{Kind: "Node", Name: "n"}, nil, "Normal", "R", "A", "")
				pass(time.Second)
				r.wantVerbs("create! create") // a hot loop of something refused costs one call, and stops nobody else
				r.wantBooks(2000, 0)
				s := r.Stats()
				if s.Rejected[tc.reason] != 1 || s.Dropped[DropRejected] != 2000 {
					t.Errorf("rejected %v, dropped %v", s.Rejected, s.Dropped)
				}
				r.server.SetFault(nil) // somebody mends it
				pass(6 * time.Minute)
				r.pod("a", 1)
				synctest.Wait()
				r.wantStored(2)
			})
		})
	}
}

// TestRolesNotLoadedYet: a kube-apiserver refuses everybody for a moment after its start. The
// refusal is no verdict on the events.
func TestRolesNotLoadedYet(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before int // occurrences allowed before
		for_   time.Duration
		lost   int64
	}{
		{"a moment", 2, 5 * time.Second, 0},
		{"a moment, at the start of both", 0, 5 * time.Second, 0},
		{"for good", 2, time.Hour, 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(o *Options) { o.Writers = 1 }, func(t *testing.T, r *rig) {
				r.pod("before", tc.before)
				pass(time.Second)
				away := 5 // calls
				var refuses eventstest.Fault
				r.server.SetFault(func(ctx context.Context, c eventstest.Call) error {
					away--
					switch {
					case away > 0:
						return errAway
					case away == 0:
						refuses = during(tc.for_, forbidden("x"))
					}
					return refuses(ctx, c)
				})
				r.pods(20, 2)
				pass(7 * time.Minute)
				r.wantBooks(tc.lost, 0)
				if _, failed := r.server.Count(); failed > 35+tc.lost {
					t.Errorf("%d calls failed", failed)
				}
			})
		})
	}
}

// TestPoison: an event must not delay the others, nor stay for ever, if the server fails, hangs or
// breaks off at the event.
func TestPoison(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault eventstest.Fault
	}{
		{"500", always(status(500, metav1.StatusReasonInternalError, 0))},
		{"504", always(status(504, metav1.StatusReasonTimeout, 0))},
		{"hangs", slowly(time.Hour)},
		{"reset", always(fmt.Errorf("read: %w", syscall.ECONNRESET))},
		{"EOF", always(fmt.Errorf("Post: %w", io.EOF))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.server.SetFault(where(inNS, tc.fault))
				r.pod("poison", 1)
				for i := range 50 {
					r.rec.Eventf(&corev1.ObjectReference{Kind: "Node", Name: "n"}, nil, "Normal", reasonOf(i), "A", "")
					pass(time.Minute)
				}
				if n := len(r.server.Events()); n < 45 {
					t.Errorf("only %d of 50 others got through", n)
				}
				pass(time.Hour)
				r.wantBooks(1, 0)
			})
		})
	}
}

// TestAskedToWaitForHours: an event that alone gets 429 or 503, the words for "later", is never
// given up, at a few calls an hour, while others are answered.
func TestAskedToWaitForHours(t *testing.T) {
	for _, err := range []error{
		status(429, metav1.StatusReasonTooManyRequests, 0), status(503, metav1.StatusReasonServiceUnavailable, 0),
	} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			calls := 0
			r.server.SetFault(serially(func(_ context.Context, c eventstest.Call) error {
				if !strings.HasPrefix(c.Name, "later") {
					return nil
				}
				calls++
				return err
			}))
			r.pod("later", 1)
			for i := range 6 * 60 {
				r.pod(fmt.Sprint("p", i), 1)
				pass(time.Minute)
			}
			r.wantBooks(0, 1)
			if calls > 150 {
				t.Errorf("%d calls in six hours", calls)
			}
			r.server.SetFault(nil)
			pass(5 * time.Minute)
			r.wantAbout("later", "single")
		})
	}
}

// TestEveryCallHangsForHours: where nothing gets through, nothing is poison, and nothing is lost.
func TestEveryCallHangsForHours(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetFault(slowly(time.Hour))
		r.pods(20, 2)
		pass(6 * time.Hour)
		r.server.SetFault(nil)
		pass(20 * time.Minute)
		r.wantStored(20)
		r.wantBooks(0, 0)
	})
}

// TestSoonAfterARecovery: a single call finds the server recovered, within half a minute, after an
// absence of any length.
func TestSoonAfterARecovery(t *testing.T) {
	for _, away := range []time.Duration{10 * time.Second, 10 * time.Minute, 10 * time.Hour} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.server.SetFault(during(away, errAway))
			r.pod("p0", 1)
			synctest.Wait() // else up to four calls begin before one of them has failed
			r.pods(20, 1)
			pass(away)
			_, failed := r.server.Count()
			pass(30 * time.Second)
			r.wantStored(20)
			if limit := int64(away/(15*time.Second)) + 6; failed > limit {
				t.Errorf("%d calls failed in %v, want at most %d", failed, away, limit)
			}
		})
	}
}

// TestMissingRoleIsNotSilent: at default verbosity each reason is logged once as an error, not each
// event.
func TestMissingRoleIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(func(_ context.Context, c eventstest.Call) error {
			return apierrors.NewForbidden(resource, c.Name, errors.New("cannot create resource"))
		})
		var errs []string
		logger := funcr.New(func(_, args string) { errs = append(errs, args) }, funcr.Options{})
		r := idleRig(t, server, nil)
		noError(t, r.StartRecordingToSinkWithContext(klog.NewContext(t.Context(), logger)))
		r.pods(100, 5)
		pass(time.Second)
		if len(errs) != 1 || !strings.Contains(errs[0], `"why"="Forbidden"`) || !strings.Contains(errs[0], "cannot create resource") {
			t.Errorf("logged: %q", errs)
		}
		pass(10 * time.Minute)
		r.pod("later", 1)
		synctest.Wait()
		if len(errs) != 2 {
			t.Errorf("logged later: %q", errs)
		}
		r.stop = func() {}
		_ = r.shutdown(time.Second)
	})
}

// TestExpiredObject: the server forgot the event while its series went on.
func TestExpiredObject(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetTTL(20 * time.Second)
		first := time.Now()
		r.pod("a", 1)
		pass(time.Second)
		r.pod("a", 1)
		synctest.Wait() // the write of the second occurrence must not take some of the others with it
		r.pod("a", 8)
		pass(time.Minute)
		r.wantStored(0)
		pass(5*time.Minute + time.Second)
		r.wantTold("Finished ×10")
		r.wantVerbs("create patch patch patch! create")
		if e := r.one(); e.EventTime.UnixMicro() != first.UnixMicro() {
			t.Errorf("eventTime is %v, want that of the first occurrence, %v", e.EventTime, first)
		}
		if n := r.Stats().Transitions["renewed"]; n != 1 {
			t.Errorf("renewed %d", n)
		}
		r.wantBooks(0, 0)
	})
}

// TestLateCalls: the server carries out calls after the connection has broken off, creates or
// patches, while the series goes on. Each occurrence counts once, and what came during a call that
// is made again is written with no pause after it.
func TestLateCalls(t *testing.T) {
	writes := func(c eventstest.Call) bool { return c.Namespace == "ns" && c.Body != "{}" }
	for _, after := range []time.Duration{time.Millisecond, 1200 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		for _, before := range []string{"", "a×1 1s "} {
			n := 31 + len(strings.Fields(before))/2
			for late := range 4 {
				calls := 0
				fault := where(writes, serially(func(context.Context, eventstest.Call) error {
					calls++
					if calls > late {
						return nil
					}
					return &eventstest.LateError{After: after, Err: errReset}
				}))
				emits := strings.Repeat("a×3 700ms ", 10)
				history := fmt.Sprintf("start %sfault a×1 0s %s [a: Ongoing ×%d] 20m [a: Finished ×%d]",
					before, emits+"12s", n, n)
				t.Run(fmt.Sprintf("%v, %q, %d calls", after, before, late), func(t *testing.T) {
					play(t, history, fault, nil)
				})
			}
		}
	}
	patch := func(c eventstest.Call) bool { return strings.Contains(c.Body, `"count":2,`) }
	calls := 0
	fault := where(patch, serially(func(context.Context, eventstest.Call) error {
		calls++
		if calls > 1 {
			return nil
		}
		return &eventstest.LateError{After: time.Minute, Err: errReset}
	}))
	play(t, "start a×1 1s fault a×1 0s a×50 5s [a: Ongoing ×52] 20m [a: Finished ×52]", fault, nil)
}

// TestLateCreates: the server carries out a create after the object that was created in its place
// is gone. While the series goes on, its next write counts everything. What comes back of a series
// that has ended stays as it is until the server forgets it once more. docs/events.md says so.
// Recording stops for the four occurrences: else their first write may have some of them, and the
// rest follows ten seconds later.
func TestLateCreates(t *testing.T) {
	for name, tc := range map[string]struct {
		after   time.Duration
		history string
	}{
		"goes on":    {30 * time.Second, "start ttl=20s fault a×1 25s [a: ] 6s [a: single] ttl=1h a×2 20m [a: Finished ×3]"},
		"is counted": {30 * time.Second, "start ttl=20s fault a×1 25s stop a×4 run 6s [a: Ongoing ×5] ttl=1h 20m [a: Finished ×5]"},
		"has ended":  {10 * time.Minute, "idle ttl=1m a×3 fault run 9m [a: ] 61s [a: Ongoing ×3] 1m [a: ]"},
	} {
		calls := 0
		fault := where(inNS, serially(func(context.Context, eventstest.Call) error {
			calls++
			if calls > 1 {
				return nil
			}
			return &eventstest.LateError{After: tc.after, Err: errReset}
		}))
		t.Run(name, func(t *testing.T) { play(t, tc.history, fault, nil) })
	}
}

func TestHTTPStatusesAreCovered(t *testing.T) {
	for code := 400; code < 600; code++ {
		err := apierrors.NewGenericServerResponse(code, "POST", resource, "x", "", 0, false)
		v := judge(t.Context(), err)
		switch {
		case code == http.StatusConflict && v.verdict == verdictConflict:
		case code == http.StatusNotFound && v.verdict == verdictMissing:
		case (code == 401 || code == 408 || code == 429) && v.verdict == verdictTrouble:
		case (code == 500 || code == 504) && v.verdict == verdictFault:
		case code > 500 && v.verdict == verdictTrouble:
		case code < 500 && v.verdict == verdictRefused:
		default:
			t.Errorf("%d is judged %d %s", code, v.verdict, v.reason)
		}
		if v.reason == "" {
			t.Errorf("%d has no reason", code)
		}
	}
	noServer := apierrors.NewGenericServerResponse(http.StatusNotFound, "POST", resource, "x", "404 page not found", 0, true)
	if v := judge(t.Context(), noServer); v.verdict != verdictTrouble {
		t.Errorf("a 404 of something that is no API server is judged %d", v.verdict)
	}
}
