// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// readTimeout bounds a wait of a pod worker.
	readTimeout = time.Minute
	// maxWaiting bounds the waiting pod workers.
	maxWaiting = 1000
)

// prober stands for pod workers: at a rate, it asks the cache for a status of some pod newer than
// now. It compares the answer with the facts, or with the runtime's own lists before and after.
type prober struct {
	cache *cache.Cache[cri.PodStatus]
	facts *facts
	truth grpc.ClientConnInterface // nil: only facts are known
	wake  chan struct{}            // capacity 1: the rate was changed
	meter *standstill.Meter        // knows when this process does not run, in which nobody can answer

	mu      sync.Mutex // owns the fields below
	rate    float64
	changed []cache.UID // pods of the last events
	waits   []time.Duration
	errors  int
}

func (p *prober) setRate(rate float64) {
	p.mu.Lock()
	p.rate = rate
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// results returns the waits so far, and the number of failed reads.
func (p *prober) results() (waits []time.Duration, errors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(waits, p.waits...), p.errors
}

// run asks until ctx ends.
func (p *prober) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	waiting := make(chan struct{}, maxWaiting)
	for ctx.Err() == nil {
		p.mu.Lock()
		rate := p.rate
		p.mu.Unlock()
		if rate <= 0 {
			select {
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}
		_ = bench.Sleep(ctx, time.Duration(float64(time.Second)/rate))
		select {
		case waiting <- struct{}{}:
			group.Go(func() {
				defer func() { <-waiting }()
				p.read(ctx)
			})
		default: // all wait: the existing ones are measured
		}
	}
}

// read is a call of a pod worker.
func (p *prober) read(ctx context.Context) {
	pod, known := p.pick()
	if pod == "" {
		return
	}
	known, errBefore := p.look(ctx, pod, known)
	callCtx, cancel := p.meter.WithTimeout(ctx, readTimeout)
	defer cancel()
	begun := time.Now()
	status, err := p.cache.GetNewerThan(callCtx, cache.UID(pod), begun)
	took := time.Since(begun)
	if ctx.Err() != nil {
		return // the end of the run, not an answer
	}
	later, errAfter := p.look(ctx, pod, nil)
	if errors.Join(errBefore, errAfter) != nil {
		return // nothing to compare with
	}
	if err == nil {
		p.facts.check(known, Show(cache.UID(pod), status, nil), later)
	}
	p.mu.Lock() // last: a counted call has been checked
	defer p.mu.Unlock()
	p.waits = append(p.waits, took)
	if err != nil {
		p.errors++
	}
}

// look returns a pod's facts of the runtime's lists, or the known facts where these are all.
func (p *prober) look(ctx context.Context, pod string, known []load.Fact) ([]load.Fact, error) {
	if p.truth == nil {
		return known, nil
	}
	ctx, cancel := p.meter.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return load.FactsOf(ctx, p.truth, pod)
}

// pick chooses a pod of the facts, and returns its facts. Where the runtime's lists are the facts,
// pick chooses a pod of the last events, which may be gone, or any in the cache.
func (p *prober) pick() (pod string, known []load.Fact) {
	if p.truth == nil {
		return p.facts.pick()
	}
	p.mu.Lock()
	from := append([]cache.UID(nil), p.changed...)
	p.mu.Unlock()
	if len(from) == 0 || rand.IntN(2) == 0 {
		from = p.cache.UIDs()
	}
	if len(from) == 0 {
		return "", nil
	}
	return string(from[rand.IntN(len(from))]), nil
}

// delivered remembers the pod of an event for pick. Without lists to compare with, pick needs none:
// the process that is measured then does nothing here.
func (p *prober) delivered(uid cache.UID) {
	if p.truth == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, uid)
	if len(p.changed) > maxGone {
		p.changed = p.changed[1:]
	}
}

// maxGone is the number of remembered removed pods, so that pod workers ask for these too.
const maxGone = 32

// facts is the effects of the load, and the pod workers' findings against them.
type facts struct {
	mu   sync.Mutex // owns the fields below
	rand *rand.Rand
	pods map[string]map[string]load.Fact // by pod and ID
	live []string                        // pods with a sandbox
	gone []string                        // the last pods without facts, oldest first
	// absent are IDs missing from a status without a known removal: right only if a removal was
	// under way, shown later by its fact.
	absent map[string]string // ID → pod

	stale      int
	complaints []string
}

func newFacts(seed uint64) *facts {
	return &facts{
		rand: rand.New(rand.NewPCG(seed, 0xda3e39cb94b95bdb)),
		pods: make(map[string]map[string]load.Fact), absent: make(map[string]string),
	}
}

// learn enters facts.
func (f *facts) learn(list []load.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fact := range list {
		known := f.pods[fact.Pod]
		if known == nil {
			known = make(map[string]load.Fact)
			f.pods[fact.Pod] = known
			f.live = append(f.live, fact.Pod)
		}
		if old, ok := known[fact.ID]; !ok || old.State < fact.State {
			known[fact.ID] = fact
		}
		if fact.State != pleg.PhaseRemoved {
			continue
		}
		delete(f.absent, fact.ID)
		if fact.Sandbox {
			f.retire(fact.Pod)
		}
	}
}

// retire moves a pod from the live to the gone. Each pod of the load has a single sandbox, which
// takes its content with it.
func (f *facts) retire(pod string) {
	for id, fact := range f.pods[pod] {
		fact.State = pleg.PhaseRemoved
		f.pods[pod][id] = fact
	}
	maps.DeleteFunc(f.absent, func(_, of string) bool { return of == pod })
	if i := slices.Index(f.live, pod); i >= 0 {
		f.live[i] = f.live[len(f.live)-1]
		f.live = f.live[:len(f.live)-1]
		f.gone = append(f.gone, pod)
	}
	if len(f.gone) > maxGone {
		delete(f.pods, f.gone[0])
		f.gone = f.gone[1:]
	}
}

// pick chooses a pod, one in ten times a removed pod, and returns its facts. It returns no pod if
// none is known.
func (f *facts) pick() (pod string, known []load.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := f.live
	if len(f.gone) > 0 && f.rand.IntN(10) == 0 || len(from) == 0 {
		from = f.gone
	}
	if len(from) == 0 {
		return "", nil
	}
	pod = from[f.rand.IntN(len(from))]
	for _, fact := range f.pods[pod] {
		known = append(known, fact)
	}
	return pod, known
}

// check compares a status with the facts known before the question, and with the runtime's lists
// after the answer if there are any.
func (f *facts) check(known []load.Fact, got bench.Pod, later []load.Fact) {
	shown := make(map[string]pleg.Phase, len(got.Items))
	for _, i := range got.Items {
		shown[i.ID] = i.State
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fact := range known {
		state, ok := shown[fact.ID]
		switch {
		case fact.State == pleg.PhaseRemoved && ok:
			f.complain("%s was removed before the call, and the status shows it %s", fact.ID, state)
		case !ok && slices.ContainsFunc(later, func(l load.Fact) bool { return l.ID == fact.ID }):
			f.complain(
				"%s was %s before the call and is there after, and the status lacks it",
				fact.ID,
				fact.State,
			)
		case !ok && fact.State != pleg.PhaseRemoved:
			if now, still := f.pods[fact.Pod][fact.ID]; still && now.State != pleg.PhaseRemoved {
				f.absent[fact.ID] = fact.Pod
			}
		case ok && state != pleg.PhaseUnknown && state < fact.State:
			f.complain("%s was %s before the call, and the status shows it %s", fact.ID, fact.State, state)
		}
	}
}

func (f *facts) complain(format string, args ...any) {
	f.stale++
	if len(f.complaints) < 20 {
		f.complaints = append(f.complaints, printable.Text(fmt.Sprintf(format, args...)))
	}
}

// verdict returns the number of stale reads and the first few. Call it when no removal is under
// way.
func (f *facts) verdict() (stale int, complaints []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	complaints = append(complaints, f.complaints...)
	for id := range f.absent {
		if len(complaints) < 20 {
			complaints = append(complaints, printable.Text(id)+" was not removed, and a status lacked it")
		}
	}
	return f.stale + len(f.absent), complaints
}
