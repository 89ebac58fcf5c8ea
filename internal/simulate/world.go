// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// History is a list of lines, each a command. Empty lines and lines that begin with # are comments.
type History []string

func (h History) String() string { return strings.Join(h, "\n") + "\n" }

// Options say how a history is run.
type Options struct {
	// Strict makes senseless commands errors, and has the claims of one instant come one by one.
	Strict bool
	// Update makes expect events and expect cache record instead of compare.
	Update bool
	// Trace records Watch's events and the expectations.
	Trace bool
	// Record records the outcome.
	Record bool
}

// Result is the outcome of a history.
type Result struct {
	Violation *Violation
	Err       error // of a command, in strict mode
	Trace     []string
	Outcome   *Outcome       // if recorded
	Excused   map[string]int // how often each excuse has excused
}

// Failed reports whether something is wrong.
func (r *Result) Failed() bool { return r.Violation != nil || r.Err != nil }

// side is the runtime's side of a world.
type side interface {
	// command runs a command of the runtime, its stream or its reads.
	command(w *world, verb string, args []string) error
	// system makes a generator over the runtime.
	system(w *world) (System, *boundary, error)
	// restless reports whether reads go wrong at present.
	restless() bool
	// offersEvents reports whether the runtime takes subscribers now.
	offersEvents() bool
	// finishCalls waits for the agent's calls under way.
	finishCalls()
	// empty removes everything.
	empty(w *world)
	// calm ends every fault.
	calm(w *world)
	// name returns the scripts' name of an ID.
	name(id string) string
	close()
}

// world is a run of a history.
type world struct {
	opts     Options
	settings settings
	truth    *Truth
	oracle   *oracle
	store    Store
	side     side
	ctx      context.Context
	cancel   context.CancelFunc

	system   System // nil while stopped
	boundary *boundary
	stop     func()
	reader   *reader
	waiters  []*waiter
	byName   map[string]*waiter
	children sync.WaitGroup
	workers  map[cache.UID]*podWorker
	trace    []string
	told     []string // by Watch since the last expect events
	outcome  *Outcome
	until    time.Time // the runtime is not at rest before this time
	toldMu   sync.Mutex
	within   within

	// hurt is signalled when a read has failed or was slow: what that excused is due soon. Its
	// capacity is 1.
	hurt chan struct{}
}

// Run runs a history. Call Run in a bubble; it returns when all goroutines of the run have ended.
func Run(h History, opts Options) *Result {
	w := &world{
		opts: opts, truth: NewTruth(),
		byName: make(map[string]*waiter), workers: make(map[cache.UID]*podWorker),
		within: within{stood: make(chan struct{}, 1)},
		hurt:   make(chan struct{}, 1),
	}
	r := &Result{}
	if opts.Record {
		w.outcome = &Outcome{begun: time.Now(), parts: make(map[string]*strings.Builder)}
		r.Outcome = w.outcome
	}
	w.ctx, w.cancel = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	r.Err = w.run(h)
	if w.side != nil {
		r.Violation = w.oracle.result()
		r.Excused = w.oracle.excuses
	}
	r.Trace = w.trace
	return r
}

func (w *world) run(h History) error {
	defer w.end()
	defer w.outcome.finish(w)
	config := w.settings.flags()
	for n, line := range h {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if fields[0] == "config" {
			if w.side != nil || len(fields) != 3 {
				return fmt.Errorf("line %d: %s: write config NAME VALUE, before anything else", n+1, line)
			}
			if err := config.Set(fields[1], fields[2]); err != nil {
				return fmt.Errorf("line %d: %s: %w", n+1, line, err)
			}
			continue
		}
		if w.side == nil {
			if err := w.begin(); err != nil {
				return err
			}
		}
		if err := w.do(fields[0], fields[1:]); err != nil && w.opts.Strict {
			return fmt.Errorf("line %d: %s: %w", n+1, line, err)
		}
		if w.oracle.result() != nil {
			return nil
		}
	}
	return nil
}

// begin makes the runtime's side, once the settings are known.
func (w *world) begin() error {
	var err error
	if w.settings.fake {
		w.side, err = newFakeSide(w)
	} else {
		w.side, err = newToySide(w)
	}
	return err
}

// end stops whatever still runs.
func (w *world) end() {
	w.stopSystem()
	w.cancel()
	w.children.Wait()
	if w.side != nil {
		w.side.close()
	}
}

// upset notes that the runtime is not at rest before a time.
func (w *world) upset(until time.Time) {
	w.toldMu.Lock()
	defer w.toldMu.Unlock()
	if until.After(w.until) {
		w.until = until
	}
	if w.boundary != nil {
		w.boundary.disturb(until)
	}
}

// rest lets all work without a duration happen, and looks.
func (w *world) rest() {
	w.quiet()
	if w.boundary != nil && w.side.restless() {
		w.boundary.disturb(time.Now())
	}
	w.oracle.reads(w.reader != nil && !w.reader.stalled())
	w.oracle.look(true)
	if w.system != nil {
		w.oracle.lookPrompt(!w.reader.stalled())
	}
	w.checkWaiters()
}

// start runs a generator over the cache.
func (w *world) start() error {
	if w.system != nil {
		return fmt.Errorf("it runs already")
	}
	if w.settings.tells {
		w.side.finishCalls() // or nobody would report their products
	}
	sys, l, err := w.side.system(w)
	if err != nil {
		return err
	}
	l.watch(&w.settings, sys.Stats, w.store)
	for _, uid := range w.truth.UIDs() {
		l.wanted(uid, time.Now()) // the cache may have waiters, or outdated content
	}
	for _, x := range w.waiters {
		l.wanted(x.pod, x.t)
	}
	w.oracle.started(sys, l)
	l.outcome = w.outcome
	l.prompt.hurt = w.hurt
	l.disturb(time.Now())
	w.toldMu.Lock()
	w.system = sys
	w.boundary = l
	l.disturb(w.until)
	w.toldMu.Unlock()
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- sys.Run(ctx) }()
	w.reader = newReader(w, sys.Watch())
	w.stop = func() {
		l.mu.Lock()
		l.stopping = true
		l.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			w.oracle.fail("run", "Run returned %v", err)
		}
		l.atRest()
		w.reader.finish()
	}
	return nil
}

func (w *world) stopSystem() {
	if w.system == nil {
		return
	}
	w.within.drop()
	w.stop()
	w.toldMu.Lock()
	w.system = nil
	w.toldMu.Unlock()
}

// settle lets time pass until all must be at rest and well.
func (w *world) settle() error {
	if w.system == nil {
		return fmt.Errorf("nothing runs")
	}
	bound := w.settings.max + w.settings.listTimeout + w.settings.inspectTimeout + 3*w.settings.base + 2*time.Minute
	step := 10 * time.Millisecond
	const works = 10 * time.Minute // the agent's own calls have taken effect by then
	began := time.Now()
	for time.Since(latest(began, w.boundary.rest())) < bound && time.Since(began) < bound+works {
		w.nap(step)
		w.rest()
		if w.oracle.settled(!w.reader.stalled()) || w.oracle.result() != nil {
			w.stuckWaiters()
			w.reconnected()
			w.reinspected()
			return nil
		}
		step = min(2*step, w.settings.base/2)
	}
	w.oracle.fail("idle", "no list has begun and ended well in %v of rest", bound)
	return nil
}

// reconnected checks that the stream is up soon after the runtime offers a stream.
func (w *world) reconnected() {
	if w.settings.generic || !w.side.offersEvents() {
		return
	}
	for range 210 { // three steady delays: a stream may have sent something before another break
		if w.oracle.result() != nil || w.system.Stats().State == pleg.StreamConnected {
			return
		}
		w.sleep(time.Second)
		w.rest()
	}
	w.oracle.fail(
		"deaf",
		"the runtime has offered events for 210 s, and the stream is %v",
		w.system.Stats().State,
	)
}

// reinspected checks that each reinspection is answered at rest, at most once in a base period.
func (w *world) reinspected() {
	for range 30 {
		if _, waits := w.boundary.unanswered(); !waits || w.oracle.result() != nil {
			return
		}
		w.sleep(w.settings.base)
		w.rest()
	}
	uid, _ := w.boundary.unanswered()
	w.oracle.fail("unanswered", "no read of all statuses of pod %s has begun since RequestReinspect", uid)
}

// empty removes everything from the runtime, lets everything come to rest, and checks that nothing
// is remembered.
func (w *world) empty() error {
	if w.system == nil {
		return fmt.Errorf("nothing runs")
	}
	w.within.drop() // this goroutine waits for late calls below, and the loop would stand meanwhile
	for _, p := range w.workers {
		p.stop()
		<-p.done
	}
	w.side.empty(w)
	w.rest()
	if err := w.settle(); err != nil || w.oracle.result() != nil {
		return err
	}
	// the lists without the pod, the grace, and the next look
	quiet := 0
	for tries := 0; quiet < 3 && tries < 30; tries++ {
		before := w.boundary.rest()
		w.sleep(w.settings.grace + 2*w.settings.base)
		w.boundary.relist()
		w.system.RequestRelist("")
		w.rest()
		w.sleep(w.settings.base)
		w.rest()
		quiet++
		if w.boundary.rest() != before {
			quiet = 0
		}
	}
	s := w.system.Stats()
	if s.Pods+s.DirtyPods+s.Containers+s.Sandboxes+s.Inspecting+s.OwedPods > 0 {
		w.oracle.fail(
			"memory",
			"the runtime is empty, and the generator remembers %d pods, %d of them open, %d containers, %d sandboxes, %d owed",
			s.Pods,
			s.DirtyPods,
			s.Containers,
			s.Sandboxes,
			s.OwedPods,
		)
	}
	if uids := w.store.UIDs(); len(uids) > 0 {
		w.oracle.fail("memory", "the runtime is empty, and the cache holds %v", uids)
	}
	if n := w.store.Waiting(); n > len(w.waiters) {
		w.oracle.fail("memory", "%d wait in GetNewerThan, and the cache counts %d", len(w.waiters), n)
	}
	return nil
}
