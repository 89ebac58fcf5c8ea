// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// side is a generator of a run with all its data.
type side struct {
	mode    string
	process *worker.Process
	hello   worker.Hello
	// meter knows when this process does not run.
	meter *standstill.Meter
	// stopping: the process is meant to end.
	stopping atomic.Bool

	mu       sync.Mutex // owns the fields below
	ledger   *bench.Ledger
	progress worker.Progress
	// kept is every progress, if samples are wanted.
	wantSamples bool
	kept        []worker.Progress

	// begin and end are the load's, final is of the very end.
	begin, end, final worker.Report
}

const (
	// maxSamples is hours of progress.
	maxSamples = 100_000
	// askEvery is how often await asks.
	askEvery = 100 * time.Millisecond
)

func startSide(ctx context.Context, o Options, mode, endpoint string) (*side, error) {
	s := &side{mode: mode, ledger: bench.NewLedger(), wantSamples: o.WantTimeline}
	config := worker.Config{
		Endpoint:    endpoint,
		Mode:        mode,
		RelistBase:  o.RelistBase,
		RelistMax:   o.RelistMax,
		ReadTimeout: o.ReadTimeout,
		Seed:        o.Seed,
	}
	if mode == o.Mode {
		config.MetricsAddr = o.MetricsAddr
	}
	var err error
	s.process, s.hello, err = worker.Start(ctx, o.WorkerArgs, config, s.onNews, o.Stderr)
	if err != nil {
		return nil, fmt.Errorf("start the %s PLEG: %w", mode, err)
	}
	return s, nil
}

func (s *side) stop() error {
	s.stopping.Store(true)
	return s.process.Stop()
}

func (s *side) onNews(n worker.News) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range n.Deliveries {
		s.ledger.Delivered(d)
	}
	s.progress = n.Progress
	if s.wantSamples && len(s.kept) < maxSamples {
		s.kept = append(s.kept, n.Progress)
	}
}

func (s *side) happened(list []bench.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range list {
		s.ledger.Happened(c)
	}
}

func (s *side) judge(wanted func(at int64) bool) bench.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Judge(wanted)
}

func (s *side) now() worker.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

// await asks for progress until one satisfies ok, and returns the progress; false when ctx or the
// time ends.
func (s *side) await(
	ctx context.Context,
	long time.Duration,
	ok func(worker.Progress) bool,
) (worker.Progress, bool) {
	for span := s.span(); ; {
		err := s.process.News() // the end of a worker is noticed elsewhere
		if p := s.now(); ok(p) {
			return p, true
		} else if err != nil || span.ran() > long || bench.Sleep(ctx, askEvery) != nil {
			return p, false
		}
	}
}

// patience is ten times as long on a machine on which this process or the generator's stood still:
// reads wait for a CPU there, in the runtime too, and most of these waits are too short to be
// noticed. A cache that is wrong for good is so after that time, too. While the generator itself
// knows of pods to be read, and has not come to it or tries again, it is sixty times as long.
func (s *side) patience(long time.Duration) time.Duration {
	now := s.now()
	stood := max(s.meter.Stood(), now.Stood)
	switch {
	case stood.Seconds() < bench.StoodFrom:
		return long
	case now.DirtyPods+now.Inspecting > 0:
		return 60 * long
	}
	return 10 * long
}

// compare compares the cache with the runtime, again and again until they are equal or the time is
// up, in which this process and the generator's ran.
func (s *side) compare(
	ctx context.Context,
	read func(context.Context) ([]bench.Pod, error),
	ours string,
	long time.Duration,
) (checked, mismatches int, lines []string, err error) {
	const maxLines = 20
	for span := s.span(); ; {
		truth, err := read(ctx)
		if err != nil {
			return 0, 0, nil, err
		}
		snapshot, err := s.process.Snapshot(ctx)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("read the cache of the %s PLEG: %w", s.mode, err)
		}
		cached := snapshot.Pods[:0]
		for _, p := range snapshot.Pods {
			if strings.HasPrefix(p.UID, ours) {
				cached = append(cached, p)
			}
		}
		mismatches, lines = bench.Compare(cached, truth, maxLines)
		if mismatches == 0 || span.ran() > s.patience(long) {
			return len(truth), mismatches, lines, nil
		}
		if err := bench.Sleep(ctx, 100*time.Millisecond); err != nil {
			return 0, 0, nil, err
		}
	}
}

// changes returns the generator over time, from begin on, with the delay of each change.
func (s *side) changes(begin int64, inWindow func(at int64) bool) bench.Series {
	v := s.judge(inWindow)
	return s.series(begin, inWindow, v.Begins, v.Latency)
}

// events returns the generator over time, from begin on, with the delay of each event since its
// stamp.
func (s *side) events(begin int64, inWindow func(at int64) bool) bench.Series {
	v := s.judge(inWindow)
	return s.series(begin, inWindow, v.Stamps, v.Path)
}

func (s *side) series(begin int64, inWindow func(at int64) bool, stamps []int64, delays []time.Duration) bench.Series {
	series := bench.Series{Name: s.mode, Points: make([]bench.Point, len(delays)), Samples: []bench.Sample{}}
	since := func(at int64) float64 { return time.Duration(at - begin).Seconds() }
	for i, d := range delays {
		series.Points[i] = bench.Point{since(stamps[i]), d.Seconds()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.kept {
		if inWindow(p.At) || p.At == s.end.Progress.At {
			series.Samples = append(series.Samples, bench.Sample{
				At:            since(p.At),
				State:         p.State.String(),
				Lists:         p.Relists,
				Reads:         p.Inspections,
				Received:      p.Claims,
				Missed:        p.Missed,
				CPUSeconds:    p.Usage.CPUSeconds,
				HeapBytes:     p.Heap,
				PeriodSeconds: p.RelistPeriod.Seconds(),
			})
		}
	}
	return series
}

// result sums the side up. Unwanted changes in the window count for completeness, and not for
// latency.
func (s *side) result(c bench.ConsistencyResult, inWindow, wanted func(at int64) bool) bench.ComparisonResult {
	begin := s.begin.Progress
	end := s.end.Progress
	final := s.final.Progress
	all := s.judge(inWindow)
	v := s.judge(func(at int64) bool { return inWindow(at) && wanted(at) })
	r := bench.ComparisonResult{
		PLEG: bench.PLEGResult{
			Mode:                s.mode,
			State:               final.State.String(),
			Relists:             final.Relists,
			Sweeps:              final.Sweeps,
			Inspections:         final.Inspections,
			Reconnects:          final.Reconnects,
			RelistPeriodSeconds: final.RelistPeriod.Seconds(),
			Overruled:           final.Overruled,
			Regressions:         final.Regressions,
		},
		Events: bench.EventsResult{
			Received:   final.Claims,
			Stale:      final.StaleClaims,
			Replayed:   final.ReplayedClaims,
			Lifecycle:  all.Deliveries,
			PodSyncs:   all.Syncs,
			Missed:     final.Missed,
			Owed:       final.Owed,
			Duplicates: all.Duplicates,
			OutOfOrder: all.OutOfOrder,
		},
		Latency: bench.Summarize(v.Latency).Seconds(), EventLatency: bench.Summarize(v.Path).Seconds(),
		Consistency: c,
		Cost: bench.CostResult{
			PLEGCPUSeconds:  end.Usage.CPUSeconds - begin.Usage.CPUSeconds,
			PLEGMaxRSSBytes: final.Usage.MaxRSS,
			RPCs:            make(map[string]int),
			Relists:         end.Relists - begin.Relists,
			Inspections:     end.Inspections - begin.Inspections,
		},
	}
	r.Events.Changes = all.Changes
	r.Events.Unseen = all.Unseen
	r.Events.Undelivered = all.Undelivered
	r.Freshness.LatencyResult = bench.Summarize(s.final.Waits).Seconds()
	r.Freshness.StaleReads = s.final.StaleReads
	r.Freshness.Errors = s.final.ReadErrors
	r.Consistency.Differences = append(
		[]string{},
		slices.Concat(c.Differences, s.ledger.Complaints(), s.final.Complaints)...)
	for method, n := range s.end.Calls {
		n -= s.begin.Calls[method]
		if n > 0 {
			r.Cost.RPCs[method] = int(n)
		}
	}
	return r
}
