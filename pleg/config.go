// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Config configures a [Generator]. Source and Cache are required; the zero value of every other
// field is its default. A duration that is given is a microsecond at least.
type Config[S any] struct {
	// Source reads the runtime. Required.
	Source Source[S]
	// Stream is the runtime's event stream. Without a stream the generator is generic, and polls
	// at RelistBase for ever.
	Stream Stream[S]
	// Cache takes the pod statuses. Required. The generator must be its only writer while it
	// runs.
	Cache *cache.Cache[S]
	// Merge, when set, may replace a new status before the write, given the status in the cache
	// (nil if none), to keep data forgotten early by the runtime (pod IPs after teardown). The
	// loop calls Merge, which must not block or change prev.
	Merge func(prev, next *S) *S
	// Same, when set, reports whether two statuses of a pod are the same beside their phases,
	// whatever the order of maps in them. A read that finds another content, with no phase
	// changed, costs Watch a PodSync, and is counted unless a call of the agent's own explains
	// it. The loop calls Same. Without Same, changes of content are stored, and nobody is told.
	Same func(a, b *S) bool
	// Without, when set, returns a status without an ID, for TellsCalls: an ID the agent has
	// removed is taken out of the status once its event has come, or none has for a quarter of
	// RelistBase. The others stay as of their last read, and the pod is not read; it is if Without
	// returns nil. The loop calls Without, which must not block or change status.
	Without func(status *S, id string) *S
	// Recorder takes the generator's own reports (Kubernetes Events). Nil discards them.
	Recorder Recorder
	// Metrics takes counts and timings. Nil discards them.
	Metrics Metrics
	// WallClock is the clock for comparing the runtime's stamps in the latency metric; nil means
	// time.Now. Nothing else reads the clock.
	WallClock func() time.Time

	// RelistBase is the time from the end of a relist to the next before trust is earned, and
	// always without a stream. Default 1s.
	RelistBase time.Duration
	// RelistMax bounds the relist period earned by a stream. Default 300s.
	RelistMax time.Duration
	// RelistTimeout bounds a list of the whole runtime. Default 2m.
	RelistTimeout time.Duration
	// RelistSlow is how long a list of everything may take before it is reported as slow. Default
	// 5s.
	RelistSlow time.Duration
	// RelistThreshold is how late a due relist may finish before Health reports a failure.
	// Default 3m.
	RelistThreshold time.Duration
	// Grace is how long a claim and a read may contradict each other before the read is believed,
	// and how long a change found by a read waits for its claim before it counts as missed.
	// Default 2s.
	Grace time.Duration
	// TellsCalls means: the agent reports every call of its own (Generator.Calling), and nobody
	// else makes sandboxes or containers in its pods. A pod with all IDs known is then read by
	// their statuses, without a list: an ID made by somebody else all the same is found by its
	// event, or by the next list of everything, and not by a waiter in GetNewerThan. An ID that the
	// agent has removed is not asked for once its event has come, or none has for a quarter of
	// RelistBase.
	TellsCalls bool
	// CallSettle is how long after the agent's own calls in a pod one read shows what all of them
	// have changed: calls come in bursts, and the runtime announces each. While a call of the
	// burst is under way its changes wait for the end of the call, and a new sandbox waits for its
	// first container, but for no more than five times RelistBase in all; claims that no call explains
	// wait for a quarter of RelistBase. So does what the agent itself has ended or removed: it
	// knows, and the event may spare the read. With TellsCalls a call under way explains what is
	// made or started in its pod: runtimes announce it before they answer. Waiters in
	// GetNewerThan do not wait, and payloads of events are stored at once.
	// At most RelistBase. Default a fiftieth of RelistBase, 20ms: polling would see the change
	// some fifty times later.
	CallSettle time.Duration
	// InspectWorkers bounds the per-pod reads in flight on a runtime that answers, however
	// slowly; a few probes apart, which begin while no read ends. Reads that hang, because others
	// begun later have ended, do not count: up to eight times as many may begin beside them, and
	// a hundred and twenty-eight times as many be in flight. As many more are for pods whose last
	// read failed. Default 8.
	InspectWorkers int
	// InspectTimeout bounds a per-pod read. Default 30s.
	InspectTimeout time.Duration
	// RetryBase and RetryMax bound the delay before a failed per-pod read is tried again, doubling
	// with each failure of a read that took a second or longer. A read that fails sooner is tried
	// again after RetryBase each time. Defaults 1s, 32s.
	RetryBase time.Duration
	RetryMax  time.Duration
	// RereadBase is the first delay before the next read of a pod in disagreement with a claim,
	// doubling up to RelistMax. Default 1ms: about as long as containerd still lists a sandbox
	// after its DELETED. A pod in teardown whose removal nothing has announced is read after a
	// tenth of RelistBase, 100ms at most, doubling likewise.
	RereadBase time.Duration
	// EndSettle is how long after the end of a container, or after a payload was stored, all
	// statuses of the pod are read once more: runtimes learn the reason of an end late, or
	// correct an exit code. Default 1s; negative means never.
	EndSettle time.Duration
	// Reread is the time in which the statuses of every pod are read again in the background,
	// evenly spread: no event announces a changed limit or address. After a reconnect every
	// status is read again at once, twenty a second. Default 10m; negative means neither.
	Reread time.Duration
	// SweepAt is the number of pods wanting a read at which a list of everything is made instead:
	// at once if waiters want so many, else RelistBase after the last list at the earliest.
	// Default 16.
	SweepAt int
	// Capacity is the size of the Watch channel, whose memory is taken at once. At most 1<<24.
	// Default 1000.
	Capacity int
	// OwedMax bounds the pods gone but still owed a PodSync because Watch is not read: of more, the
	// oldest debts are dropped and counted, Grace after the last time at the earliest. Pods that
	// live are owed theirs beside these. Default 65536.
	OwedMax int
	// MailboxMax bounds the IDs whose claims wait for the loop; beyond the bound claims are
	// discarded and counted, and a list of everything, at least RelistBase after the last,
	// replaces them. Default 65536.
	MailboxMax int
	// UnconfirmedMax bounds the claimed IDs not yet shown by a read, and the own calls under way;
	// beyond the bound claims are discarded likewise, and calls are counted as DiscardedAcks.
	// Default 4096.
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
	// StableAfter is how long a stream must last for the reconnect delay to start over. Default
	// 1m.
	StableAfter time.Duration
	// Settle is how long a silent stream must last to count as connected. Default 1s.
	Settle time.Duration
	// Seed seeds the jitter; zero means a random seed.
	Seed uint64
}

// limits is the core's part of a configuration: durations and bounds, and nothing with effects.
// Fields without a comment are those of Config.
type limits struct {
	// Streams reports whether there is a stream.
	Streams    bool
	TellsCalls bool
	LateCall   time.Duration

	RelistBase time.Duration
	RelistMax  time.Duration
	RelistSlow time.Duration

	// ListFirst is how long a pod that needs a read waits for a list of everything under way, which
	// may make the read unnecessary: a tenth of RelistBase, soonMost at most.
	ListFirst time.Duration

	// SweepAgain is the least time from a list of everything to one that replaces the reads of many
	// pods for which nobody waits.
	SweepAgain time.Duration

	// ForceAgain is the least time between two reads of a pod by RequestReinspect.
	ForceAgain time.Duration

	// TeardownAgain is the first delay of the reads of a pod in its teardown, whose removal may never
	// be announced: a tenth of RelistBase, soonMost at most.
	TeardownAgain time.Duration

	// CallBurst is how long a burst of own calls may put off the reads of a pod: see
	// Config.CallSettle.
	CallBurst time.Duration

	// CallWait is how long reads wait for the agent's own calls that do not depend on them: of news
	// of others, and of what the agent itself has ended, for further calls and the event of the end.
	CallWait time.Duration

	Grace      time.Duration
	CallSettle time.Duration
	RetryBase  time.Duration
	RetryMax   time.Duration
	RereadBase time.Duration
	EndSettle  time.Duration
	Reread     time.Duration

	InspectWorkers int
	SweepAt        int
	OwedMax        int
	UnconfirmedMax int
}

// LateCall is how long a call that its caller has given up may still take effect in the runtime:
// a sandbox or a container may appear, or start, that no call has reported. Until then no pod of
// such a call is read by its known IDs alone, and no list of such a pod is served from memory
// (embed/ledger).
const LateCall = 10 * time.Minute

// soonMost bounds the delays that are a tenth of RelistBase: agents that poll rarely are promised a
// read within a second likewise.
const soonMost = defaultRelistBase / 10

// limits returns the core's part.
func (c *Config[S]) limits() limits {
	return limits{
		Streams:        c.Stream != nil,
		TellsCalls:     c.TellsCalls,
		LateCall:       LateCall,
		RelistBase:     c.RelistBase,
		RelistMax:      c.RelistMax,
		RelistSlow:     c.RelistSlow,
		ListFirst:      min(c.RelistBase/10, soonMost),
		SweepAgain:     c.RelistBase,
		ForceAgain:     c.RelistBase,
		TeardownAgain:  max(min(c.RelistBase/10, soonMost), 1),
		CallBurst:      min(c.RelistBase, math.MaxInt64/5) * 5,
		CallWait:       max(c.RelistBase/4, c.CallSettle),
		Grace:          c.Grace,
		CallSettle:     c.CallSettle,
		RetryBase:      c.RetryBase,
		RetryMax:       c.RetryMax,
		RereadBase:     c.RereadBase,
		EndSettle:      c.EndSettle,
		Reread:         c.Reread,
		InspectWorkers: c.InspectWorkers,
		SweepAt:        c.SweepAt,
		OwedMax:        c.OwedMax,
		UnconfirmedMax: c.UnconfirmedMax,
	}
}

// conn returns the stream machine's part.
func (c *Config[S]) conn() connConfig {
	return connConfig{
		base:        c.ReconnectBase,
		max:         c.ReconnectMax,
		steady:      c.ReconnectSteady,
		stableAfter: c.StableAfter,
		settle:      c.Settle,
		jitter:      c.Jitter,
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
	defaultEndSettle       = time.Second
	defaultReread          = 10 * time.Minute
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

// The bounds of the counts. Memory for Capacity and for the results of InspectWorkers is taken at
// once; sums and small multiples of all counts must fit into 32 bits.
const (
	workersMost  = 1 << 12
	capacityMost = 1 << 24
	countMost    = 1 << 28
)

// durationLeast is the shortest duration of a configuration. A shorter one was meant to have a
// unit: 5 is five nanoseconds.
const durationLeast = time.Microsecond

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
	orDefault(&c.CallSettle, max(c.RelistBase/50, durationLeast))
	orDefault(&c.InspectWorkers, defaultInspectWorkers)
	orDefault(&c.InspectTimeout, defaultInspectTimeout)
	orDefault(&c.RetryBase, defaultRetryBase)
	orDefault(&c.RetryMax, max(defaultRetryMax, c.RetryBase))
	orDefault(&c.RereadBase, defaultRereadBase)
	orDefault(&c.EndSettle, defaultEndSettle)
	orDefault(&c.Reread, defaultReread)
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

// validate reports every unworkable field of a configuration, defaults included, by name and
// value.
func (c Config[S]) validate() error {
	return errors.Join(slices.Concat(
		c.validateParts(),
		c.validateDurations(),
		c.validateCounts(),
	)...)
}

// validateParts reports the missing parts. A nil pointer in an interface is not nil, and would end
// the process at its first call.
func (c Config[S]) validateParts() (errs []error) {
	for _, part := range []struct {
		name   string
		v      any
		remedy string
	}{
		{"Source", c.Source, "look at the error of what makes it"},
		{"Stream", c.Stream, "leave the field out for none"},
		{"Metrics", c.Metrics, "leave the field out for none"},
		{"Recorder", c.Recorder, "leave the field out for none"},
	} {
		if v := reflect.ValueOf(part.v); v.Kind() == reflect.Pointer && v.IsNil() {
			errs = append(errs, bad("%s is a nil %T: %s", part.name, part.v, part.remedy))
		}
	}
	if c.Source == nil {
		errs = append(errs, bad("Source is nil: the generator needs something to read"))
	}
	switch {
	case c.Cache == nil:
		errs = append(errs, bad("Cache is nil: the generator needs a cache to write"))
	case c.Cache.Demand() == nil:
		errs = append(errs, bad("Cache is a zero cache.Cache: make it with cache.New"))
	}
	return errs
}

// validateDurations reports the durations that are negative or have no unit, and those of the
// others that contradict each other.
func (c Config[S]) validateDurations() (errs []error) {
	good := make(map[string]bool)
	for _, d := range []struct {
		name  string
		v     time.Duration
		never bool // a negative value means never
	}{
		{"RelistBase", c.RelistBase, false},
		{"RelistMax", c.RelistMax, false},
		{"RelistTimeout", c.RelistTimeout, false},
		{"RelistSlow", c.RelistSlow, false},
		{"RelistThreshold", c.RelistThreshold, false},
		{"Grace", c.Grace, false},
		{"CallSettle", c.CallSettle, false},
		{"InspectTimeout", c.InspectTimeout, false},
		{"RetryBase", c.RetryBase, false},
		{"RetryMax", c.RetryMax, false},
		{"RereadBase", c.RereadBase, false},
		{"EndSettle", c.EndSettle, true},
		{"Reread", c.Reread, true},
		{"ReconnectBase", c.ReconnectBase, false},
		{"ReconnectMax", c.ReconnectMax, false},
		{"ReconnectSteady", c.ReconnectSteady, false},
		{"StableAfter", c.StableAfter, false},
		{"Settle", c.Settle, false},
	} {
		switch {
		case d.v < 0 && !d.never:
			errs = append(errs, bad("%s is %v: it must not be negative (zero means the default)", d.name, d.v))
		case 0 < d.v && d.v < durationLeast:
			errs = append(errs, bad("%s is %v: has it a unit, such as %d*time.Second? The least is %v", d.name, d.v, d.v, durationLeast))
		default:
			good[d.name] = true
		}
	}
	if good["RelistMax"] && good["RelistBase"] && c.RelistMax < c.RelistBase {
		errs = append(errs, bad("RelistMax is %v, shorter than RelistBase, %v: raise RelistMax or lower RelistBase", c.RelistMax, c.RelistBase))
	}
	if good["CallSettle"] && good["RelistBase"] && c.CallSettle > c.RelistBase {
		errs = append(errs, bad("CallSettle is %v, longer than RelistBase, %v: polling would see a change sooner; lower CallSettle", c.CallSettle, c.RelistBase))
	}
	if good["RetryMax"] && good["RetryBase"] && c.RetryMax < c.RetryBase {
		errs = append(errs, bad("RetryMax is %v, shorter than RetryBase, %v: raise RetryMax or lower RetryBase", c.RetryMax, c.RetryBase))
	}
	if good["ReconnectMax"] && good["ReconnectBase"] && c.ReconnectMax < c.ReconnectBase {
		errs = append(errs, bad("ReconnectMax is %v, shorter than ReconnectBase, %v: raise ReconnectMax or lower ReconnectBase", c.ReconnectMax, c.ReconnectBase))
	}
	return errs
}

// validateCounts reports the counts out of their bounds.
func (c Config[S]) validateCounts() (errs []error) {
	for _, n := range []struct {
		name    string
		v, most int
	}{
		{"InspectWorkers", c.InspectWorkers, workersMost},
		{"SweepAt", c.SweepAt, countMost},
		{"Capacity", c.Capacity, capacityMost},
		{"OwedMax", c.OwedMax, countMost},
		{"MailboxMax", c.MailboxMax, countMost},
		{"UnconfirmedMax", c.UnconfirmedMax, countMost},
	} {
		if n.v < 0 {
			errs = append(errs, bad("%s is %d: it must not be negative (zero means the default)", n.name, n.v))
		}
		if n.v > n.most {
			errs = append(errs, bad("%s is %d: it must be at most %d", n.name, n.v, n.most))
		}
	}
	if c.Jitter > 1 || math.IsNaN(c.Jitter) {
		errs = append(errs, bad("Jitter is %v: it must be a fraction, at most 1", c.Jitter))
	}
	return errs
}

// bad is the error about a field.
func bad(format string, args ...any) error { return fmt.Errorf("pleg: Config."+format, args...) }

// Recorder takes the generator's reports about itself, for Kubernetes Events. Record is called
// from the generator's loop and must not block.
type Recorder interface {
	Record(Report)
}

// Report is news for an operator. A report is about the node unless Pod is set. Reports of a
// reason repeat while the condition lasts, ever more rarely.
type Report struct {
	Reason  Reason
	Action  string
	Warning bool
	Note    string
	Pod     *PodRef
	// Held is the number of occurrences, unreported, since the last report of the reason: a
	// lasting condition of the node is reported at once, and then after 10 s, 40 s, 160 s and
	// every ten minutes. If the condition does not come up again, a held report is made when the
	// pause is over, with its age at the end of the note.
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
	// ReasonStreamLost: a connected stream ended, or hung and was ended; the generator polls at
	// the base period. The note says why.
	ReasonStreamLost Reason = "ContainerEventStreamLost"
	// ReasonStreamRestored: the stream is connected again.
	ReasonStreamRestored Reason = "ContainerEventStreamRestored"
	// ReasonStreamUnsupported: the runtime offers no events; the generator polls.
	ReasonStreamUnsupported Reason = "ContainerEventStreamUnsupported"
	// ReasonEventsMissed: a read found changes without an event. The note names the first.
	ReasonEventsMissed Reason = "ContainerEventsMissed"
	// ReasonEventsOverruled: a read took back claims of the stream. The note names the first pod
	// and ID; one report in ten seconds at most.
	ReasonEventsOverruled Reason = "ContainerEventsOverruled"
	// ReasonChangesUnheard: lists found changes while the stream was down. The note names the
	// first.
	ReasonChangesUnheard Reason = "ContainerChangesUnheard"
	// ReasonRelistHangs: a list of everything has been under way for longer than RelistSlow.
	ReasonRelistHangs Reason = "RelistHangs"
	// ReasonRelistSlow: a list of everything took longer than RelistSlow.
	ReasonRelistSlow Reason = "RelistSlow"
	// ReasonRelistFailed: a list of everything failed.
	ReasonRelistFailed Reason = "RelistFailed"
	// ReasonInspectFailed: a pod's status cannot be read; the report is about the pod.
	ReasonInspectFailed Reason = "PodInspectFailed"
	// ReasonWatchOverflow: Watch is not being read; events became PodSyncs.
	ReasonWatchOverflow Reason = "PodLifecycleEventsOverflow"
)

type noRecorder struct{}

func (noRecorder) Record(Report) {}
