// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Generator is the part of a *pleg.Generator for a reporter.
type Generator interface {
	// Watch returns the events; the reporter is their only reader.
	Watch() <-chan pleg.Event
	// HasSynced reports whether the cache holds the whole runtime.
	HasSynced() bool
	// RequestReinspect requests a read of a pod's statuses.
	RequestReinspect(uid cache.UID)
}

// Recorder records Events, such as the *events.Recorder of this project. It must not block.
type Recorder interface {
	AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string,
		eventtype, reason, action, note string, args ...any)
}

// tellingRecorder is a [Recorder] that tells what has become of an event: whether an Event counts
// it, and whether that one counts different events of the object and reason together. The
// *events.Recorder is one. Of another recorder, what it drops and combines is inferred, from the
// number of its unsent Events and from their actions: then the ledger may take a report for another
// of the same pod and kind, or drop an earlier one in its place.
type tellingRecorder interface {
	Record(regarding, related runtime.Object, annotations map[string]string,
		eventtype, reason, action, note string, args ...any) (taken, combined bool)
}

// Config configures a Reporter. Generator, Statuses, View and Recorder are required; the zero value
// of every other field is its default.
type Config[S any] struct {
	Generator Generator
	// Statuses is the generator's cache.
	Statuses *cache.Cache[S]
	// View returns the content of a status, such as [FromCRI]. The reporter calls View from one
	// goroutine, and never with a nil status.
	View     func(*S) Pod
	Recorder Recorder

	// Exit returns the exit code of a removed container, and the runtime's reason for its end, such as
	// the method of a *cri.Client. It must not block.
	Exit func(id string) (code int32, reason string, ok bool)
	// Sink is the recorder's way to the API server: see [NewSink]. Unsent returns the number of Events
	// not yet known to the API server, of a Broadcaster Stats().Unsent. Without both every Event counts
	// as sent.
	Sink   *Sink
	Unsent func() int64
	// Path is the file of the ledger, in a folder that exists: see [CheckPath]. Empty: the reporter
	// remembers nothing over restarts, and ends from before its start are not news.
	Path string
	// Choice selects the ends to report.
	Choice Choice
	// Settle is the time from the first sight of an end to the read that settles its reason and code.
	// Default 500ms.
	Settle time.Duration
	// GiveUp is how long, after Settle, the settling read may take or fail before the end is reported
	// as last seen.
	// Default 10s. Neither time passes while the process is stopped or has no CPU.
	GiveUp time.Duration
	// Readers bounds the pods whose statuses are awaited at once. Default 64.
	Readers int
	// NamespaceRate bounds the Events about single containers of each namespace, NodeRate those of all.
	// Defaults: 1 a second and 100 at once; 5 a second and 500 at once. A tenth of NodeRate.Burst is
	// for namespaces that have nine tenths of their own left.
	NamespaceRate, NodeRate Rate
	// Observe, when set, is called with every end and its outcome, in their order, from the goroutine
	// of Run. It must not block.
	Observe func(e End, outcome Outcome)
	// Restarted, when set, is called for every container after the first of its name in a pod,
	// likewise.
	Restarted func(pod Ref)
}

// Outcome is the result of the reporting of an end.
type Outcome string

const (
	// Reported: the end has an Event about the container, or is counted in such an Event.
	Reported Outcome = "reported"
	// Combined: because of a rate, the end is counted in the Event about its namespace.
	Combined Outcome = "combined"
	// NotChosen: Choice leaves the end out.
	NotChosen Outcome = "not_chosen"
	// Unnamed: the pod has no name or namespace, as pods without a kubelet.
	Unnamed Outcome = "unnamed"
)

// Stats are counts since New.
type Stats struct {
	Ends         map[Kind]uint64    // by kind
	Outcomes     map[Outcome]uint64 // the same ends by outcome
	Unsettled    uint64             // of them, reported as last seen, without the settling read
	Repeated     uint64             // reports of the process before, made again
	LedgerErrors uint64             // failed reads and writes of the ledger
	// LedgerFailing is since when the ledger could not be written; zero: it could.
	LedgerFailing time.Time
	Containers    int // followed now
	Settling      int // ends waiting for their read now
}

// ErrAlreadyRun is returned by every Run but the first.
var ErrAlreadyRun = errors.New("exits: the reporter has run already: make a new one")

// Reporter reports the ends of containers. New makes a Reporter.
type Reporter[S any] struct {
	config Config[S]
	choice chooser
	open   func(path string, now time.Time) opened // openForRun

	mu    sync.Mutex // owns the fields below
	began bool
	ended *run[S]  // the finished run
	lock  *os.File // of the ledger; nil: not locked
	stats Stats
}

// New checks the configuration and returns a reporter for Run; errors name every unworkable field.
func New[S any](config Config[S]) (*Reporter[S], error) {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("Config."+format, args...))
		}
	}
	bad(config.Generator == nil, "Generator is nil: pass the generator")
	bad(config.Statuses == nil, "Statuses is nil: pass the generator's cache")
	bad(config.View == nil, "View is nil: pass a function that reads a status, such as FromCRI")
	bad(config.Recorder == nil, "Recorder is nil: pass a recorder of Events")
	bad((config.Sink == nil) != (config.Unsent == nil), "Sink and Unsent go together: set both or none")
	bad(config.Settle < 0, "Settle is %v: use a time that is not negative", config.Settle)
	bad(config.GiveUp < 0, "GiveUp is %v: use a time that is not negative", config.GiveUp)
	bad(config.Readers < 0, "Readers is %d: use a number that is not negative", config.Readers)
	check := func(name string, rate Rate) {
		bad(rate != Rate{} && !(rate.PerSecond >= 0 && rate.PerSecond <= math.MaxFloat64 && rate.Burst > 0),
			"%s is %v a second and %d at once: use a finite rate of at least 0, and a burst above 0", name, rate.PerSecond, rate.Burst)
	}
	check("NamespaceRate", config.NamespaceRate)
	check("NodeRate", config.NodeRate)
	unfit := CheckPath(config.Path)
	bad(unfit != nil, "Path: %w", unfit)
	choice, err := config.Choice.checked()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("exits: %w", err)
	}
	fill(&config.Settle, 500*time.Millisecond)
	fill(&config.GiveUp, 10*time.Second)
	fill(&config.Readers, 64)
	fill(&config.NamespaceRate, Rate{PerSecond: 1, Burst: 100})
	fill(&config.NodeRate, Rate{PerSecond: 5, Burst: 500})
	r := &Reporter[S]{config: config, choice: choice, open: openForRun}
	r.stats.Ends = make(map[Kind]uint64)
	r.stats.Outcomes = make(map[Outcome]uint64)
	return r, nil
}

// fill sets a field without a value to its default.
func fill[T comparable](field *T, standard T) {
	var zero T
	if *field == zero {
		*field = standard
	}
}

// Run reports ends until ctx ends or Watch is closed, writes the ledger, and returns nil once
// everything it started has ended. A reporter runs once; a second call returns ErrAlreadyRun. If
// the file at Config.Path has become unfit since New, Run returns the error of [CheckPath] at once,
// or after ten seconds if the disk does not answer. Run waits for the last writes for four seconds:
// if the disk hangs, it returns an error, and the write goes on, because nothing can end it.
//
// The ledger is locked, by a file beside it, against other processes: with a [Config.Sink] until
// [Reporter.Save], else until Run returns; if a write hangs, until the end of the process. A lock
// whose file was removed is taken again with the next write. If another reporter has it by then,
// the ledger is that one's: the writes fail, as [Stats] tells, and the reports go on.
func (r *Reporter[S]) Run(ctx context.Context) error {
	r.mu.Lock()
	again := r.began
	r.began = true
	r.mu.Unlock()
	if again {
		return ErrAlreadyRun
	}
	ledger, err := r.openLedger(klog.FromContext(ctx))
	if err != nil {
		return fmt.Errorf("exits: Config.Path: %w", err)
	}
	run := newRun(ctx, r, &ledger)
	err = run.loop()
	r.mu.Lock()
	r.ended = run
	r.mu.Unlock()
	if r.config.Sink == nil && err == nil {
		r.unlock()
	}
	return err
}

// openLedger locks the ledger and reads it, or returns the refusal of its path. Where a file cannot
// be locked, or made, the ledger is used without: on a full disk, for one.
func (r *Reporter[S]) openLedger(logger klog.Logger) (opened, error) {
	path := r.config.Path
	open := func() opened { return r.open(path, time.Now()) }
	ledger, err := patiently(path, open, func(late opened) { late.close() })
	if err != nil {
		return ledger, err
	}
	if refused := refusal(ledger.err); refused != nil {
		ledger.close()
		return ledger, refused
	}
	if ledger.unlocked != nil {
		logger.Error(ledger.unlocked, "The ledger is not locked: see to it that no other process uses the file", "path", path)
	}
	r.mu.Lock()
	r.lock = ledger.lock
	r.mu.Unlock()
	return ledger, nil
}

// unlock gives the lock of the ledger back.
func (r *Reporter[S]) unlock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		_ = r.lock.Close() // nothing was written
		r.lock = nil
	}
}

// Save writes the ledger once more, after Run has returned and the recorder was shut down: unsent
// is the number of Events left unsent by the shutdown, of an *events.UnsentError its Occurrences.
// The next process makes them again. Before the end of Run, without a [Config.Sink], and the second
// time, Save does nothing. It waits for the disk as Run does at its end, and returns an error if
// the ledger is not written then, which wraps Run's error if the same write hangs.
func (r *Reporter[S]) Save(unsent int64) error {
	r.mu.Lock()
	run := r.ended
	r.ended = nil
	r.mu.Unlock()
	if run == nil || run.sink == nil {
		return nil
	}
	err := run.saveFinally(unsent)
	if !run.writing {
		r.unlock()
	}
	return err
}

// Stats returns a snapshot. Safe for concurrent use.
func (r *Reporter[S]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Ends = clone(stats.Ends)
	stats.Outcomes = clone(stats.Outcomes)
	return stats
}

func (r *Reporter[S]) count(change func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.stats)
}

func clone[K comparable](counts map[K]uint64) map[K]uint64 {
	all := make(map[K]uint64, len(counts))
	maps.Copy(all, counts)
	return all
}
