// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// limitedRig starts a rig whose client may make as many calls a second.
func limitedRig(t *testing.T, qps float32, change func(*Options, kubernetes.Interface)) (r *rig, client kubernetes.Interface) {
	server := eventstest.NewServer()
	server.SetTTL(1000 * time.Hour)
	client = must(kubernetes.NewForConfig(&rest.Config{
		Host: "http://server", Transport: server.Transport(), QPS: qps, Burst: 1,
	}))(t)
	r = newRig(t, server, func(o *Options) {
		o.Sink = NewClientSink(client)
		change(o, client)
	})
	return r, client
}

// drained lets time pass until all is sent, and returns how much.
func (r *rig) drained(longest time.Duration) (took time.Duration) {
	for r.Stats().Unsent > 0 && took < longest {
		pass(time.Minute)
		took += time.Minute
	}
	return took
}

// singles emits an event about each of n pods.
func (r *rig) singles(n int) {
	for i := range n {
		r.rec.Eventf(podRef(fmt.Sprint("p", i)), nil, corev1.EventTypeNormal, "R", "A", "n")
	}
}

// TestSlowClient: the own client lets few calls through, and the server is well. No event is lost,
// no call is made twice, and all of the client's tokens are used for the events.
func TestSlowClient(t *testing.T) {
	const n = 200
	sinks := map[string]func(*Options, kubernetes.Interface){
		"ours": func(*Options, kubernetes.Interface) {},
		"of client-go": func(o *Options, c kubernetes.Interface) {
			o.Sink = &clientevents.EventSinkImpl{Interface: c.EventsV1()}
		},
	}
	for name, sink := range sinks {
		for _, qps := range []float32{0.01, 0.1, 1} {
			t.Run(fmt.Sprint(name, ", ", qps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, _ := limitedRig(t, qps, sink)
					r.singles(n)
					least := time.Duration(n / qps * float32(time.Second))
					if took := r.drained(2 * least); took > least*11/10+time.Minute {
						t.Errorf("it took %v, want about %v", took, least)
					}
					r.wantStored(n)
					r.wantBooks(0, 0)
					s := r.Stats()
					if calls, _ := r.server.Count(); calls != n || s.Calls["create"] != n || len(s.Rejected) > 0 {
						t.Errorf("%d calls, counted %v, rejected %v", calls, s.Calls, s.Rejected)
					}
					tries := s.Retries["ClientRateLimit"]
					if name == "ours" && tries > 0 || float64(tries) > 2*n+least.Seconds()/10 || len(s.Retries) > 1 {
						t.Errorf("in %v retries %v", least, s.Retries)
					}
				})
			})
		}
	}
}

// TestBusyClient: a controller keeps its client so busy that each call waits for longer than a call
// may last. Events wait like the others.
func TestBusyClient(t *testing.T) {
	const wait = 2 * writeTimeout
	synctest.Test(t, func(t *testing.T) {
		r, client := limitedRig(t, 5, func(*Options, kubernetes.Interface) {})
		for range int(5 * wait.Seconds()) {
			go func() {
				for t.Context().Err() == nil {
					_, _ = client.CoreV1().Events("x").Get(t.Context(), "x", metav1.GetOptions{})
				}
			}()
		}
		pass(time.Minute)
		r.singles(20)
		if took := r.drained(time.Hour); took > 20*wait+time.Minute {
			t.Errorf("it took %v", took)
		}
		r.wantStored(20)
		r.wantBooks(0, 0)
		if s := r.Stats(); len(s.Retries) > 0 || s.Calls["create"] != 20 {
			t.Errorf("retries %v, calls %v", s.Retries, s.Calls)
		}
	})
}

// TestTimeOfACallAfterItsTurn: a call that has waited for its turn has all of its time for the
// server, and no more.
func TestTimeOfACallAfterItsTurn(t *testing.T) {
	const slow = writeTimeout - time.Second
	synctest.Test(t, func(t *testing.T) {
		r, _ := limitedRig(t, 1/float32(2*slow.Seconds()), func(o *Options, _ kubernetes.Interface) { o.Writers = 1 })
		r.server.SetFault(slowly(slow))
		r.singles(5)
		r.drained(time.Hour)
		r.wantStored(5)
		r.wantBooks(0, 0)
		if s := r.Stats(); len(s.Retries) > 0 {
			t.Errorf("retries %v", s.Retries)
		}
		r.server.SetFault(slowly(time.Hour))
		r.pod("late", 1)
		pass(2*slow + writeTimeout + time.Second)
		if n := r.Stats().Retries["Transport"]; n < 1 || n > 2 {
			t.Errorf("%d retries of calls that had their time, want one or two", n)
		}
	})
}

// TestShutdownOfASlowClient ends by its deadline, and says that the client was the reason.
func TestShutdownOfASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := limitedRig(t, 0.1, func(*Options, kubernetes.Interface) {})
		r.singles(20)
		pass(time.Second)
		begin := time.Now()
		err := r.shutdown(5 * time.Second)
		var unsent *UnsentError
		if !errors.As(err, &unsent) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Errorf("the shutdown says %v", err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if s := r.Stats(); s.Calls["read"] > 0 || len(s.Rejected) > 0 {
			t.Errorf("calls %v, rejected %v", s.Calls, s.Rejected)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, _ := limitedRig(t, 0.1, func(*Options, kubernetes.Interface) {})
		r.singles(20)
		pass(time.Second)
		noError(t, r.ShutdownWithContext(context.Background()))
		r.wantStored(20)
		if s := r.Stats(); s.Calls["read"] > 0 {
			t.Errorf("calls %v: what was not sent needs no read", s.Calls)
		}
	})
}
