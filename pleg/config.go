// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Config configures a [Generator]. Source, and Cache are required; every other field's zero value
// is its default.
type Config[S any] struct {
	// Source reads the runtime. Required.
	Source Source[S]
	// Stream is the runtime's event stream. Nil makes the generator generic: it polls at RelistBase
	// for ever.
	Stream Stream[S]
	// Cache takes the pod statuses. Required. The generator must be its only writer while it runs.
	Cache *cache.Cache[S]
	// Merge, when set, may replace a new status before it is stored, given the one stored before
	// (nil if none), so that what the runtime forgets early (pod IPs after teardown) is kept. It is
	// called from the loop and must not block or change prev.
	Merge func(prev, next *S) *S
	// Recorder takes the generator's own reports (Kubernetes Events). Nil discards them.
	Recorder Recorder
	// Metrics takes counts and timings. Nil discards them.
	Metrics Metrics
	// WallClock is the clock that the latency metric compares with the runtime's stamps; nil means
	// time.Now. Nothing else reads it.
	WallClock func() time.Time

	// RelistBase is the time from the end of a relist to the next while nothing has earned trust,
	// and always without a stream. Default 1s.
	RelistBase time.Duration
	// RelistMax bounds the relist period that a stream can earn. Default 300s.
	RelistMax time.Duration
	// RelistTimeout bounds one list of the whole runtime. Default 2m.
	RelistTimeout time.Duration
	// RelistSlow is how long a list of everything may take before it is reported as slow. Default 5s.
	RelistSlow time.Duration
	// RelistThreshold is how late a due relist may finish before Health reports a failure. Default 3m.
	RelistThreshold time.Duration
	// Grace is how long a claim and a read may contradict each other before the read is believed,
	// and how long a change that a read found waits for its claim before it counts as missed.
	// Default 2s.
	Grace time.Duration
	// TellsCalls says that the agent tells of every call of its own (Generator.Calling), and that
	// nobody else makes sandboxes or containers in its pods. Then a pod of which all IDs are known is
	// read by their statuses, without a list: what somebody else makes in it all the same is found by
	// its event, or by the next list of everything, and not by whoever waits in GetNewerThan.
	TellsCalls bool
	// CallSettle is how long what a call of the agent's own has changed, and what the stream tells of
	// a pod while such a call is under way, waits to be read, once for all: calls come in bursts, and
	// the runtime tells of each. Nobody who waits in GetNewerThan waits for that. At most RelistBase.
	// Default a fiftieth of RelistBase, 20ms: polling would see the change some fifty times later.
	CallSettle time.Duration
	// AnswersFromMemory answers whoever waits in GetNewerThan without a read while the stream is
	// trusted, if a read of the pod has begun after the last call about it returned, and nothing has
	// been told of it since. Then the answer lacks at most what has ended without a call and without
	// an event yet: the event, or the next list of everything, tells it. It needs TellsCalls.
	AnswersFromMemory bool
	// InspectWorkers bounds the per-pod reads in flight. Those that are under way for longer than
	// RelistBase hold half of them at most while other pods need to be read: the rest are interrupted
	// and made again. So there must be at least 2: one hung read would hold a single worker. Default
	// 8.
	InspectWorkers int
	// InspectTimeout bounds one per-pod read. Default 30s.
	InspectTimeout time.Duration
	// RetryBase and RetryMax bound the delay before a failed per-pod read is tried again; it
	// doubles with each failure. Defaults 1s, 32s.
	RetryBase time.Duration
	RetryMax  time.Duration
	// RereadBase is the first delay after which a pod that is going away, or that disagrees with a
	// claim, is read again; it doubles up to RelistMax. Default 1ms: about as long as containerd
	// still lists a sandbox of which it has told DELETED.
	RereadBase time.Duration
	// SweepAt is the number of pods wanting a read at which one list of everything is made instead:
	// at once if somebody waits for so many, else RelistBase after the last one at the earliest.
	// Default 16.
	SweepAt int
	// Capacity is the size of the Watch channel. Default 1000.
	Capacity int
	// OwedMax bounds the pods that no longer exist and are still owed a PodSync because Watch is
	// not read. Default 65536.
	OwedMax int
	// MailboxMax bounds the IDs of which claims wait for the loop; beyond it claims are discarded,
	// counted, and a list of everything, RelistBase after the last one at the earliest, tells what
	// they would have told. Default 65536.
	MailboxMax int
	// UnconfirmedMax bounds the claimed IDs that no read has shown yet; beyond it they are discarded
	// likewise. Default 4096.
	UnconfirmedMax int
	// ReconnectBase, ReconnectMax and ReconnectSteady shape the delay before the stream is opened
	// again: at once, then ReconnectBase, doubling to ReconnectMax, then ReconnectSteady for ever
	// (KEP-3386, "retry logic": 0, 1, 2, 4 … 64 s, then every 60 s). Defaults 1s, 64s, 60s.
	ReconnectBase   time.Duration
	ReconnectMax    time.Duration
	ReconnectSteady time.Duration
	// Jitter is the fraction by which every reconnect delay is lengthened at random. Default 0.1;
	// negative means none.
	Jitter float64
	// StableAfter is how long a stream must last for the reconnect delay to start over. Default 1m.
	StableAfter time.Duration
	// Settle is how long an opened stream that has told nothing must last to count as connected.
	// Default 1s.
	Settle time.Duration
	// Seed seeds the jitter; zero seeds it at random.
	Seed uint64
}

// limits is what the core goes by: of a configuration the durations and the bounds, and nothing
// that has effects.
type limits struct {
	Streams                                          bool // there is a stream
	TellsCalls, AnswersFromMemory                    bool
	RelistBase, RelistMax, RelistTimeout, RelistSlow time.Duration
	Grace, CallSettle, RetryBase, RetryMax           time.Duration
	RereadBase                                       time.Duration
	InspectWorkers, SweepAt, OwedMax, UnconfirmedMax int
}

// limits returns what the core goes by.
func (c *Config[S]) limits() limits {
	return limits{
		Streams:    c.Stream != nil,
		TellsCalls: c.TellsCalls, AnswersFromMemory: c.AnswersFromMemory,
		RelistBase: c.RelistBase, RelistMax: c.RelistMax, RelistTimeout: c.RelistTimeout, RelistSlow: c.RelistSlow,
		Grace: c.Grace, CallSettle: c.CallSettle, RetryBase: c.RetryBase, RetryMax: c.RetryMax, RereadBase: c.RereadBase,
		InspectWorkers: c.InspectWorkers, SweepAt: c.SweepAt, OwedMax: c.OwedMax, UnconfirmedMax: c.UnconfirmedMax,
	}
}

// conn returns what the stream machine goes by.
func (c *Config[S]) conn() connConfig {
	return connConfig{
		base: c.ReconnectBase, max: c.ReconnectMax, steady: c.ReconnectSteady,
		stableAfter: c.StableAfter, settle: c.Settle, jitter: c.Jitter,
	}
}

const (
	defaultRelistBase      = time.Second
	defaultRelistMax       = 300 * time.Second
	defaultRelistTimeout   = 2 * time.Minute
	defaultRelistSlow      = 5 * time.Second
	defaultRelistThreshold = 3 * time.Minute
	defaultGrace           = 2 * time.Second
	defaultInspectWorkers  = 8
	defaultInspectTimeout  = 30 * time.Second
	defaultRetryBase       = time.Second
	defaultRetryMax        = 32 * time.Second
	defaultRereadBase      = time.Millisecond
	defaultSweepAt         = 16
	defaultCapacity        = 1000
	defaultOwedMax         = 65536
	defaultMailboxMax      = 65536
	defaultUnconfirmedMax  = 4096
	defaultReconnectBase   = time.Second
	defaultReconnectMax    = 64 * time.Second
	defaultReconnectSteady = 60 * time.Second
	defaultJitter          = 0.1
	defaultStableAfter     = time.Minute
	defaultSettle          = time.Second
)

func orDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// withDefaults returns the configuration with every zero field at its default.
func (c Config[S]) withDefaults() Config[S] {
	orDefault(&c.RelistBase, defaultRelistBase)
	orDefault(&c.RelistMax, max(defaultRelistMax, c.RelistBase))
	orDefault(&c.RelistTimeout, defaultRelistTimeout)
	orDefault(&c.RelistSlow, defaultRelistSlow)
	orDefault(&c.RelistThreshold, defaultRelistThreshold)
	orDefault(&c.Grace, defaultGrace)
	orDefault(&c.CallSettle, c.RelistBase/50)
	orDefault(&c.InspectWorkers, defaultInspectWorkers)
	orDefault(&c.InspectTimeout, defaultInspectTimeout)
	orDefault(&c.RetryBase, defaultRetryBase)
	orDefault(&c.RetryMax, max(defaultRetryMax, c.RetryBase))
	orDefault(&c.RereadBase, defaultRereadBase)
	orDefault(&c.SweepAt, defaultSweepAt)
	orDefault(&c.Capacity, defaultCapacity)
	orDefault(&c.OwedMax, defaultOwedMax)
	orDefault(&c.MailboxMax, defaultMailboxMax)
	orDefault(&c.UnconfirmedMax, defaultUnconfirmedMax)
	orDefault(&c.ReconnectBase, defaultReconnectBase)
	orDefault(&c.ReconnectMax, max(defaultReconnectMax, c.ReconnectBase))
	orDefault(&c.ReconnectSteady, defaultReconnectSteady)
	orDefault(&c.StableAfter, defaultStableAfter)
	orDefault(&c.Settle, defaultSettle)
	if c.Jitter == 0 {
		c.Jitter = defaultJitter
	}
	if c.Jitter < 0 {
		c.Jitter = 0
	}
	if c.Recorder == nil {
		c.Recorder = noRecorder{}
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.WallClock == nil {
		c.WallClock = time.Now
	}
	return c
}

// validate reports every field, of a configuration with its defaults filled in, that cannot work,
// by name and value.
func (c Config[S]) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("pleg: Config."+format, args...)) }
	if c.Source == nil {
		bad("Source is nil: the generator needs something to read")
	}
	if c.Cache == nil {
		bad("Cache is nil: the generator needs a cache to write")
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"RelistBase", c.RelistBase}, {"RelistMax", c.RelistMax}, {"RelistTimeout", c.RelistTimeout}, {"RelistSlow", c.RelistSlow}, {"RelistThreshold", c.RelistThreshold},
		{"Grace", c.Grace}, {"CallSettle", c.CallSettle}, {"InspectTimeout", c.InspectTimeout}, {"RetryBase", c.RetryBase}, {"RetryMax", c.RetryMax},
		{"RereadBase", c.RereadBase}, {"ReconnectBase", c.ReconnectBase}, {"ReconnectMax", c.ReconnectMax},
		{"ReconnectSteady", c.ReconnectSteady}, {"StableAfter", c.StableAfter}, {"Settle", c.Settle},
	} {
		if d.v < 0 {
			bad("%s is %v: it must not be negative (zero means the default)", d.name, d.v)
		}
	}
	for _, n := range []struct {
		name string
		v    int
	}{
		{"InspectWorkers", c.InspectWorkers}, {"SweepAt", c.SweepAt}, {"Capacity", c.Capacity}, {"OwedMax", c.OwedMax},
		{"MailboxMax", c.MailboxMax}, {"UnconfirmedMax", c.UnconfirmedMax},
	} {
		if n.v < 0 {
			bad("%s is %d: it must not be negative (zero means the default)", n.name, n.v)
		}
	}
	if c.InspectWorkers == 1 {
		bad("InspectWorkers is 1: it must be at least 2 (zero means the default), or one read that hangs keeps every other pod from being read")
	}
	if c.RelistMax < c.RelistBase {
		bad("RelistMax is %v, shorter than RelistBase, %v: raise RelistMax or lower RelistBase", c.RelistMax, c.RelistBase)
	}
	if c.CallSettle > c.RelistBase {
		bad("CallSettle is %v, longer than RelistBase, %v: polling would see a change sooner; lower CallSettle", c.CallSettle, c.RelistBase)
	}
	if c.RetryMax < c.RetryBase {
		bad("RetryMax is %v, shorter than RetryBase, %v: raise RetryMax or lower RetryBase", c.RetryMax, c.RetryBase)
	}
	if c.ReconnectMax < c.ReconnectBase {
		bad("ReconnectMax is %v, shorter than ReconnectBase, %v: raise ReconnectMax or lower ReconnectBase", c.ReconnectMax, c.ReconnectBase)
	}
	if c.AnswersFromMemory && !c.TellsCalls {
		bad("AnswersFromMemory is set and TellsCalls is not: what the agent does not tell of, nobody can answer for; set both or neither")
	}
	if c.Jitter > 1 {
		bad("Jitter is %v: it must be at most 1", c.Jitter)
	}
	return errors.Join(errs...)
}

// Recorder takes the generator's reports about itself, to be told as Kubernetes Events. Record is
// called from the generator's loop and must not block.
type Recorder interface {
	Record(Report)
}

// Report is one thing that an operator would want to know of. Every report is about the node unless
// Pod is set. Reports of one reason repeat while the condition lasts, ever more rarely.
type Report struct {
	Reason  Reason
	Action  string
	Warning bool
	Note    string
	Pod     *PodRef
	// Held is how often this has come up, unreported, since the last report of its reason: what
	// goes on about the node is reported at once, and then after 10 s, 40 s, 160 s and every ten
	// minutes. What was held back and has not come up again is reported when the pause is over, with
	// its age at the end of the note.
	Held int
}

// PodRef names a pod.
type PodRef struct {
	UID       cache.UID
	Name      string
	Namespace string
}

// Reason is the reason of a [Report], in the form of an Event's reason.
type Reason string

const (
	// ReasonStreamLost: a connected stream ended, or hung and was ended; the generator polls at the
	// base period. The note says why.
	ReasonStreamLost Reason = "ContainerEventStreamLost"
	// ReasonStreamRestored: the stream is connected again.
	ReasonStreamRestored Reason = "ContainerEventStreamRestored"
	// ReasonStreamUnsupported: the runtime offers no events; the generator polls.
	ReasonStreamUnsupported Reason = "ContainerEventStreamUnsupported"
	// ReasonEventsMissed: a read found changes that the stream did not tell. The note names the first.
	ReasonEventsMissed Reason = "ContainerEventsMissed"
	// ReasonEventsOverruled: a read took back what the stream had told. The note names the first
	// pod and ID; one report in ten seconds at most.
	ReasonEventsOverruled Reason = "ContainerEventsOverruled"
	// ReasonChangesUnheard: lists found changes while the stream was down. The note names the first.
	ReasonChangesUnheard Reason = "ContainerChangesUnheard"
	// ReasonRelistHangs: a list of everything has been under way for longer than RelistSlow.
	ReasonRelistHangs Reason = "RelistHangs"
	// ReasonRelistSlow: a list of everything took longer than RelistSlow.
	ReasonRelistSlow Reason = "RelistSlow"
	// ReasonRelistFailed: a list of everything failed.
	ReasonRelistFailed Reason = "RelistFailed"
	// ReasonInspectFailed: a pod's status cannot be read; it stands on that pod.
	ReasonInspectFailed Reason = "PodInspectFailed"
	// ReasonIDConflict: the runtime shows an ID of the pod that it has shown of another one; it
	// stands on the pod, once.
	ReasonIDConflict Reason = "ContainerIDConflict"
	// ReasonWatchOverflow: Watch is not being read; events became PodSyncs.
	ReasonWatchOverflow Reason = "PodLifecycleEventsOverflow"
)

type noRecorder struct{}

func (noRecorder) Record(Report) {}
