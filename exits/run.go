// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// run is the loop of a reporter and carries out the effects of the core. The goroutine in loop owns
// all fields; children send their results.
type run[S any] struct {
	*Reporter[S]
	ctx    context.Context // of the children; ended by cancel
	cancel context.CancelFunc
	logger klog.Logger

	core  *core
	limit *limiter
	sink  *Sink // nil: every Event counts as sent
	since time.Time

	// reading is the number of reads under way, at most Config.Readers; results has room for all.
	reading int
	results chan result[S]

	// batch are ends to be handed to the recorder after the next write of the ledger; saving are those
	// of the write under way.
	batch, saving []End
	// writing: a write is under way, since writesSince; written has room for its result.
	writing     bool
	writesSince time.Time
	written     chan error
	save        func(path string, r *record) error // saveLedger
	// hangs: ends no longer wait for the write, which takes too long.
	hangs bool
	// stuck is the error for a write that hung at the end of the run; nil: none did.
	stuck error
	// retryAt is when a failed write is made again; zero: none failed.
	retryAt time.Time
	// outage follows the failed writes.
	outage outage
	// inFile identifies the unsent reports in the ledger.
	inFile unsentKey
	// keepAt is when the earliest report outside the ledger is a tick old; zero: there is none.
	keepAt time.Time
	// tickedAt is the time of the last tick.
	tickedAt time.Time
	// wakes is when the loop runs again at the latest; zero: no time is planned.
	wakes time.Time

	children sync.WaitGroup // the reads
	writer   sync.WaitGroup // the write under way
}

// result is the answer to a read.
type result[S any] struct {
	uid    cache.UID
	began  time.Time
	status *S
	err    error
	late   bool // the status is not newer: the wait for a newer status has ended
}

const (
	// tick is the pause between two looks at Unsent and at HasSynced. A report unsent for so long is
	// kept in the ledger.
	tick = time.Second
	// keptEarly is how much earlier a report is kept together with an older one: in a storm while the
	// API server is away, the ledger is looked at ten times a second.
	keptEarly = tick / 10
	// ledgerRetry is the pause before a failed write of the ledger is made again.
	ledgerRetry = 5 * time.Second
	// writePatience is how long ends wait for a write: a hanging disk counts as a failing one.
	writePatience = 5 * time.Second
	// endPatience is how long the end of the run waits for its last writes, and Save for its own. The
	// recorder sends what is left in between: a pod has 15 seconds for all three.
	endPatience = 4 * time.Second
	// earlierFor is how long after the first sync an ID in the ledger waits for the runtime to show it:
	// a pod may be unreadable. A standstill does not count, and the loop runs every earlierBeat to
	// notice one.
	earlierFor  = time.Hour
	earlierBeat = time.Minute
	// maxRecounted bounds the combined ends of the process before that are counted again: they take
	// a second for each million.
	maxRecounted = 4 << 20
	// standstill is how late the loop runs at least if the process was stopped, or had no CPU. It is
	// more than a process at the limit of its share of CPUs waits at a time.
	standstill = 200 * time.Millisecond
)

// newRun returns a run that goes on with what the ledger has.
func newRun[S any](ctx context.Context, r *Reporter[S], ledger *opened) *run[S] {
	now := time.Now()
	logger := klog.FromContext(ctx).WithName("exits")
	record := &ledger.record
	if ledger.err != nil {
		logger.Error(ledger.err, "What was reported before is not known")
		r.count(func(s *Stats) { s.LedgerErrors++ })
	}
	if record.dropped > 0 {
		logger.Error(nil, "The ledger has ends that no reporter writes, or has twice: they are left out", "ends", record.dropped)
		r.count(func(s *Stats) { s.LedgerErrors++ })
	}
	ctx, cancel := context.WithCancel(ctx)
	config := settings{settle: r.config.Settle, giveUp: r.config.GiveUp, exit: r.config.Exit}
	w := &run[S]{
		Reporter: r,
		ctx:      ctx,
		cancel:   cancel,
		logger:   logger,
		core:     newCore(config, record),
		limit:    newLimiter(now, r.config.NamespaceRate, r.config.NodeRate),
		sink:     r.config.Sink,
		since:    record.Since,
		results:  make(chan result[S], r.config.Readers),
		written:  make(chan error, 1),
		save:     saveLedger,
		retryAt:  now, // the first write
	}
	for i := range record.Unsent {
		w.repeat(now, &record.Unsent[i])
	}
	w.recount(record.Combined)
	return w
}

// repeat hands a report of the process before over again.
func (w *run[S]) repeat(now time.Time, e *End) {
	e.SeenAt = now
	e.Note = noteOf(e, now)
	w.hand(e, true)
	w.count(func(s *Stats) { s.Repeated++ })
}

// recount counts combined ends of the process before again: maxRecounted at most.
func (w *run[S]) recount(all []combined) {
	for _, c := range all {
		n := c.Ends
		for i := range min(n, newestSpells) {
			w.recountOf(c.Namespace, c.Kind, (n-i+newestSpells-1)/newestSpells)
		}
		w.count(func(s *Stats) { s.Repeated += uint64(n) })
	}
}

// recountOf counts ends of a kind again, in one spell: a call to the API server that begins
// meanwhile may count a part of them, of which the sink knows nothing. With spells of a single end
// each, the call counts all or none.
func (w *run[S]) recountOf(namespace string, kind Kind, ends int64) {
	last := func() {}
	if w.sink != nil {
		last = w.sink.countAgain(keyOfCombined(namespace, kind), ends)
	}
	for range ends - 1 {
		w.handCombined(namespace, kind)
	}
	last()
	w.handCombined(namespace, kind)
}

// loop works until the context or Watch ends, and returns when all children have ended; with an
// error if a write of the ledger does not end.
func (w *run[S]) loop() error {
	w.follow()
	return w.finish()
}

// follow works until the context or Watch ends.
func (w *run[S]) follow() {
	watch := w.config.Generator.Watch()
	for {
		now := time.Now()
		w.woke(now)
		w.startReads(now)
		w.startWrite(now)
		timer := w.timer(now)
		select {
		case <-w.ctx.Done():
			return
		case event, ok := <-watch:
			if !ok {
				return
			}
			w.event(event)
		case answer := <-w.results:
			w.reading--
			w.answer(answer)
		case err := <-w.written:
			w.wrote(time.Now(), err)
		case <-timer:
		}
		now = time.Now()
		w.outwait(now)
		w.tick(now)
		if !w.keepAt.IsZero() && !now.Before(w.keepAt) {
			w.keep(now)
		}
	}
}

// woke notes that the loop runs, and tells the core if the loop runs too late.
func (w *run[S]) woke(now time.Time) {
	late := now.Sub(w.wakes)
	if !w.wakes.IsZero() && late > standstill {
		w.core.stood(late)
	}
	w.wakes = now // to be on at once, until timer plans a pause
}

// timer returns a channel for the time of the next work, nil if none is planned.
func (w *run[S]) timer(now time.Time) <-chan time.Time {
	var next time.Time
	plan := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if w.reading < w.config.Readers {
		plan(w.core.next())
	}
	switch {
	case !w.writing:
		plan(w.retryAt)
	case !w.hangs:
		plan(later(now, w.writesSince.Add(writePatience)))
	}
	if !w.keepAt.IsZero() {
		plan(later(now, w.keepAt))
	}
	if w.core.syncedAt.IsZero() || w.waiting()+w.inFile.length > 0 {
		plan(later(now, w.tickedAt.Add(tick)))
	}
	if w.core.settling+len(w.core.left) > 0 {
		plan(now.Add(tick)) // also without work: a late turn shows a standstill
	}
	if len(w.core.earlier) > 0 {
		plan(now.Add(earlierBeat)) // likewise
	}
	w.wakes = next
	if next.IsZero() {
		return nil
	}
	w.wakes = later(now, next)
	return time.After(max(1, next.Sub(now)))
}

// event takes an event of Watch. The cache shows the change already.
func (w *run[S]) event(event pleg.Event) {
	status, err := w.config.Statuses.Get(event.Pod)
	s := sighting{pod: w.view(event.Pod, status), event: event}
	s.unreadable = err != nil && len(s.pod.Unread) == 0
	w.see(s)
}

// see gives a status to the core.
func (w *run[S]) see(s sighting) {
	now := time.Now()
	w.woke(now)
	w.apply(now, w.core.see(now, s))
}

// view returns the content of a status, under the pod's UID.
func (w *run[S]) view(uid cache.UID, status *S) Pod {
	pod := w.config.View(status)
	pod.UID = uid
	return pod
}

// answer takes the answer to a read.
func (w *run[S]) answer(a result[S]) {
	s := sighting{pod: w.view(a.uid, a.status), readAfter: a.began}
	s.unreadable = a.late || a.err != nil && len(s.pod.Unread) == 0
	w.see(s)
}

// apply carries out the effects of the core.
func (w *run[S]) apply(now time.Time, out effects) {
	w.batch = append(w.batch, out.ends...)
	if w.config.Restarted != nil {
		for _, pod := range out.restarted {
			w.config.Restarted(pod)
		}
	}
	w.count(func(s *Stats) {
		s.Containers = w.core.containers
		s.Settling = w.core.settling
	})
}

// startReads starts the reads that are due.
func (w *run[S]) startReads(now time.Time) {
	for w.reading < w.config.Readers {
		uid, ok := w.core.due(now)
		if !ok {
			return
		}
		w.reading++
		w.children.Go(func() { w.results <- w.read(uid) })
	}
}

// read returns a status read from now on. The request causes a read of statuses; the wait alone
// could end with a look at phases.
func (w *run[S]) read(uid cache.UID) result[S] {
	ctx, cancel := context.WithTimeout(w.ctx, w.config.GiveUp)
	defer cancel()
	began := time.Now()
	w.config.Generator.RequestReinspect(uid)
	status, err := w.config.Statuses.GetNewerThan(ctx, uid, began)
	return result[S]{
		uid:    uid,
		began:  began,
		status: status,
		err:    err,
		late:   ctx.Err() != nil,
	}
}

// startWrite starts a write of the ledger if there is news for the ledger and no write is under
// way. The write includes the ends of the batch, which are handed to the recorder afterwards.
func (w *run[S]) startWrite(now time.Time) {
	due := !w.retryAt.IsZero() && !now.Before(w.retryAt)
	if w.writing || len(w.batch) == 0 && !due {
		return
	}
	w.writesSince = now
	w.retryAt = time.Time{}
	w.saving = w.batch
	w.batch = nil
	w.write(w.record(now))
}

// write begins to write the ledger.
func (w *run[S]) write(r *record) {
	w.writing = true
	w.writer.Go(func() { w.written <- w.replaceLedger(r) })
}

// replaceLedger writes the ledger, if it is still this reporter's.
func (w *run[S]) replaceLedger(r *record) error {
	if err := w.holdLock(); err != nil {
		return err
	}
	return w.save(w.config.Path, r)
}

// outwait has no end wait for a write that hangs: the reports of the write are handed over, as
// after a failed write, and so is each end that comes before the write returns.
func (w *run[S]) outwait(now time.Time) {
	returned := len(w.written) > 0 // and is taken in the loop's next turn
	if !w.writing || returned || now.Sub(w.writesSince) < writePatience {
		return
	}
	if !w.hangs {
		w.hangs = true
		w.failed(now, fmt.Errorf("exits: the write of the ledger %s takes more than %v", w.config.Path, writePatience))
	}
	w.handOver(now)
	w.handOverBatch(now)
}

// record returns the content of the ledger. Reports handed over a moment ago count as sent.
func (w *run[S]) record(now time.Time) *record {
	r := &record{Version: ledgerVersion, Since: w.since}
	unsent := w.unsent(now)
	r.Unsent = unsent.ends
	r.Combined = unsent.combined
	w.inFile = unsent.key
	if w.config.Path != "" { // in a storm, most of the work
		r.Reported = w.core.reported()
		r.Settling = w.core.unreported()
		for i := range r.Settling { // a pod may have a megabyte of them, and many containers
			r.Settling[i].Labels = w.choice.asked(r.Settling[i].Labels)
		}
	}
	return r
}

// unsent returns the reports for the ledger to keep, and plans for when the next one is to be kept.
func (w *run[S]) unsent(now time.Time) (all unsent) {
	if w.sink == nil {
		return all
	}
	all = w.sink.unsent(now.Add(keptEarly - tick))
	w.keepAt = time.Time{}
	if !all.next.IsZero() {
		w.keepAt = all.next.Add(tick)
	}
	return all
}

// waiting returns the number of reports not known to be taken by the API server.
func (w *run[S]) waiting() int {
	if w.sink == nil {
		return 0
	}
	return w.sink.waiting()
}

// wrote takes the result of a write, and hands the written ends to the recorder.
func (w *run[S]) wrote(now time.Time, err error) {
	w.writing = false
	switch {
	case err != nil:
		w.failed(now, err)
	case w.hangs:
		w.retryAt = now // the file lacks what was handed over meanwhile
	default:
		w.succeeded(now)
	}
	w.hangs = false
	w.handOver(now)
}

// handOver hands over the ends of a write.
func (w *run[S]) handOver(now time.Time) {
	for i := range w.saving {
		w.deliver(now, &w.saving[i])
	}
	w.saving = nil
}

// handOverBatch hands over the ends that wait for the next write.
func (w *run[S]) handOverBatch(now time.Time) {
	w.saving = w.batch
	w.batch = nil
	w.handOver(now)
}

// failed takes a failed write of the ledger. Each end in a storm may cause one.
func (w *run[S]) failed(now time.Time, err error) {
	w.outage.failed(now, w.logger, err)
	w.retryAt = now.Add(ledgerRetry)
	w.count(func(s *Stats) {
		s.LedgerErrors++
		s.LedgerFailing = w.outage.since
	})
}

// succeeded takes a write of the ledger that has not failed.
func (w *run[S]) succeeded(now time.Time) {
	w.outage.succeeded(now, w.logger)
	w.count(func(s *Stats) { s.LedgerFailing = time.Time{} })
}

// tick, once in a while, asks for the number of unsent Events, and looks at HasSynced.
func (w *run[S]) tick(now time.Time) {
	if now.Sub(w.tickedAt) < tick {
		return
	}
	w.tickedAt = now
	w.sync(now)
	if w.sink != nil {
		w.sink.bound(w.config.Unsent())
	}
	w.keep(now)
}

// keep has the ledger written unless the file holds the reports to keep, and no others.
func (w *run[S]) keep(now time.Time) {
	if w.unsent(now).key != w.inFile {
		w.retryAt = now
	}
}

// sync tells the core of the first time at which the cache holds the whole runtime, and of later
// times.
func (w *run[S]) sync(now time.Time) {
	switch {
	case w.core.syncedAt.IsZero() && w.config.Generator.HasSynced():
		w.core.synced(now)
	case !w.core.syncedAt.IsZero():
		w.apply(now, w.core.passed(now))
	}
}

// deliver reports an end, or only counts the end.
func (w *run[S]) deliver(now time.Time, e *End) {
	outcome := Reported
	switch {
	case !w.choice.chooses(e):
		outcome = NotChosen
	case e.Pod.Name == "" || e.Pod.Namespace == "":
		outcome = Unnamed
	case !w.limit.admit(now, e.Pod.Namespace):
		outcome = Combined
		w.combine(e)
	default:
		w.hand(e, false)
	}
	w.count(func(s *Stats) {
		s.Ends[e.Kind]++
		s.Outcomes[outcome]++
		if !e.Settled {
			s.Unsettled++
		}
	})
	if w.config.Observe != nil {
		w.config.Observe(*e, outcome)
	}
}

// hand makes the Event about a container, or about its pod. again: the ledger holds the report.
func (w *run[S]) hand(e *End, again bool) {
	var number uint64
	if w.sink != nil {
		number = w.sink.add(e, again)
		if !again {
			w.keepSoon()
		}
	}
	about := &corev1.ObjectReference{
		Kind:       "Pod",
		APIVersion: "v1",
		Namespace:  e.Pod.Namespace,
		Name:       e.Pod.Name,
		UID:        types.UID(e.Pod.UID),
		FieldPath:  fieldPathOf(e),
	}
	f := w.emit(about, annotationsOf(e), e.Kind, actionOf(e), e.Note)
	if w.sink != nil {
		w.sink.told(number, f)
	}
}

// emit makes an event, and returns what the recorder tells of it.
func (w *run[S]) emit(about *corev1.ObjectReference, annotations map[string]string, kind Kind, action, note string) fate {
	of := eventType(kind)
	reason := string(kind)
	recorder, tells := w.config.Recorder.(tellingRecorder)
	if !tells {
		w.config.Recorder.AnnotatedEventf(about, nil, annotations, of, reason, action, "%s", note)
		return fateUntold
	}
	taken, combined := recorder.Record(about, nil, annotations, of, reason, action, "%s", note)
	switch {
	case !taken:
		return fateDropped
	case combined:
		return fateCombined
	}
	return fateOwn
}

// fieldPathOf returns the part of the pod that the Event of an end is about. Programs print it
// before the note.
func fieldPathOf(e *End) string {
	if e.Kind == SandboxDied {
		return ""
	}
	return "spec.containers{" + word(e.Container, maxName) + "}"
}

// keepSoon plans for the ledger to keep what is handed over now.
func (w *run[S]) keepSoon() {
	if w.keepAt.IsZero() {
		w.keepAt = time.Now().Add(tick)
	}
}

// combine counts an end in the Event about its namespace.
func (w *run[S]) combine(e *End) {
	if w.sink != nil {
		w.sink.count(keyOfCombined(e.Pod.Namespace, e.Kind))
		w.keepSoon()
	}
	w.handCombined(e.Pod.Namespace, e.Kind)
}

// handCombined counts an end of a kind in the Event about a namespace.
func (w *run[S]) handCombined(namespace string, kind Kind) {
	about := &corev1.ObjectReference{
		Kind:       "Namespace",
		APIVersion: "v1",
		Namespace:  namespace,
		Name:       namespace,
	}
	const note = "More containers of this namespace end on this node than are reported one by one; " +
		"this Event counts the others"
	f := w.emit(about, nil, kind, combinedAction, note)
	if w.sink != nil && f == fateDropped {
		w.sink.uncount(keyOfCombined(namespace, kind))
	}
}

func eventType(kind Kind) string {
	if kind.Warning() {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// finish ends the run. The reads end with the context. A last write precedes the handing over of
// the remaining told ends. If a write hangs, no other may begin beside it: they are handed over
// without.
func (w *run[S]) finish() error {
	w.cancel()
	w.children.Wait()
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	err := w.await(patience.C)
	if err == nil {
		w.saving = w.batch
		w.batch = nil
		w.outage.last()
		w.write(w.record(time.Now()))
		err = w.await(patience.C)
	}
	if err == nil {
		w.writer.Wait()
		return nil
	}
	now := time.Now()
	w.count(func(s *Stats) { s.LedgerErrors++ })
	w.handOver(now)
	w.handOverBatch(now)
	return err
}

// await waits for the write under way, if there is one, and takes its result. Once the time is up
// it returns an error, and the write goes on.
func (w *run[S]) await(up <-chan time.Time) error {
	if !w.writing {
		return nil
	}
	select {
	case err := <-w.written:
		w.wrote(time.Now(), err)
		return nil
	case <-up:
		return w.hung()
	}
}

// hung returns the error for a write that the end of the run does not wait for any longer, the same
// for all who wait.
func (w *run[S]) hung() error {
	if w.stuck == nil {
		w.stuck = fmt.Errorf("exits: the ledger %s is not written after %v, its disk hangs: "+
			"the next process will repeat or miss reports", w.config.Path, endPatience)
	}
	return w.stuck
}

// saveFinally writes the ledger after the recorder's shutdown. All unsent reports are kept, the
// latest included.
func (w *run[S]) saveFinally(unsent int64) error {
	if w.sink != nil {
		w.sink.bound(unsent)
	}
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	if err := w.await(patience.C); err != nil {
		return fmt.Errorf("%w: %d of them wait for the API server", err, unsent)
	}
	w.write(w.record(time.Now().Add(2 * tick)))
	select {
	case err := <-w.written:
		w.writing = false
		w.writer.Wait()
		return err
	case <-patience.C:
		return w.hung()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
