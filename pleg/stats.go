// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"time"
)

// counter names a count of the core.
type counter uint8

const (
	countClaims counter = iota
	countStale
	countReplayed
	countDropped
	countDominated
	countAcks
	countAcksLost
	countOverruled
	countInspections
	countInspectErrors
	countPeeks
	countRelists
	countRelistErrors
	countSweeps
	countRegressions
	countMissedStarts
	countMissedExits
	countMissedUnknowns
	countContentChanges
	countRereads
	countMissedCreations
	countMissedRemovals
	countUnheard
	countEvents
	countConnects
	countConnectErrors

	counterKinds = int(countConnectErrors) + 1
)

// counters are the core's counts since its start.
type counters [counterKinds]int

// counterTable gives each count its name for Metrics and its field of Stats; a count may be
// without either. Events are counted as Watch gets them.
var counterTable = [counterKinds]struct {
	metric string
	field  func(*Stats) *int
}{
	countClaims:          {MetricClaims, func(s *Stats) *int { return &s.Claims }},
	countStale:           {MetricStaleClaims, func(s *Stats) *int { return &s.StaleClaims }},
	countReplayed:        {MetricReplayedClaims, func(s *Stats) *int { return &s.ReplayedClaims }},
	countDropped:         {MetricDiscardedClaims, func(s *Stats) *int { return &s.DiscardedClaims }},
	countDominated:       {"", func(s *Stats) *int { return &s.Dominated }},
	countAcks:            {MetricAcks, func(s *Stats) *int { return &s.Acks }},
	countAcksLost:        {MetricDiscardedAcks, func(s *Stats) *int { return &s.DiscardedAcks }},
	countOverruled:       {MetricOverruledClaims, func(s *Stats) *int { return &s.Overruled }},
	countInspections:     {MetricInspections, func(s *Stats) *int { return &s.Inspections }},
	countInspectErrors:   {MetricInspectionErrors, func(s *Stats) *int { return &s.InspectionErrors }},
	countPeeks:           {MetricPeeks, func(s *Stats) *int { return &s.Peeks }},
	countRelists:         {MetricRelists, func(s *Stats) *int { return &s.Relists }},
	countRelistErrors:    {MetricRelistErrors, func(s *Stats) *int { return &s.RelistErrors }},
	countSweeps:          {"", func(s *Stats) *int { return &s.Sweeps }},
	countRegressions:     {MetricRegressions, func(s *Stats) *int { return &s.Regressions }},
	countMissedStarts:    {MetricMissedStarts, func(s *Stats) *int { return &s.MissedStarts }},
	countMissedExits:     {MetricMissedExits, func(s *Stats) *int { return &s.MissedExits }},
	countMissedUnknowns:  {MetricMissedUnknowns, func(s *Stats) *int { return &s.MissedUnknowns }},
	countContentChanges:  {MetricContentChanges, func(s *Stats) *int { return &s.ContentChanges }},
	countRereads:         {MetricRereads, func(s *Stats) *int { return &s.Rereads }},
	countMissedCreations: {MetricMissedCreations, func(s *Stats) *int { return &s.MissedCreations }},
	countMissedRemovals:  {MetricMissedRemovals, func(s *Stats) *int { return &s.MissedRemovals }},
	countUnheard:         {MetricUnheardChanges, func(s *Stats) *int { return &s.Unheard }},
	countEvents:          {"", func(s *Stats) *int { return &s.Events }},
	countConnects:        {MetricConnects, func(s *Stats) *int { return &s.Connects }},
	countConnectErrors:   {MetricConnectErrors, func(s *Stats) *int { return &s.ConnectErrors }},
}

// Stats is a snapshot of a generator. Counts are since [New].
type Stats struct {
	// State is the state of the event stream, Idle without one.
	State StreamState
	// RelistPeriod is the present time from the end of one relist to the next.
	RelistPeriod time.Duration
	// LastRelist is when the last successful list of everything was applied; zero before the
	// first.
	LastRelist time.Time
	// GlobalTime is the cache's global time; zero before the first.
	GlobalTime time.Time
	// Relists counts successful lists of everything; Sweeps counts lists, failed ones included,
	// made because many pods wanted a read.
	Relists, RelistErrors, Sweeps int
	// Inspections counts per-pod reads, started, finished or failed.
	Inspections, InspectionErrors int
	// Peeks counts looks at the known IDs of a pod while lists do not answer.
	Peeks int
	// Connects counts connected streams, Reconnects all but the first of them, ConnectErrors failed
	// and ended streams.
	Connects, Reconnects, ConnectErrors int
	// Claims counts the stream's messages; Stale those without news; Replayed those stamped
	// before the stream was opened, or in the future; Discarded those without room: the mailbox
	// was full, or too many claimed IDs had not been shown by a read.
	Claims, StaleClaims, ReplayedClaims, DiscardedClaims int
	// Acks counts the agent's own calls that have returned, DiscardedAcks how often some found no
	// room.
	Acks, DiscardedAcks int
	// Dominated counts payloads that became a status without a read.
	Dominated int
	// Missed counts changes to Running or Exited that only a read reported although the stream
	// was up all the while: MissedStarts and MissedExits together. MissedUnknowns counts likewise
	// IDs shown by reads in a state unknown to the runtime, or no longer in one. Each costs
	// trust. Creations and removals are counted apart.
	Missed, MissedStarts, MissedExits, MissedUnknowns int
	MissedCreations, MissedRemovals                   int
	// ContentChanges counts statuses found changed by reads, beside their phases (a limit, a
	// reason, an address), without an event and without a call of the agent's own. They cost
	// trust.
	ContentChanges int
	// Rereads counts the reads of the slow round over all pods (Config.Reread), and after a
	// reconnect.
	Rereads int
	// Unheard counts changes to Running or Exited that only a read reported while the stream was
	// down, or claims were discarded. An event of a later phase does not stand for the change.
	Unheard int
	// Overruled counts claims refuted by a read, Regressions phases of a read taken back by another
	// read.
	Overruled, Regressions int
	// Events counts events handed to Watch or owed, Owed events that became a PodSync owed,
	// Discarded PodSyncs dropped while owed.
	Events, Owed, DiscardedEvents int
	// Pods, Containers and Sandboxes are the numbers in the cache.
	Pods, Containers, Sandboxes int
	// RunningPods have a ready sandbox. ContainersBy is the number of containers in each phase up
	// to Exited.
	RunningPods  int
	ContainersBy [PhaseRemoved]int
	// DirtyPods want a read, Inspecting are being read, OwedPods are owed a PodSync, Waiters are
	// blocked in GetNewerThan.
	DirtyPods, Inspecting, OwedPods, Waiters int
	// UnreadPods are the pods whose last read failed, whole or in part: an error stands beside
	// their status. UnreadItems are the containers and sandboxes whose status those reads could
	// not get.
	UnreadPods, UnreadItems int
}

// stats returns a snapshot, without the waiters and the PodSyncs owed.
func (c *core[S]) stats() Stats {
	s := &c.snapshot // counterTable's functions would have a local one allocated in each turn
	*s = Stats{
		State:        c.stream.state,
		RelistPeriod: c.trust.sched.period,
		RunningPods:  c.running,
		ContainersBy: c.phases[Container],
		Pods:         len(c.pods),
		DirtyPods:    len(c.reads.dirty),
		Inspecting:   len(c.reads.inflight),
		UnreadPods:   c.unreadPods,
		UnreadItems:  c.unreadItems,
	}
	for k, n := range c.out.count {
		*counterTable[k].field(s) = n
	}
	s.Missed = s.MissedStarts + s.MissedExits
	s.Reconnects = max(0, s.Connects-1)
	if c.lists.appliedBegan != 0 {
		s.LastRelist = c.out.clock.time(c.lists.appliedAt)
	}
	if c.lists.global != 0 {
		s.GlobalTime = c.out.clock.time(c.lists.global)
	}
	for p := range PhaseRemoved {
		s.Containers += c.phases[Container][p]
		s.Sandboxes += c.phases[Sandbox][p]
	}
	return *s
}

// Stats returns a snapshot of the generator. Safe for concurrent use; never blocks on the loop.
func (g *Generator[S]) Stats() Stats {
	g.mu.Lock()
	s := g.snapshot.stats
	g.mu.Unlock()
	s.Waiters = g.cfg.Cache.Waiting()
	return s
}

// Gauges yields the present value of every Gauge of this package, for a metrics registry during a
// scrape.
func (g *Generator[S]) Gauges(yield func(name string, v float64)) {
	s := g.Stats()
	healthy := 0.0
	g.mu.Lock()
	running := g.snapshot.running
	applied := g.snapshot.appliedAt
	g.mu.Unlock()
	if g.Health() == nil {
		healthy = 1
	}
	yield(GaugeHealthy, healthy)
	yield(GaugeStreamState, float64(s.State))
	yield(GaugeRelistPeriod, s.RelistPeriod.Seconds())
	if running || !s.LastRelist.IsZero() {
		yield(GaugeLastRelist, g.clock.now().sub(applied).Seconds())
	}
	if !s.LastRelist.IsZero() {
		yield(GaugeLastSeen, float64(time.Now().Add(-time.Since(s.LastRelist)).UnixNano())/1e9)
	}
	yield(GaugeWaiters, float64(s.Waiters))
	yield(GaugeDirtyPods, float64(s.DirtyPods))
	yield(GaugeInspecting, float64(s.Inspecting))
	yield(GaugeOwedPods, float64(s.OwedPods))
	yield(GaugeUnreadPods, float64(s.UnreadPods))
	yield(GaugeUnreadItems, float64(s.UnreadItems))
	yield(GaugeRunningPods, float64(s.RunningPods))
	yield(GaugeContainersUnknown, float64(s.ContainersBy[PhaseUnknown]))
	yield(GaugeContainersCreated, float64(s.ContainersBy[PhaseCreated]))
	yield(GaugeContainersRunning, float64(s.ContainersBy[PhaseRunning]))
	yield(GaugeContainersExited, float64(s.ContainersBy[PhaseExited]))
}

// Metrics takes the generator's counts and timings. Names are the Metric constants of this
// package; an implementation ignores unknown names. Methods are called from the generator's
// goroutines, must be safe for concurrent use and must not block. Gauges are not pushed:
// [Generator.Gauges] yields them on demand.
type Metrics interface {
	// Add adds n to the counter of that name.
	Add(name string, n int)
	// Observe adds a duration to the histogram of that name.
	Observe(name string, d time.Duration)
}

// Counters.
const (
	// MetricRelists counts finished lists of the whole runtime, for any reason.
	MetricRelists = "relists"
	// MetricRelistErrors counts failed lists of the whole runtime.
	MetricRelistErrors = "relist_errors"
	// MetricInspections counts per-pod reads, finished or failed.
	MetricInspections = "inspections"
	// MetricInspectionErrors counts failed per-pod reads.
	MetricInspectionErrors = "inspection_errors"
	// MetricPeeks counts looks at the known IDs of a pod while lists do not answer.
	MetricPeeks = "peeks"
	// MetricClaims counts claims received (KEP-3386 evented_pleg_notifications_received).
	MetricClaims = "claims"
	// MetricStaleClaims counts claims without news: old, duplicated or replayed.
	MetricStaleClaims = "stale_claims"
	// MetricReplayedClaims counts claims with a stamp from before the stream was opened, or from
	// the future. They have no latency.
	MetricReplayedClaims = "replayed_claims"
	// MetricDiscardedClaims counts claims that found the mailbox full; a relist stands in for
	// them.
	MetricDiscardedClaims = "discarded_claims"
	// MetricAcks counts the agent's own calls that have returned, as reported to
	// Generator.Calling.
	MetricAcks = "acks"
	// MetricDiscardedAcks counts how often such calls found no room; a relist stands in for them.
	MetricDiscardedAcks = "discarded_acks"
	// MetricMissedEvents counts changes to Running or Exited that a read found and no claim
	// confirmed although the stream was up all the while (KEP-3386 kube_pod_missed_events).
	MetricMissedEvents = "missed_events"
	// MetricMissedStarts and MetricMissedExits are the two parts of MetricMissedEvents.
	MetricMissedStarts = "missed_starts"
	MetricMissedExits  = "missed_exits"
	// MetricMissedUnknowns counts likewise IDs a read showed in a state unknown to the
	// runtime, or no longer in one.
	MetricMissedUnknowns = "missed_unknowns"
	// MetricUnheardChanges counts changes to Running or Exited that a read found and no claim
	// confirmed while the stream was down, or claims were discarded: nobody listened, so the
	// runtime is not to blame.
	MetricUnheardChanges = "unheard_changes"
	// MetricContentChanges counts statuses found changed by reads, beside their phases, without
	// an event and without a call of the agent's own.
	MetricContentChanges = "content_changes"
	// MetricRereads counts the reads of the slow round over all pods, and after a reconnect.
	MetricRereads = "rereads"
	// MetricMissedCreations and MetricMissedRemovals count creations and removals that only a
	// read reported although the stream was up. Runtimes differ in the events that they send for
	// them: they cost trust where the runtime has announced others.
	MetricMissedCreations = "missed_creations"
	MetricMissedRemovals  = "missed_removals"
	// MetricOverruledClaims counts claims refuted by a read.
	MetricOverruledClaims = "overruled_claims"
	// MetricRegressions counts phases of a read taken back by a later read: a sandbox may
	// recover.
	MetricRegressions = "regressions"
	// MetricEvents counts lifecycle events handed to Watch.
	MetricEvents = "events"
	// MetricOwed counts events that found Watch full and became a PodSync owed.
	MetricOwed = "owed_events"
	// MetricDiscardedEvents counts PodSyncs owed for pods long gone and dropped because OwedMax
	// was reached.
	MetricDiscardedEvents = "discarded_events"
	// MetricConnects counts streams that connected (evented_pleg_connection_success_count).
	MetricConnects = "connects"
	// MetricConnectErrors counts streams that failed or ended
	// (evented_pleg_connection_error_count).
	MetricConnectErrors = "connect_errors"
)

// Histograms.
const (
	// MetricRelistDuration is the time from the start of a list of everything to its application.
	MetricRelistDuration = "relist_duration"
	// MetricRelistInterval is the time between the starts of two such lists.
	MetricRelistInterval = "relist_interval"
	// MetricInspectionDuration is the time of a per-pod read.
	MetricInspectionDuration = "inspection_duration"
	// MetricLatency is the time from a claim's stamp to its receipt by the wall clock, never
	// negative (evented_pleg_connection_latency_seconds).
	MetricLatency = "latency"
)

// Gauges, yielded by [Generator.Gauges].
const (
	GaugeStreamState       = "stream_state" // the number of the StreamState
	GaugeRelistPeriod      = "relist_period_seconds"
	GaugeHealthy           = "healthy"                 // 1 if Health returns nil, else 0
	GaugeLastRelist        = "last_relist_age_seconds" // since the last finished relist, or since the start
	GaugeLastSeen          = "last_seen_seconds"       // Unix time of the last finished relist; none before the first
	GaugeWaiters           = "waiters"
	GaugeDirtyPods         = "dirty_pods"
	GaugeInspecting        = "inspecting"
	GaugeOwedPods          = "owed_pods"
	GaugeUnreadPods        = "unread_pods"
	GaugeUnreadItems       = "unread_items"
	GaugeRunningPods       = "running_pods"
	GaugeContainersCreated = "containers_created"
	GaugeContainersRunning = "containers_running"
	GaugeContainersExited  = "containers_exited"
	GaugeContainersUnknown = "containers_unknown"
)

type noMetrics struct{}

func (noMetrics) Add(string, int)               {}
func (noMetrics) Observe(string, time.Duration) {}

// ErrNotRunning is Health's error before Run and after it.
var ErrNotRunning = errors.New("pleg: not running")

// snapshot is the state published by the loop for other goroutines.
type snapshot struct {
	running bool
	stats   Stats

	// appliedAt is when the last successful list was applied, or doubted, or the start.
	appliedAt instant
	listErr   error   // of the last list
	fell      instant // when a list was due at the latest, as the relist period last fell
}

// Health returns nil while the generator works, and otherwise the reason why not: the generator is
// not running, or no list of the runtime has finished for RelistThreshold since a list was due. A
// lost stream is no failure, since polling replaces the stream, and neither is an unread Watch:
// nothing here depends on how full the channel is. Safe for concurrent use.
func (g *Generator[S]) Health() error {
	g.mu.Lock()
	s := g.snapshot
	g.mu.Unlock()
	if !s.running {
		return ErrNotRunning
	}
	now := g.clock.now()
	due := max(s.appliedAt.add(s.stats.RelistPeriod), s.fell)
	if now.sub(due) <= g.cfg.RelistThreshold {
		return nil
	}
	late := now.sub(s.appliedAt)
	if s.listErr != nil {
		return fmt.Errorf("pleg: no list of the runtime has succeeded for %v, threshold %v: %w", late.Round(time.Second), g.cfg.RelistThreshold, s.listErr)
	}
	return fmt.Errorf("pleg: no list of the runtime has finished for %v, threshold %v: is the runtime answering?", late.Round(time.Second), g.cfg.RelistThreshold)
}
