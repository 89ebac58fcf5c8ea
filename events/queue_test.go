// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// spot is a caller of a queue, without a series.
type spot struct {
	at     place
	ticket ticket
}

func (s *spot) place() place { return s.at }

// bench is a queue with a clock.
type bench struct {
	*queue
	now time.Time
}

func newBench(width int) *bench {
	pace := ladder{base: time.Second, longest: 30 * time.Second, jitter: func() float64 { return 0.5 }}
	q := newQueue(width, pace)
	return &bench{&q, time.Unix(1_000_000, 0)}
}

// add puts a call about an object of a namespace into the queue.
func (b *bench) add(namespace, object string) *spot {
	s := &spot{at: place{
		namespace: namespace,
		kind:      callCreate,
		object:    objectKey{namespace: namespace, name: object},
	}}
	s.ticket.owner = s
	b.push(&s.ticket, false)
	return s
}

// next takes the next call, "" for none, and the time until one may be made.
func (b *bench) next() (*spot, string, time.Duration) {
	t, wait := b.take(b.now)
	if t == nil {
		return nil, "", wait
	}
	s := t.owner.(*spot)
	return s, s.at.namespace + "/" + s.at.object.name, 0
}

// refuse fails a call, which is to be made again.
func (b *bench) refuse(s *spot) blamed {
	on := b.failed(s.at, failure{now: b.now})
	b.push(&s.ticket, false)
	return on
}

func (b *bench) wantNext(t *testing.T, want string) *spot {
	t.Helper()
	s, got, _ := b.next()
	if got != want {
		t.Fatalf("next is %q, want %q", got, want)
	}
	return s
}

// TestSmallestScope: a failure is blamed on the object, then on the namespace, then on the server.
func TestSmallestScope(t *testing.T) {
	b := newBench(20)
	var all []*spot
	for ns := range 5 {
		for i := range 4 {
			all = append(all, b.add(fmt.Sprint("ns", ns), fmt.Sprint("o", i)))
		}
	}
	for range all {
		if s, _, _ := b.next(); s == nil {
			t.Fatal("a healthy call waits")
		}
	}
	want := []string{"object", "object", "namespace", "namespace"}
	for i, s := range all[:12] { // three namespaces
		if on := b.refuse(s); on.scope != want[i%4] {
			t.Errorf("failure %d is blamed on the %s", i, on.scope)
		}
	}
	if got := b.closed(); got["server"] != 0 || got["namespace"] != 3 || got["object"] == 0 {
		t.Errorf("closed: %v", got)
	}
	b.succeeded(all[16].at, b.now) // another one answers
	if on := b.refuse(all[12]); on.scope != "object" {
		t.Errorf("after a success, a failure is blamed on the %s", on.scope)
	}
	if b.server.failing() {
		t.Error("the server is closed although a namespace answers")
	}
	b = newBench(20)
	for ns := range badNamespaces {
		b.add(fmt.Sprint("ns", ns), "o")
		s := b.wantNext(t, fmt.Sprint("ns", ns, "/o"))
		want := "object"
		if ns == badNamespaces-1 {
			want = "server"
		}
		if on := b.refuse(s); on.scope != want {
			t.Errorf("the failure of namespace %d is blamed on the %s", ns, on.scope)
		}
	}
}

// TestOneAtATime: with a single place all calls are made in order, whosever they are.
func TestOneAtATime(t *testing.T) {
	b := newBench(1)
	for _, object := range []string{"1", "2", "3"} {
		b.add("a", object)
	}
	b.add("b", "1")
	b.add("a", "4")
	for _, want := range []string{"a/1", "a/2", "a/3", "b/1", "a/4"} {
		s := b.wantNext(t, want)
		b.succeeded(s.at, b.now)
	}
}

// TestAskedToWait: a server that fails is tried with a call that it has not asked to wait; and not
// at all before the first may be made, if it has asked all of them.
func TestAskedToWait(t *testing.T) {
	const long = 10 * time.Minute
	for _, patient := range []bool{false, true} {
		b := newBench(20)
		for i := range badNamespaces {
			name := fmt.Sprint("ns", i)
			b.add(name, "o")
			s := b.wantNext(t, name+"/o")
			f := failure{now: b.now, after: long}
			if patient && i == badNamespaces-1 {
				f.after = 0
			}
			b.failed(s.at, f)
			b.push(&s.ticket, false)
		}
		if !b.server.failing() {
			t.Fatal("the server does not fail")
		}
		end := b.now.Add(time.Minute)
		tries := "" // the first within the minute
		for tries == "" && b.now.Before(end) {
			_, name, wait := b.next()
			tries = name
			b.now = b.now.Add(wait)
		}
		want := ""
		if patient {
			want = fmt.Sprint("ns", badNamespaces-1, "/o")
		}
		if tries != want {
			t.Errorf("with one that was not asked to wait (%v), %q tries the server, want %q", patient, tries, want)
		}
	}
}

// TestHealthyGoOn: a namespace that fails is tried by one call at a time; others are not delayed.
func TestHealthyGoOn(t *testing.T) {
	b := newBench(4)
	for i := range 100 {
		b.add("bad", fmt.Sprint("o", i))
	}
	tries, others := 0, 0
	end := b.now.Add(10 * time.Minute)
	for i := 0; b.now.Before(end); i++ {
		b.add("good", fmt.Sprint("o", i))
		for {
			s, name, _ := b.next()
			if s == nil {
				break
			}
			if s.at.namespace == "bad" {
				tries++
				b.refuse(s)
				continue
			}
			others++
			if name != fmt.Sprint("good/o", i) {
				t.Fatalf("%s comes late", name)
			}
			b.succeeded(s.at, b.now)
			b.renew(&s.ticket)
		}
		b.now = b.now.Add(time.Second)
	}
	if tries > 40 || others != 600 {
		t.Errorf("%d tries of the bad namespace, %d others", tries, others)
	}
}

// TestOneTry: a failing scope is tried by one call at a time, whatever becomes of calls that began
// before it failed.
func TestOneTry(t *testing.T) {
	ends := map[string]func(b *bench, s *spot){
		"fails":      func(b *bench, s *spot) { b.refuse(s) },
		"is refused": func(b *bench, s *spot) { b.refused(s.at, b.now) },
		"is heard":   func(b *bench, s *spot) { b.heard(s.at, b.now) },
		"is stopped": func(b *bench, s *spot) { b.stopped(s.at, b.now) },
	}
	for name, end := range ends {
		b := newBench(4)
		var all []*spot
		for i := range 8 {
			all = append(all, b.add("ns", fmt.Sprint("o", i)))
		}
		for range 4 {
			b.next()
		}
		for _, s := range all[:badObjects] {
			b.refuse(s)
		}
		b.now = b.now.Add(time.Minute)
		first, _, _ := b.next()
		if first == nil {
			t.Fatal("nobody tries the namespace")
		}
		end(b, all[3])
		if _, second, _ := b.next(); second != "" {
			t.Errorf("a call from before %s: %s tries the namespace beside %v", name, second, first.at.object.name)
		}
		b.succeeded(first.at, b.now)
		if _, next, _ := b.next(); next == "" {
			t.Errorf("a call from before %s: after the try, nothing is sent", name)
		}
	}
}

// TestTurns: where a namespace fails, its objects take turns, the newest ones too; where the server
// does, its namespaces.
func TestTurns(t *testing.T) {
	b := newBench(1)
	for i := range 100 {
		b.add("bad", fmt.Sprint("o", i))
	}
	seen := map[string]bool{}
	for range 50 {
		s, name, wait := b.next()
		if s == nil {
			b.now = b.now.Add(wait)
			continue
		}
		if name != "" && seen[name] && len(seen) < 20 {
			t.Fatalf("%s is tried again after %d", name, len(seen))
		}
		seen[name] = true
		b.refuse(s)
	}
	if !seen["bad/o99"] || !seen["bad/o0"] {
		t.Errorf("tried: %v", seen)
	}
	b = newBench(1)
	for ns := range 50 {
		b.add(fmt.Sprint("ns", ns), "o")
	}
	tried := map[string]bool{}
	for range 60 {
		s, _, wait := b.next()
		if s == nil {
			b.now = b.now.Add(wait)
			continue
		}
		if tried[s.at.namespace] {
			t.Fatalf("%s is tried again after %d", s.at.namespace, len(tried))
		}
		tried[s.at.namespace] = true
		b.refuse(s)
	}
}

// TestLuck: where the server refuses a part of all calls, many failures in a row are bad luck, and
// an object or a namespace with them is tried each few seconds; a single bad one less and less
// often.
func TestLuck(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		for _, failing := range []int{1, badObjects} {
			b := newBench(4)
			tries := 0
			refused := map[*spot]bool{}
			second := func(i int) { // another object fails once, if the server refuses calls, and is stored
				b.add(fmt.Sprint("ns", i%10), fmt.Sprint("o", i))
				for s, _, _ := b.next(); s != nil; s, _, _ = b.next() {
					switch {
					case s.at.namespace == "unlucky":
						tries++
						b.refuse(s)
					case refuses && !refused[s]:
						refused[s] = true
						b.refuse(s)
					default:
						b.succeeded(s.at, b.now)
						b.renew(&s.ticket)
					}
				}
				b.now = b.now.Add(time.Second)
			}
			for i := range 30 {
				second(i)
			}
			for i := range failing {
				b.add("unlucky", fmt.Sprint("u", i))
			}
			i := 30
			for ; tries < 15+failing; i++ {
				second(i)
			}
			if took := i - 30; refuses && took > 60 || !refuses && took < 120 {
				t.Errorf("server refuses calls: %v, %d objects fail: 15 tries in %d s", refuses, failing, took)
			}
		}
	}
}

// TestPausesGrow: where failures in a row are more than luck explains, the pauses grow from those
// before: an unlucky call is not punished for the failures that luck explains.
func TestPausesGrow(t *testing.T) {
	pace := newBench(1).pace
	for _, by := range []luck{{}, {possible: possible}, {likely: 4, possible: possible}, {likely: 19, possible: 19}} {
		last := pace.patient(1, by)
		for failures := 2; failures < 60; failures++ {
			d := pace.patient(failures, by)
			if d < last || d > 3*last {
				t.Errorf("luck %+v: a pause of %v after %d failures, of %v before", by, d, failures, last)
			}
			last = d
		}
		if last != 10*pace.delay(40) {
			t.Errorf("luck %+v: the longest pause is %v", by, last)
		}
	}
}

// TestHangingCalls: calls of a namespace that hang leave room for the others after two seconds.
func TestHangingCalls(t *testing.T) {
	b := newBench(4)
	for i := range 10 {
		b.add("hangs", fmt.Sprint("o", i))
	}
	for range 4 {
		if s, _, _ := b.next(); s == nil {
			t.Fatal("a healthy call waits")
		}
	}
	b.add("good", "a")
	if _, name, wait := b.next(); name != "" || wait != besideAfter {
		t.Fatalf("next is %q, or in %v", name, wait)
	}
	b.now = b.now.Add(besideAfter)
	b.succeeded(b.wantNext(t, "good/a").at, b.now)
	b.add("hangs", "more") // not of a namespace with calls under way
	b.add("good", "b")
	beside := b.wantNext(t, "good/b")
	b.add("other", "a") // and no second one
	if _, name, wait := b.next(); name != "" || wait <= slowAfter {
		t.Fatalf("next is %q, or in %v", name, wait)
	}
	b.now = b.now.Add(slowAfter)
	b.succeeded(beside.at, b.now)
	b.succeeded(b.wantNext(t, "other/a").at, b.now)
	for i := range 100 { // from now on, it is known which calls hang
		name := fmt.Sprint("c", i)
		b.add("good", name)
		b.succeeded(b.wantNext(t, "good/"+name).at, b.now)
	}
	for i := range 4 { // and as many of others are made at once as without them
		name := fmt.Sprint("d", i)
		b.add("good", name)
		b.wantNext(t, "good/"+name)
	}
}

// TestSlowNamespaces: as many namespaces as there may be calls are slow, and have a backlog. An
// event of another one waits for no more than a call of each.
func TestSlowNamespaces(t *testing.T) {
	for _, namespaces := range []int{1, 3, 4, 8} {
		b := newBench(4)
		for i := range 100 {
			b.add(fmt.Sprint("slow", i%namespaces), fmt.Sprint("o", i))
		}
		var flying []*spot
		fill := func() {
			for s, _, _ := b.next(); s != nil; s, _, _ = b.next() {
				flying = append(flying, s)
			}
		}
		fill()
		if len(flying) != 4 {
			t.Fatalf("%d calls are under way", len(flying))
		}
		b.add("good", "g")
		for calls := 1; ; calls++ {
			b.now = b.now.Add(50 * time.Millisecond)
			s := flying[0]
			flying = flying[1:]
			b.succeeded(s.at, b.now)
			b.renew(&s.ticket)
			fill()
			if slices.ContainsFunc(flying, func(s *spot) bool { return s.at.namespace == "good" }) {
				break
			}
			if calls > namespaces {
				t.Errorf("%d slow namespaces: the call of another one waits for more than %d of theirs", namespaces, calls)
				break
			}
		}
	}
}

// TestManyNamespaces: the next call is found without a look at each namespace that waits.
func TestManyNamespaces(t *testing.T) {
	b := newBench(4)
	for i := range many {
		b.add(fmt.Sprint("ns-", i), "o")
	}
	for range 3 {
		b.next()
	}
	turn := b.idle.items[0].space.name
	for name := range b.namespaces {
		if name != turn {
			b.namespaces[name] = nil
		}
	}
	ready := comparisons(&b.ready)
	idle := comparisons(&b.idle)
	timers := comparisons(&b.timers)
	unlooked(t, func() {
		s, _, _ := b.next()
		b.succeeded(s.at, b.now)
		b.renew(&s.ticket)
		b.push(&s.ticket, false)
	})
	wantFew(t, *ready)
	wantFew(t, *idle)
	wantFew(t, *timers)
}

// TestQueueAgainstPlain drives a queue with random failures of random scopes. Each call is made in
// the end, calls of an object in order and one at a time; and what a take promises holds.
func TestQueueAgainstPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(rapid.IntRange(1, 4).Draw(t, "width"))
		bad := map[string]bool{}
		waits := map[*spot]bool{}
		flying := []*spot{}
		var seqs int64
		check := func() {
			objects := map[objectKey]bool{}
			for _, s := range flying {
				if objects[s.at.object] {
					t.Fatalf("two calls of %v at a time", s.at.object)
				}
				objects[s.at.object] = true
			}
			if b.waiting != len(waits) || len(b.flights) != len(flying) {
				t.Fatalf("%d wait of %d, %d fly of %d", b.waiting, len(waits), len(b.flights), len(flying))
			}
			if len(flying) > 3*b.width {
				t.Fatalf("%d calls under way", len(flying))
			}
		}
		take := func() bool {
			s, _, wait := b.next()
			if s == nil {
				if wait <= 0 {
					t.Fatalf("a wait of %v", wait)
				}
				return false
			}
			delete(waits, s)
			flying = append(flying, s)
			return true
		}
		end := func(i int) {
			s := flying[i]
			flying = append(flying[:i:i], flying[i+1:]...)
			down := bad["server"] || bad[s.at.namespace] || bad[s.at.namespace+"/"+s.at.object.name]
			switch {
			case down && rapid.IntRange(0, 9).Draw(t, "how") == 0:
				b.held(s.at, failure{now: b.now})
			case down:
				b.failed(s.at, failure{now: b.now, everywhere: bad["server"] && rapid.Bool().Draw(t, "nobody")})
			case rapid.IntRange(0, 4).Draw(t, "answer") == 0:
				b.heard(s.at, b.now)
			default:
				b.succeeded(s.at, b.now)
				b.renew(&s.ticket)
				return
			}
			waits[s] = true
			b.push(&s.ticket, false)
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			name := fmt.Sprint("n", rapid.IntRange(0, 5).Draw(t, "ns"))
			object := fmt.Sprint("o", rapid.IntRange(0, 3).Draw(t, "object"))
			switch rapid.IntRange(0, 7).Draw(t, "do") {
			case 0, 1:
				waits[b.add(name, object)] = true
				seqs++
			case 2, 3:
				take()
			case 4, 5:
				if len(flying) > 0 {
					end(rapid.IntRange(0, len(flying)-1).Draw(t, "which"))
				}
			case 6:
				scope := rapid.SampledFrom([]string{"server", name, name + "/" + object}).Draw(t, "scope")
				bad[scope] = !bad[scope]
			case 7:
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "s")) * time.Second)
			}
			check()
		}
		clear(bad)
		for i := 0; len(waits)+len(flying) > 0; i++ {
			for take() {
			}
			for len(flying) > 0 {
				end(0)
			}
			check()
			b.now = b.now.Add(10 * time.Second)
			if i > 500 {
				t.Fatalf("%d calls are never made", len(waits))
			}
		}
		if len(b.objects) > 0 || b.timers.Len() > 0 || b.ready.Len()+b.idle.Len() > 0 {
			t.Fatalf("left: %d objects, %d timers, %d lanes", len(b.objects), b.timers.Len(), b.ready.Len()+b.idle.Len())
		}
	})
}
