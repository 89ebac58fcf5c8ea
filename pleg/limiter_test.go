// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// hangs is the work of a read that never ends by itself.
const hangs = time.Duration(math.MaxInt64)

// load is pods that need a read from a runtime of a few processors, which all reads under way
// share. A read that takes longer than the timeout fails, and is made again.
type load struct {
	processors int
	timeout    time.Duration
	arrives    []arrival
	change     func(at time.Duration, work time.Duration) time.Duration // of a read begun then
}

// arrival is a pod that needs a read.
type arrival struct {
	at, work time.Duration
}

// crowd returns pods that come together.
func crowd(n int, work time.Duration) (all []arrival) {
	for range n {
		all = append(all, arrival{work: work})
	}
	return all
}

// played is what became of a load.
type played struct {
	first   time.Duration // when the first read ended well
	last    time.Duration // when the last pod was read that can be
	waits   []time.Duration
	most    int // reads at once
	failed  int
	reads   int
	unended int // pods without a read
	ideal   time.Duration
}

type limitedRead struct {
	pod   int
	began time.Duration
	left  float64 // work, in seconds
	again bool
	hangs bool
}

// play plays a load in virtual time, with the lanes of the core.
func (l load) play(workers int, until time.Duration) (r played) {
	var lanes [2]lane[int]
	for i := range lanes {
		lanes[i].workers = workers
	}
	lanes[laneAgain].failed = true
	at := func(d time.Duration) instant { return firstInstant.add(d) }
	type retry struct {
		pod int
		at  time.Duration
	}
	var under []*limitedRead
	var retries []retry
	delays := make([]time.Duration, len(l.arrives))
	done := make([]bool, len(l.arrives))
	r.waits = make([]time.Duration, len(l.arrives))
	arrived, now := 0, time.Duration(0)
	total := time.Duration(0)
	for _, a := range l.arrives {
		if a.work != hangs {
			total += a.work
		}
	}
	r.ideal = total / time.Duration(l.processors)
	for now < until {
		for arrived < len(l.arrives) && l.arrives[arrived].at <= now {
			lanes[0].push(waiter[int]{pod: arrived, since: at(l.arrives[arrived].at)})
			arrived++
		}
		retries = slices.DeleteFunc(retries, func(x retry) bool {
			if x.at <= now {
				lanes[1].push(waiter[int]{x.pod, at(now), delays[x.pod]})
			}
			return x.at <= now
		})
		for i := range lanes {
			for lanes[i].may(at(now)) {
				p := lanes[i].take(at(now))
				lanes[i].begin(at(now))
				work := l.arrives[p].work
				if l.change != nil {
					work = l.change(now, work)
				}
				under = append(under, &limitedRead{pod: p, began: now, left: work.Seconds(), again: i == 1, hangs: work == hangs})
				r.reads++
			}
		}
		r.most = max(r.most, len(under))
		// The next event.
		next := until
		if arrived < len(l.arrives) {
			next = min(next, l.arrives[arrived].at)
		}
		for _, x := range retries {
			next = min(next, x.at)
		}
		for i := range lanes {
			if n := lanes[i].next(at(now)); n != never {
				next = min(next, time.Duration(n-firstInstant))
			}
		}
		working := 0
		for _, x := range under {
			next = min(next, x.began+l.timeout)
			if !x.hangs {
				working++
			}
		}
		share := min(1, float64(l.processors)/float64(max(working, 1)))
		for _, x := range under {
			if !x.hangs {
				next = min(next, now+max(1, time.Duration(math.Ceil(x.left/share*1e9))))
			}
		}
		passed := (next - now).Seconds() * share
		now = next
		under = slices.DeleteFunc(under, func(x *limitedRead) bool {
			if !x.hangs {
				x.left -= passed
			}
			well := !x.hangs && x.left <= 1e-9
			if !well && now < x.began+l.timeout {
				return false
			}
			i := 0
			if x.again {
				i = 1
			}
			lanes[i].end(at(x.began), well, at(now))
			if well {
				done[x.pod] = true
				r.waits[x.pod] = now - l.arrives[x.pod].at
				r.first = cmp.Or(r.first, now)
				r.last = now
			} else {
				r.failed++
				delays[x.pod] = min(max(time.Second, 2*delays[x.pod]), 32*time.Second)
				retries = append(retries, retry{x.pod, now + delays[x.pod]})
			}
			return true
		})
		if len(under) == 0 && len(retries) == 0 && arrived == len(l.arrives) && len(lanes[0].waiting)+len(lanes[1].waiting) == 0 {
			break
		}
	}
	for i, d := range done {
		if !d && l.arrives[i].work != hangs {
			r.unended++
		}
	}
	return r
}

func (r played) String() string {
	return fmt.Sprintf("last %v (ideal %v, %.2f), at most %d at once, %d reads, %d failed, %d without", r.last.Round(time.Millisecond), r.ideal.Round(time.Millisecond), float64(r.last)/float64(max(1, r.ideal)), r.most, r.reads, r.failed, r.unended)
}

// shuffled returns pods that come together, in a random order.
func shuffled(seed uint64, crowds ...[]arrival) []arrival {
	all := slices.Concat(crowds...)
	rand.New(rand.NewPCG(seed, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

const testWorkers = 8

// TestSlowIsNotHung holds that a runtime that is slow, and answers, is read in the time of its
// work, by few reads at once, none of which fails.
func TestSlowIsNotHung(t *testing.T) {
	const ms = time.Millisecond
	slows := func(at, work time.Duration) time.Duration { // suddenly, thirty times
		if at > 2*time.Second {
			return 30 * work
		}
		return work
	}
	for _, tc := range []struct {
		name string
		load load
		work time.Duration // of all reads, if it changes
	}{
		{name: "500 pods, 80 ms", load: load{arrives: crowd(500, 80*ms)}},
		{name: "1000 pods, 50 ms", load: load{arrives: crowd(1000, 50*ms)}},
		{name: "250 pods, 500 ms", load: load{arrives: crowd(250, 500*ms)}},
		{name: "250 pods, 500 ms, and 10 s until a read fails", load: load{arrives: crowd(250, 500*ms), timeout: 10 * time.Second}},
		{name: "110 pods, 200 ms", load: load{arrives: crowd(110, 200*ms)}},
		{name: "500 pods, 300 ms", load: load{arrives: crowd(500, 300*ms)}},
		{name: "500 pods, 10 ms, 300 ms from 2 s on", load: load{arrives: crowd(500, 10*ms), change: slows}, work: 2*time.Second + 300*300*ms},
		{name: "500 pods, 10 ms", load: load{arrives: crowd(500, 10*ms)}},
	} {
		l := tc.load
		l.processors = 1
		l.timeout = cmp.Or(l.timeout, 30*time.Second)
		r := l.play(testWorkers, 10*time.Minute)
		t.Logf("%-46s %v", tc.name, r)
		ideal := cmp.Or(tc.work, r.ideal)
		if r.failed+r.unended != 0 || r.most > 2*testWorkers || r.last > ideal*11/10 {
			t.Errorf("%s: %v", tc.name, r)
		}
	}
}

// TestTooSlowForItsTimeout holds that reads that time out since too many are made at once become
// fewer until they end.
func TestTooSlowForItsTimeout(t *testing.T) {
	r := load{processors: 1, timeout: 30 * time.Second, arrives: crowd(100, 2*time.Second)}.play(testWorkers, 10*time.Minute)
	t.Log(r)
	if r.unended != 0 || r.last > r.ideal*3/2 {
		t.Error(r)
	}
}

// TestSlowTenth holds that one read in ten that takes 200 times as long as the others does not fill
// the runtime with such reads.
func TestSlowTenth(t *testing.T) {
	var worst []time.Duration
	for seed := range uint64(20) {
		l := load{processors: 4, timeout: 30 * time.Second}
		l.arrives = shuffled(seed, crowd(450, 20*time.Millisecond), crowd(50, 4*time.Second))
		r := l.play(testWorkers, 10*time.Minute)
		worst = append(worst, r.last)
		if r.unended != 0 || r.last > r.ideal*3/2 {
			t.Errorf("seed %d: %v", seed, r)
		}
	}
	slices.Sort(worst)
	t.Logf("the last pod after %v, %v, %v (least, median, most)", worst[0], worst[10], worst[19])
}

// TestNewcomerBesideHungReads holds that a pod that newly needs a read beside any number of reads
// that hang has one soon.
func TestNewcomerBesideHungReads(t *testing.T) {
	for _, n := range []int{8, 16, 100, 1000, 3000} {
		var waits []time.Duration
		for _, at := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 20 * time.Second, 31 * time.Second, 5 * time.Minute} {
			newcomer := arrival{at: at, work: 10 * time.Millisecond}
			l := load{processors: 4, timeout: 30 * time.Second, arrives: append(crowd(n, hangs), newcomer)}
			r := l.play(testWorkers, at+time.Minute)
			waits = append(waits, r.waits[n].Round(time.Millisecond))
			if r.unended != 0 || r.waits[n] > 1500*time.Millisecond {
				t.Errorf("beside %d, at %v: the newcomer waits for %v", n, at, r.waits[n])
			}
		}
		t.Logf("beside %d reads that hang: %v", n, waits)
	}
}

// TestNewcomerAfterAFreeze holds the same on a runtime that has frozen for a while: all reads of
// that time ended well, and late, but the reads since tell that the runtime is not slow.
func TestNewcomerAfterAFreeze(t *testing.T) {
	const long = 12 * time.Second
	for _, n := range []int{8, 16, 100, 1000} {
		var waits []time.Duration
		for _, at := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
			l := load{processors: 4, timeout: 30 * time.Second, arrives: crowd(4, long)}
			from := long
			for range 4 {
				from += time.Second
				l.arrives = append(l.arrives, arrival{at: from, work: 300 * time.Millisecond})
			}
			from += time.Second
			for range n {
				l.arrives = append(l.arrives, arrival{at: from, work: hangs})
			}
			newcomer := len(l.arrives)
			l.arrives = append(l.arrives, arrival{at: from + at, work: 10 * time.Millisecond})
			r := l.play(testWorkers, from+at+time.Minute)
			waits = append(waits, r.waits[newcomer].Round(time.Millisecond))
			if r.unended != 0 || r.waits[newcomer] > 1500*time.Millisecond {
				t.Errorf("beside %d, at %v: the newcomer waits for %v", n, at, r.waits[newcomer])
			}
		}
		t.Logf("beside %d reads that hang: %v", n, waits)
	}
}

// TestNewcomersOnASlowRuntime holds that pods that need a read one after another, on a runtime
// which answers more rarely than the first probe comes, put off no pod that has waited for longer,
// and are not read all at once: once it is known how long reads last, by few more than the workers,
// and before by one more each second. Uneven reads tell it later, as the short ones end first.
func TestNewcomersOnASlowRuntime(t *testing.T) {
	const first = 40
	for _, tc := range []struct {
		name   string
		works  func(g *rand.Rand) float64 // the work of a read, of 1 on average
		comes  func(g *rand.Rand) float64 // when the next pod comes
		factor time.Duration              // how much longer the first may wait than if no others came
		most   int                        // reads at once, as a multiple of the workers
	}{
		{name: "even", works: one, comes: one, factor: 2, most: 2},
		{name: "uneven", works: func(g *rand.Rand) float64 { return 0.1 + 1.8*g.Float64() }, comes: (*rand.Rand).ExpFloat64, factor: 3, most: 4},
		{name: "one in ten slow", works: oneInTen, comes: (*rand.Rand).ExpFloat64, factor: 4, most: 4},
	} {
		for _, work := range []time.Duration{90, 110, 150, 250, 500, 900, 1500, 2500, 5000} {
			work *= time.Millisecond
			for seed := range uint64(10) {
				g := rand.New(rand.NewPCG(seed, 3))
				times := func(d time.Duration, x float64) time.Duration { return time.Duration(x * float64(d)) }
				l := load{processors: 1, timeout: time.Hour}
				for range first {
					l.arrives = append(l.arrives, arrival{work: times(work, tc.works(g))})
				}
				at := time.Duration(0)
				for range 200 {
					l.arrives = append(l.arrives, arrival{at: at, work: times(work, tc.works(g))})
					at += times(work*19/20, tc.comes(g))
				}
				r := l.play(testWorkers, time.Hour)
				longest := slices.Max(r.waits[:first])
				most := tc.most*testWorkers + int(r.first/probeBase)
				if seed == 0 {
					t.Logf("%s, %v: the first %d wait for %v at most: %v", tc.name, work, first, longest.Round(time.Millisecond), r)
				}
				if r.failed+r.unended != 0 || longest > tc.factor*first*work || r.most > most {
					t.Errorf("%s, %v, seed %d: the first %d wait for %v: %v, want at most %d", tc.name, work, seed, first, longest, r, most)
				}
			}
		}
	}
}

func one(*rand.Rand) float64 { return 1 }

// oneInTen returns 1 on average, and one time in ten nine times as much as otherwise.
func oneInTen(g *rand.Rand) float64 {
	if g.IntN(10) == 0 {
		return 5
	}
	return 5.0 / 9
}

// TestFailedBesideHungReads holds that pods whose reads have failed, and that can be read again,
// have their turn beside pods whose reads hang for ever and which come again and again: soon if one
// read has failed, and at some time if all have for long.
func TestFailedBesideHungReads(t *testing.T) {
	const late = time.Second // the work of the pod that heals
	for _, tc := range []struct {
		name         string
		comes, heals time.Duration
		most         time.Duration
	}{
		{name: "failed once", comes: 20 * time.Minute, heals: 20*time.Minute + 10*time.Second, most: time.Minute},
		{name: "failed for long", comes: time.Minute, heals: 20 * time.Minute, most: 10 * time.Minute},
	} {
		for _, n := range []int{16, 100, 300, 1000, 3000} {
			worst := time.Duration(0)
			for i := range 4 {
				shift := time.Duration(i) * 7777 * time.Millisecond
				l := load{processors: 4, timeout: 30 * time.Second}
				for j := range n {
					l.arrives = append(l.arrives, arrival{at: time.Duration(j) * time.Minute / time.Duration(n), work: hangs})
				}
				l.arrives = append(l.arrives, arrival{at: tc.comes + shift, work: late})
				l.change = func(at, work time.Duration) time.Duration {
					if work == late && at < tc.heals+shift {
						return hangs
					}
					return work
				}
				r := l.play(testWorkers, time.Hour)
				if r.unended != 0 {
					t.Fatalf("%s, beside %d: %v", tc.name, n, r)
				}
				worst = max(worst, tc.comes+r.waits[n]-tc.heals)
			}
			t.Logf("%s, beside %d reads that hang: read after at most %v", tc.name, n, worst.Round(time.Second))
			if worst > tc.most {
				t.Errorf("%s, beside %d: %v", tc.name, n, worst)
			}
		}
	}
}

// TestHungAndHealthyTogether holds that pods whose reads hang, and others, that come together, are
// told apart soon. No rule can if the first reads all hang: then time must pass.
func TestHungAndHealthyTogether(t *testing.T) {
	var last []time.Duration
	for seed := range uint64(40) {
		l := load{processors: 4, timeout: 30 * time.Second}
		l.arrives = shuffled(seed, crowd(400, hangs), crowd(100, 10*time.Millisecond))
		r := l.play(testWorkers, 3*time.Minute)
		last = append(last, r.last.Round(time.Millisecond))
		if r.unended != 0 {
			t.Errorf("seed %d: %v", seed, r)
		}
	}
	slices.Sort(last)
	t.Logf("400 that hang and 100 others, the last after %v, %v, %v, %v (least, median, nine of ten, most)", last[0], last[20], last[36], last[39])
	if last[20] > 4*time.Second || last[39] > 40*time.Second {
		t.Errorf("the last after %v", last)
	}
}

// TestLimiterAfterAStandstill: of reads that were under way while the generator stood still nobody
// knows how long the runtime has taken. None of them hangs, and none is a measure for others, until
// they have been awaited for as long as any other.
func TestLimiterAfterAStandstill(t *testing.T) {
	at := func(d time.Duration) instant { return firstInstant.add(d) }
	l := limiter{workers: 2}
	for i := range 4 {
		l.begin(at(time.Duration(i)))
	}
	l.stood(at(40 * time.Second))
	l.end(at(0), false, at(40*time.Second))
	if l.fewer != 0 {
		t.Errorf("a read that failed takes %d workers away", l.fewer)
	}
	l.end(at(2), true, at(40*time.Second))
	if d := l.longest(at(41 * time.Second)); d != 0 {
		t.Errorf("a read is taken to have lasted %v", d)
	}
	if n := l.hung(at(40 * time.Second)); n != 0 {
		t.Errorf("%d reads hang", n)
	}
	if next := l.next(at(time.Hour), at(40*time.Second)); next < at(40*time.Second+hangAtLeast) {
		t.Errorf("a read hangs %v after the start", time.Duration(next-firstInstant))
	}
	if since := l.silent(); since != never { // one has ended well
		t.Errorf("reads are awaited since %v", time.Duration(since-firstInstant))
	}
	if n := l.hung(at(40*time.Second + hangAtLeast)); n != 1 {
		t.Errorf("%d reads hang, want that from before", n)
	}
}
