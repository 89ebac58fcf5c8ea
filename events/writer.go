// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// Waits other than durations.
const (
	forever = time.Duration(1<<63 - 1) // until a signal
	over    = time.Duration(-1)        // this Run makes no further call: a shutdown has begun or is done
)

const writeTimeout = 30 * time.Second // of a call

// Run writes events to the sink until the context ends or the broadcaster is shut down, and returns
// after its goroutines have ended. Events unsent at the context's end stay in the table, for the
// next Run or a shutdown. Run returns ErrRunning, ErrShutdown or ErrNoSink if recording cannot
// start, nil otherwise.
func (b *Broadcaster) Run(ctx context.Context) error {
	ctx, err := b.start(ctx, stageOpen)
	if err != nil {
		return err
	}
	b.record(ctx)
	return nil
}

// start claims the right to record in a stage: while a shutdown drains, nobody else may. On success
// the caller must call record.
func (b *Broadcaster) start(ctx context.Context, in stage) (context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.opts.Sink == nil:
		return nil, ErrNoSink
	case b.core.stage != in:
		return nil, ErrShutdown
	case b.running:
		return nil, ErrRunning
	}
	ctx, b.cancel = context.WithCancelCause(ctx)
	b.running = true
	b.runEnded = make(chan struct{})
	return ctx, nil
}

// record runs the writers: as many as there may be calls under way, those that hang and those that
// try a failing scope included.
func (b *Broadcaster) record(ctx context.Context) {
	var writers sync.WaitGroup
	for range 3 * b.opts.Writers {
		writers.Go(func() { b.write(ctx) })
	}
	writers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
	b.cancel(nil)
	close(b.runEnded)
}

// write makes the calls owed, in sequence, until next says that no call is left.
func (b *Broadcaster) write(ctx context.Context) {
	timer := time.NewTimer(time.Hour) // set below
	defer timer.Stop()
	var limit callLimit
	defer limit.release()
	now := time.Now()
	for ctx.Err() == nil {
		b.mu.Lock()
		j, wait := b.core.next(now)
		b.mu.Unlock()
		switch wait {
		case 0:
			now = b.perform(ctx, &limit, j, now)
			continue
		case over:
			b.signal() // for the next writer
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-b.wakeup:
		case <-timer.C:
		}
		now = time.Now()
	}
}

// callLimit makes the contexts of a writer's calls. A context with a timer costs as much as the
// rest of a call's booking, so the calls of a burst share one: then the time for a call is shorter
// by up to a thirty-second part.
type callLimit struct {
	ctx *callContext
}

// context returns a context that ends after the given time for a call, or a little before.
func (l *callLimit) context(parent context.Context, now time.Time, limit time.Duration) context.Context {
	early := now.Add(limit).Sub(l.ctx.end())
	if l.ctx != nil && early >= 0 && early <= limit/32 && l.ctx.Err() == nil {
		return l.ctx
	}
	l.release()
	l.ctx = newCallContext(parent, now.Add(limit), limit)
	return l.ctx
}

// release ends the context. The writer has no call under way.
func (l *callLimit) release() {
	if l.ctx != nil {
		l.ctx.release()
	}
}

// perform makes a call at the given time, without the lock, and books the answer. It returns the
// time of the answer: the writer's next look at the queue needs no other, since the core lets no
// time go back behind what other writers have booked.
func (b *Broadcaster) perform(ctx context.Context, limit *callLimit, j job, now time.Time) time.Time {
	stored, err := j.send(limit.context(ctx, now, j.limit), b.opts.Sink)
	if stored == nil {
		stored = j.event // a sink without an answer
	}
	answer := reply{
		judged: judge(ctx, err),
		stored: stored,
		err:    err,
		now:    time.Now(),
	}
	b.mu.Lock()
	switch {
	case b.core.stage == stageOver:
	case j.roster != nil:
		b.core.rosterAnswered(j, answer)
	default:
		b.core.answered(j, answer)
	}
	notes := b.core.notes
	b.core.notes = nil
	b.mu.Unlock()
	for _, log := range notes {
		log(klog.FromContext(ctx))
	}
	return answer.now
}

// job is a call of a series, or of a roster.
type job struct {
	series *series
	roster *roster
	write  *rosterWrite // for the roster
	place  place        // as booked in the queue
	older  bool         // of a recorder with the older interface
	call   call
	event  *eventsv1.Event
	limit  time.Duration // of the call
}

// send makes the call.
func (j *job) send(ctx context.Context, sink clientevents.EventSink) (*eventsv1.Event, error) {
	byInterface, ok := sink.(interfaceSink)
	if ok {
		sink = byInterface.sinkFor(j.older)
	}
	var deleted []string
	if j.write != nil {
		deleted = j.write.apply(j.event)
	}
	switch j.call.kind {
	case callCreate:
		return sink.Create(ctx, j.event)
	case callRead:
		return sink.Patch(ctx, j.event, []byte("{}"))
	}
	return sink.Patch(ctx, j.event, patchBody(j.event, deleted))
}

// patchBody is a patch of an event's annotations and series, which also deletes some annotations.
func patchBody(e *eventsv1.Event, deleted []string) []byte {
	var p struct {
		Metadata struct {
			ResourceVersion string             `json:"resourceVersion,omitempty"`
			Annotations     map[string]*string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Series *eventsv1.EventSeries `json:"series,omitempty"`
	}
	p.Metadata.ResourceVersion = e.ResourceVersion
	p.Series = e.Series
	if len(e.Annotations)+len(deleted) > 0 {
		p.Metadata.Annotations = make(map[string]*string, len(e.Annotations)+len(deleted))
	}
	for _, key := range deleted {
		p.Metadata.Annotations[key] = nil
	}
	for key, value := range e.Annotations {
		p.Metadata.Annotations[key] = &value
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // these types always have an encoding
	}
	return body
}
