// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// The benchmarks of this file drive the core without goroutines, so that what they show is the work
// of the loop's one goroutine. What a relist costs with its RPCs is measured in test/peer.

// benchStatus is a status of which nothing but its existence matters here.
type benchStatus struct{ _ int }

// deck is a core and the node that it is shown.
type deck struct {
	*driver[benchStatus]
	mail   *mailbox[benchStatus]
	pods   []Pod
	listed listedAll // the child's, which is not what is measured
	now    instant
	shown  map[cache.UID]Pod // by the last list that named the pod
}

// newDeck returns a core that has listed and inspected a node of two containers a pod, all running,
// and whose stream is up.
func newDeck(pods int) *deck {
	cfg := Config[benchStatus]{Cache: cache.New[benchStatus](nil), Source: deadSource{}, Stream: deadSource{}, Capacity: 1 << 20}
	d := &deck{
		driver: newDriver(cfg, clock{epoch: time.Now()}),
		mail:   newMailbox[benchStatus](defaultMailboxMax),
		now:    1,
		shown:  make(map[cache.UID]Pod, pods),
	}
	for i := range pods {
		p := Pod{UID: cache.UID(fmt.Sprintf("%036d", i)), Name: fmt.Sprintf("pod-%d", i), Namespace: "bench"}
		p.Items = append(p.Items, Item{ID: fmt.Sprintf("%064x", i), Kind: Sandbox, Phase: PhaseRunning})
		for k := range 2 {
			p.Items = append(p.Items, Item{ID: fmt.Sprintf("%032x%032x", k+1, i), Kind: Container, Phase: PhaseRunning})
		}
		d.pods = append(d.pods, p)
	}
	d.start(d.now)
	d.list(Listing{Pods: d.pods})
	d.step(time.Minute) // the stream has settled
	for range 5 {
		d.list(Listing{Pods: d.pods})
		d.step(time.Minute)
	}
	return d
}

// step lets time pass, and does what the loop would.
func (d *deck) step(by time.Duration) {
	d.now = d.now.add(by)
	d.tick(d.now)
	d.act()
}

// act makes the reads that the core wants, which all succeed at once, until it wants none. Lists it
// wants are not made: the benchmarks make their own.
func (d *deck) act() {
	for len(d.begun) > 0 {
		begun := d.begun
		d.begun = nil
		for _, a := range begun {
			switch a.kind {
			case actList:
				d.core.lists.inflight = false
				d.core.trust.sched.ended = d.now
			case actInspect:
				d.now++
				r := &inspected[benchStatus]{look: look{uid: a.uid, began: a.at, shows: a.read.ref}, status: &benchStatus{}}
				if len(a.read.ref.Items) == 0 { // the read begins with a list of the pod
					r.shows = d.shown[a.uid]
					r.listing = &r.shows
				}
				d.onInspected(r, d.now)
			}
		}
		d.core.dispatch(d.now)
		d.settle()
	}
	d.reports = d.reports[:0]
}

// list applies a list of everything.
func (d *deck) list(l Listing) {
	d.now++
	d.core.list(d.now)
	d.settle()
	d.begun = d.begun[:len(d.begun)-1]
	began := d.now
	d.now++
	for _, p := range l.Pods {
		d.shown[p.UID] = p
	}
	d.listed = listedAll{began: began, listing: l}
	d.onListed(&d.listed, d.now)
	d.core.dispatch(d.now)
	d.settle()
	d.act()
}

// drain empties Watch.
func (d *deck) drain() {
	for range d.watched {
	}
}

// deadSource is never asked.
type deadSource struct{}

var errDead = errors.New("nobody is to ask")

func (deadSource) List(context.Context, Revision) (Listing, error) { return Listing{}, errDead }
func (deadSource) ListPod(context.Context, cache.UID) (Pod, error) { return Pod{}, errDead }
func (deadSource) Inspect(context.Context, Pod) (i Inspection[benchStatus], err error) {
	return i, errDead
}
func (deadSource) Events(context.Context) iter.Seq2[Claim[benchStatus], error] {
	return func(func(Claim[benchStatus], error) bool) {}
}

// exited returns the pod with one more container exited.
func exited(p Pod, n int) Pod {
	p.Items = slices.Clone(p.Items)
	p.Items[1+n].Phase = PhaseExited
	return p
}

// BenchmarkApply applies one list of everything to the ledger: one that says that nothing has
// changed, one that shows everything without saying so, and one that shows 1 % of the pods, which
// have a container that exited, and their inspections, those a moment after the ends included (made
// afresh after every hundred rounds).
func BenchmarkApply(b *testing.B) {
	for _, containers := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("containers=%d/nothing", containers), func(b *testing.B) {
			d := newDeck(containers / 2)
			b.ReportAllocs()
			for b.Loop() {
				d.list(Listing{Delta: true, Total: len(d.pods)})
			}
		})
		b.Run(fmt.Sprintf("containers=%d/everything", containers), func(b *testing.B) {
			d := newDeck(containers / 2)
			b.ReportAllocs()
			for b.Loop() {
				d.list(Listing{Pods: d.pods})
			}
		})
		b.Run(fmt.Sprintf("containers=%d/changed-1-percent", containers), func(b *testing.B) {
			d := newDeck(containers / 2)
			share := len(d.pods) / 100
			b.ReportAllocs()
			round := 0
			for b.Loop() {
				if round == 100 {
					b.StopTimer()
					d, round = newDeck(containers/2), 0
					b.StartTimer()
				}
				changed := make([]Pod, share)
				for i := range changed {
					changed[i] = exited(d.pods[round*share+i], 0)
				}
				d.list(Listing{Delta: true, Total: len(d.pods), Pods: changed})
				d.step(2 * defaultEndSettle) // and the look at each pod a moment after the end
				for range share {
					d.step(putOffLeast)
				}
				d.drain()
				round++
			}
			b.ReportMetric(float64(share), "pods/op")
		})
	}
}

// claimOf returns the event of container n of a pod as package cri would yield it.
func claimOf(p *Pod, n int, phase Phase) Claim[benchStatus] {
	return Claim[benchStatus]{
		Pod: p.UID, Item: Item{ID: p.Items[1+n].ID, Phase: phase}, Payload: p.Items, CreatedAt: time.Unix(1, 0),
		Status: func(*benchStatus) (*benchStatus, error) { return &benchStatus{}, nil },
	}
}

// BenchmarkClaims takes one event from the receive loop through the mailbox into the ledger: one
// that tells what is known already, and one that tells of an exit with the status that goes with
// it, up to Watch. Every so many events the loop empties the mailbox.
func BenchmarkClaims(b *testing.B) {
	for _, burst := range []int{1, 100} {
		take := func(d *deck, taken *batch[benchStatus]) {
			d.now++
			d.mail.take(taken)
			d.claims(taken, d.now)
			d.mail.recycle(taken)
		}
		b.Run(fmt.Sprintf("known/burst=%d", burst), func(b *testing.B) {
			d := newDeck(1000)
			claims := make([]Claim[benchStatus], len(d.pods))
			for i := range d.pods {
				claims[i] = claimOf(&d.pods[i], i%2, PhaseRunning)
			}
			var taken batch[benchStatus]
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d.mail.put(claims[i%len(claims)], false)
				if i++; i%burst == 0 {
					take(d, &taken)
				}
			}
		})
		b.Run(fmt.Sprintf("exit/burst=%d", burst), func(b *testing.B) {
			const pods = 10_000
			var d *deck
			var claims []Claim[benchStatus]
			fill := func() {
				d, claims = newDeck(pods), make([]Claim[benchStatus], pods)
				for i := range d.pods {
					p := exited(d.pods[i], 0)
					claims[i] = claimOf(&p, 0, PhaseExited)
				}
			}
			fill()
			var taken batch[benchStatus]
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i == pods {
					b.StopTimer()
					fill()
					i = 0
					b.StartTimer()
				}
				d.mail.put(claims[i], false)
				if i++; i%burst == 0 {
					take(d, &taken)
					d.drain()
				}
			}
		})
	}
}

// BenchmarkTurn is one turn of the loop with nothing to do, apart from the select, on nodes of
// different sizes.
func BenchmarkTurn(b *testing.B) {
	for _, containers := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			d := newDeck(containers / 2)
			g := &Generator[benchStatus]{cfg: *d.exec.cfg, core: d.core, exec: d.exec}
			l := newLoop(g, b.Context())
			b.ReportAllocs()
			for b.Loop() {
				d.now++
				d.tick(d.now)
				l.publish()
				_ = d.core.deadline()
			}
		})
	}
}

// BenchmarkTurnWithoutLists is one turn of the loop while no list answers, and every pod is looked
// at once in a while, on nodes of different sizes.
func BenchmarkTurnWithoutLists(b *testing.B) {
	for _, pods := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			d := newDeck(pods)
			d.core.list(d.now)
			d.settle()
			d.now = d.now.add(time.Minute)
			d.tick(d.now)
			d.settle()
			d.now = d.now.add(peekPoll)
			d.tick(d.now)
			if len(d.core.peeks.of) != pods {
				b.Fatalf("%d of %d pods are looked at", len(d.core.peeks.of), pods)
			}
			for b.Loop() {
				d.now++
				d.tick(d.now)
				_ = d.core.deadline()
			}
		})
	}
}

// BenchmarkDemand serves waiters, each of another pod: the demand is taken, and each pod's read
// shows it unchanged.
func BenchmarkDemand(b *testing.B) {
	for _, waiters := range []int{1, 10} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			d := newDeck(5000)
			demand := make(map[cache.UID]cache.Demand, waiters)
			var result inspected[benchStatus] // the child's, which is not what is measured
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				clear(demand)
				for range waiters {
					demand[d.pods[i%len(d.pods)].UID] = cache.Demand{Phases: d.core.out.clock.time(d.now)}
					i++
				}
				d.now++
				d.tell(input[benchStatus]{kind: inputDemand, demand: demand}, d.now)
				d.now += 2
				d.tick(d.now)
				for _, a := range d.begun {
					if a.kind == actInspect {
						result = inspected[benchStatus]{look: look{uid: a.uid, began: a.at, listing: &Pod{UID: a.uid, Items: a.read.have}}}
						d.onInspected(&result, d.now+1)
					}
				}
				d.begun = d.begun[:0]
				d.now++
			}
		})
	}
}

// BenchmarkMemory is what the ledger and the cache hold of a node, for each container, beside its
// strings and statuses.
func BenchmarkMemory(b *testing.B) {
	const containers = 100_000
	var before, after runtime.MemStats
	for b.Loop() {
		pods := newDeck(containers / 2).pods // their strings are the source's
		d := newDeck(0)                      // Watch's buffer is big here, and not counted
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&before)
		d.list(Listing{Pods: pods})
		d.step(time.Minute)
		d.list(Listing{Delta: true, Total: len(pods)})
		d.drain()
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(pods)
		runtime.KeepAlive(d)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/containers, "B/container")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkClaimOfManyIDs claims as many IDs of a pod as the core takes in, by a single payload:
// also while a call of the agent's own is under way, because each claim asks what waits for that.
func BenchmarkClaimOfManyIDs(b *testing.B) {
	for _, ids := range []int{100, 10_000, 100_000} {
		for _, during := range []string{"rest", "call"} {
			b.Run(fmt.Sprintf("%s/ids=%d", during, ids), func(b *testing.B) {
				claims := claimsOf("00", ids)
				d := newDeck(1)
				if during == "call" {
					d.core.calls.begin(d.core.ensure("00"), &ownCall{serial: 1})
				}
				for b.Loop() {
					d.claims(claims, d.now)
					d.core.resolve(settlement{pod: d.core.pods["00"], began: d.now.add(time.Minute)})
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ids), "ns/ID")
			})
		}
	}
}

// BenchmarkReadOfManyIDs applies reads of one pod: the cost of an ID does not grow with their
// number, whatever the read lacks.
func BenchmarkReadOfManyIDs(b *testing.B) {
	broken := errors.New("a status cannot be read")
	for _, ids := range []int{100, 10_000} {
		items := make([]Item, ids)
		names := make([]string, ids)
		for i := range items {
			names[i] = fmt.Sprintf("%064x", i)
			items[i] = Item{ID: names[i], Phase: PhaseRunning}
		}
		for _, read := range []struct {
			name   string
			listed []Item // by the listing in the read; nil: there is none
			shows  []Item
			unread []string
			peek   bool
		}{
			{name: "whole", shows: items},
			{name: "without half", shows: items[ids/2:]},
			{name: "half not listed", listed: items, shows: items[ids/2:]},
			{name: "none readable", shows: items, unread: names},
			{name: "peek", shows: items, unread: names[ids/2:], peek: true},
		} {
			b.Run(fmt.Sprintf("%s/ids=%d", read.name, ids), func(b *testing.B) {
				d := newDeck(0)
				pod := Pod{UID: "p", Items: items}
				d.list(Listing{Pods: []Pod{pod}})
				for b.Loop() {
					b.StopTimer() // the pod as before
					d.step(time.Minute)
					d.read(pod, &inspected[benchStatus]{status: new(benchStatus), look: look{shows: pod}})
					r := &inspected[benchStatus]{
						look:   look{shows: Pod{UID: "p", Items: read.shows}, unread: setOf(read.unread)},
						status: new(benchStatus),
						peek:   read.peek,
					}
					if len(read.unread) > 0 {
						r.err = broken
					}
					if read.listed != nil {
						r.listing = &Pod{UID: "p", Items: read.listed}
					}
					d.step(time.Minute)
					b.StartTimer()
					d.read(pod, r)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ids), "ns/ID")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkListOfGhosts applies lists that show IDs of which a read has shown no status: the cost
// of an ID does not grow with their number.
func BenchmarkListOfGhosts(b *testing.B) {
	for _, ids := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("ids=%d", ids), func(b *testing.B) {
			pod := Pod{UID: "p", Items: make([]Item, ids)}
			for i := range pod.Items {
				pod.Items[i] = Item{ID: fmt.Sprintf("%064x", i), Phase: PhaseRunning}
			}
			d := newDeck(0)
			d.list(Listing{Pods: []Pod{pod}})
			d.step(time.Minute)
			d.read(pod, &inspected[benchStatus]{status: new(benchStatus), look: look{shows: pod}})
			for b.Loop() {
				b.StopTimer()
				d.step(time.Minute)
				d.read(pod, &inspected[benchStatus]{
					status: new(benchStatus),
					look:   look{listing: &pod, shows: Pod{UID: "p", Items: pod.Items[ids/2:]}},
				})
				d.step(time.Minute)
				b.StartTimer()
				d.list(Listing{Pods: []Pod{pod}})
				b.StopTimer()
				d.step(time.Minute)
				d.read(pod, &inspected[benchStatus]{status: new(benchStatus), look: look{shows: pod}})
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ids), "ns/ID")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// read has a pod read, as if by the loop.
func (d *deck) read(pod Pod, r *inspected[benchStatus]) {
	p := d.core.ensure(pod.UID)
	r.uid = pod.UID
	if r.peek {
		x := d.core.peeks.ensure(pod.UID)
		d.core.peeks.begin(x, d.core.named(p, nil, nil), nil, d.now)
		r.began = x.began
	} else {
		d.core.inspect(p, laneFirst, d.now)
		r.began = d.core.reads.inflight[p].began
	}
	d.settle()
	d.begun = d.begun[:0] // it is made here
	d.now = d.now.add(time.Millisecond)
	d.onInspected(r, d.now)
}
