// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// inspects turns the core at the present time and returns the read of the pod that it begins, nil
// if it begins none.
func (w *moving) inspects(p *pod) *podRead {
	w.begun = nil
	w.tick(w.now)
	for _, a := range w.begun {
		if a.kind == actInspect && a.uid == p.uid {
			return a.read
		}
	}
	return nil
}

// claim has the stream tell of one ID of pod p, with a payload if there are items for one. It
// returns the status that the payload offers.
func (w *moving) claim(it Item, payload ...Item) *status {
	w.now += instant(time.Millisecond)
	offered := &status{UID: "p", Items: payload}
	l := &podClaims[status]{pod: "p", claims: 1, latest: []latestClaim{{item: it}}}
	if len(payload) > 0 {
		l.payload, l.status = payload, func() (*status, error) { return offered, nil }
	}
	w.claims(&batch[status]{claims: 1, pods: []*podClaims[status]{l}}, w.now)
	return offered
}

// TestAStateThatIsLostIsNotFresh: a container that is said to be gone comes back in lists that do
// not know its state. By the second of them the status in the cache, from when it ran, stands for
// what is known in everything but that state, of which nobody knows: no list makes it as good as
// new, neither of the pod nor of the whole runtime, and the statuses are read at once, of what that
// list showed (many such pods would else be listed together again and again).
func TestAStateThatIsLostIsNotFresh(t *testing.T) {
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseRunning}
	w := newMoving()
	w.list(Pod{UID: "p", Items: []Item{s, c}})
	w.read("p", s, c)
	fresh := w.cache.AsOf("p")
	w.claim(phased(c, PhaseRemoved))
	w.now += instant(3 * time.Second)
	lost := Pod{UID: "p", Items: []Item{s, phased(c, PhaseUnknown)}}
	w.list(lost)
	w.list(lost)
	p := w.core.pods["p"]
	if shown, _ := w.cache.Get("p"); !p.settled() || !p.statusUnknown() || shown.Items[1] != c {
		t.Fatalf("the cache shows %v, settled %t: this test is about something else", shown, p.settled())
	}
	if at := w.cache.AsOf("p"); !at.Equal(fresh) {
		t.Errorf("the status that shows c Running is as of %v, and the read that showed it of %v", at, fresh)
	}
	if r := w.inspects(p); r == nil || !r.listed || r.builds {
		t.Errorf("the statuses are to be read at once, of what the list showed, and none is to be taken over: %+v", r)
	}
	w.read("p", s, phased(c, PhaseUnknown))
	if shown, _ := w.cache.Get("p"); shown.Items[1].Phase != PhaseUnknown || !w.cache.AsOf("p").After(fresh) {
		t.Errorf("the statuses do not know the state of c, and the cache shows %v", shown)
	}
}

// TestAPayloadAfterAReadThatDidNotKnow: a read that is interrupted has listed a container whose
// state the runtime does not know. Whether what the stream tells of it, before or after, is older
// than that nobody knows, so that no payload settles it.
func TestAPayloadAfterAReadThatDidNotKnow(t *testing.T) {
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseRunning}
	for name, before := range map[string]bool{"told before the read": true, "told after the read": false} {
		t.Run(name, func(t *testing.T) {
			w := newMoving()
			w.list(Pod{UID: "p", Items: []Item{s}})
			w.read("p", s)
			if before {
				w.claim(phased(c, PhaseCreated))
			}
			p := w.core.pods["p"]
			w.now += instant(time.Millisecond)
			p.reading, w.core.inflight[p] = true, flight{began: w.now, started: w.now, interrupted: true}
			shown := Pod{UID: "p", Items: []Item{s, phased(c, PhaseUnknown)}}
			w.onInspected(&inspected[status]{uid: "p", began: w.now, asked: w.now, listing: &shown, err: errors.New("canceled")}, w.now+1)
			w.now++
			if x := w.core.index["c"]; x == nil || p.failed || p.disagrees || len(p.unconfirmed) > 0 {
				t.Fatalf("%+v: this test is about something else", p)
			}
			offered := w.claim(c, s, c)
			if now, _ := w.cache.Get("p"); now == offered {
				t.Errorf("the cache shows %v, which may be older than the read that did not know", now)
			}
			w.read("p", s, c)
			if now, _ := w.cache.Get("p"); !slices.Equal(now.Items, []Item{s, c}) {
				t.Errorf("a read knows, and the cache shows %v", now)
			}
		})
	}
}

// TestWhatWasOverruledStaysSo: the end of a container was told, and a read has overruled that. A
// list that was under way at the same time still shows that end: it may have looked at what has
// been overruled, and is not believed, but the pod is read again. A list that begins later is.
func TestWhatWasOverruledStaysSo(t *testing.T) {
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseRunning}
	ended := Pod{UID: "p", Items: []Item{s, phased(c, PhaseExited)}}
	w := newMoving()
	w.list(Pod{UID: "p", Items: []Item{s, c}})
	w.read("p", s, c)
	w.claim(phased(c, PhaseExited))
	w.now += instant(3 * time.Second)
	w.read("p", s, c)
	p, x := w.core.pods["p"], w.core.index["c"]
	if n := w.core.count.overruled; n != 1 || x.phase != PhaseRunning {
		t.Fatalf("%d claims are overruled, c is %v: this test is about something else", n, x.phase)
	}
	w.revision++
	w.onListed(&listedAll{began: w.now, listing: Listing{Revision: w.revision, Pods: []Pod{ended}}}, w.now+2)
	w.now += 2
	if x.phase != PhaseRunning || !p.unsure() {
		t.Errorf("a list from before the claim was overruled has c %v, the pod to be read: %t", x.phase, p.unsure())
	}
	w.list(ended)
	if x.phase != PhaseExited {
		t.Errorf("a later list shows that c has exited, and it is %v", x.phase)
	}
}

// TestAListingFromBeforeWhatIsForgotten: a pod waits for a worker to be listed, when a list shows
// it. By the time of its turn what came after that list may have been forgotten (only pods that
// wait to be inspected as listed hold the forgetting back): the pod is listed anew.
func TestAListingFromBeforeWhatIsForgotten(t *testing.T) {
	s := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}
	for name, forgotten := range map[string]bool{"forgotten": true, "remembered": false} {
		t.Run(name, func(t *testing.T) {
			w := newMoving()
			w.list(Pod{UID: "q", Items: []Item{phased(s, PhaseExited)}})
			w.claim(Item{ID: "t", Kind: Sandbox, Phase: PhaseRunning})
			w.list(Pod{UID: "p", Items: []Item{{ID: "t", Kind: Sandbox, Phase: PhaseRunning}}})
			p := w.core.pods["p"]
			if p.queued != inReady || !p.listingServes() {
				t.Fatalf("it is queued in %d, as listed: %t: this test is about something else", p.queued, p.listingServes())
			}
			if forgotten {
				w.core.forgotten = p.listingBegan + 1
			}
			if r := w.inspects(p); r == nil || r.listed == forgotten {
				t.Errorf("its read is %+v", r)
			}
		})
	}
}
