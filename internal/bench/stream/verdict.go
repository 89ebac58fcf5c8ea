// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Facts are the findings of reads of the runtime, by the generator on the same stream.
type Facts struct {
	// Seconds is the duration of the watch, ConnectedSeconds the part with a connected stream.
	Seconds          float64 `json:"seconds"`
	ConnectedSeconds float64 `json:"connected_seconds"`
	// Missed counts starts and exits found by reads without an event; MissedCreations and
	// MissedRemovals likewise: not every runtime sends events for these. Unheard counts starts and
	// exits found by reads while the stream was down.
	Missed          int `json:"missed"`
	Unheard         int `json:"unheard"`
	MissedCreations int `json:"missed_creations"`
	MissedRemovals  int `json:"missed_removals"`
	// Overruled counts events refuted by reads.
	Overruled int `json:"overruled"`
	// Lists and Reads count successful lists of the whole runtime and reads of a pod; failed reads,
	// and those that hung for 3 s, are apart.
	Lists      int `json:"lists"`
	ListErrors int `json:"list_errors"`
	ListsHung  int `json:"lists_hung"`
	Reads      int `json:"reads"`
	ReadErrors int `json:"read_errors"`
	ReadsHung  int `json:"reads_hung"`
	// Malformed counts listed items without a usable ID, ListedTwice those listed twice in a list,
	// Unattributed the containers of the last list without a pod, UnknownPhase the items of all
	// reads in the state UNKNOWN or in a state outside the CRI.
	Malformed    int `json:"malformed"`
	ListedTwice  int `json:"listed_twice"`
	Unattributed int `json:"unattributed"`
	UnknownPhase int `json:"unknown_state"`
	// Contested reports whether the runtime gives each event to a single client, so another client
	// may have received the missing events.
	Contested bool `json:"-"`
	// Unsupported: the runtime offers no events.
	Unsupported bool `json:"-"`
	// Longest is the longest relist period allowed by the generator.
	Longest time.Duration `json:"-"`
}

// Worth is the worth of a stream.
type Worth string

// Worths.
const (
	// WorthUnknown: the runtime could not be read, so nothing is known.
	WorthUnknown Worth = "unknown"
	// WorthNone: no stream, or a stream without any change.
	WorthNone Worth = "none"
	// WorthUntested: too little happened.
	WorthUntested Worth = "untested"
	// WorthPartial: the stream loses events.
	WorthPartial Worth = "partial"
	// WorthFull: the stream reported every change found by reads.
	WorthFull Worth = "full"
)

// enough is the number of events for a stream without a gap to count as tested: fewer leave room
// for a loss of more than a tenth (rule of three).
const enough = 30

// kubeletMessage is the largest message accepted by a kubelet's client of the CRI, in bytes.
const kubeletMessage = 16 << 20

// Verdict is a conclusion in words.
type Verdict struct {
	Worth Worth `json:"worth"`
	// Summary is the worth of a stream in words.
	Summary string `json:"summary"`
	// PeriodSeconds is the relist period earned by the stream, 0 if unknown.
	PeriodSeconds float64 `json:"relist_period_seconds"`
	// Period says why.
	Period string `json:"relist_period"`
	// Maintainers is the advice to the runtime's maintainers, empty for none.
	Maintainers []string `json:"for_maintainers"`
}

// Conclude puts a stream's worth in words.
func (r Report) Conclude(f Facts) Verdict {
	v := r.worth(f)
	v.Maintainers = r.complaints(f)
	if f.Contested {
		v.Summary += "; this runtime gives each event to one of its clients only: with another one beside, nothing follows from what is missing, and that one has missed what came here"
	}
	return v
}

func (r Report) worth(f Facts) Verdict {
	base := time.Second.Seconds()
	longest := f.Longest.Seconds()
	changes := r.ToldSomething + f.Missed
	lost := float64(f.Missed) / float64(max(changes, 1))
	switch {
	case f.Lists == 0:
		return Verdict{Worth: WorthUnknown, Summary: "no list of the runtime succeeded: nothing can be said of its events"}
	case f.Unsupported:
		return Verdict{
			Worth: WorthNone, Summary: "this runtime offers no events",
			PeriodSeconds: base, Period: "every second, as a polling PLEG: there is nothing to trust",
		}
	case r.Received == 0 && f.Reads <= f.ReadsHung && f.ReadErrors+f.ReadsHung > 0:
		return Verdict{
			Worth:   WorthUnknown,
			Summary: fmt.Sprintf("not one pod could be read (%d reads failed, %d hung): nothing can be said of the runtime's events", f.ReadErrors, f.ReadsHung),
		}
	case r.Received == 0 && f.Missed+f.Unheard == 0:
		return Verdict{Worth: WorthUntested, Summary: "nothing happened: watch for longer, or while pods come and go"}
	case r.ToldSomething == 0 && f.Missed > 0:
		return Verdict{
			Worth: WorthNone, Summary: "the stream told nothing of " + lives(f.Missed) + " that reads found",
			PeriodSeconds: base, Period: "every second: each change that events do not tell takes the period back",
		}
	case f.Missed > 0:
		between := time.Duration(f.Seconds / float64(f.Missed) * float64(time.Second))
		earned := min(max(between.Seconds()/2, base), longest)
		return Verdict{
			Worth: WorthPartial,
			Summary: fmt.Sprintf("the stream lost %d of %d changes (%.2g %%)%s: a PLEG that believes it alone would be wrong, this one finds them with its lists",
				f.Missed, changes, 100*lost, f.also()),
			PeriodSeconds: earned,
			Period: fmt.Sprintf("up to about %s: an event is lost every %s on average, each takes the period back to a second, and clean lists double it again",
				bench.Short(time.Duration(earned*float64(time.Second)).Round(time.Second)), bench.Short(between.Round(100*time.Millisecond))),
		}
	case f.Unheard > 0 || len(r.Endings) > 0 && f.ConnectedSeconds < (f.Seconds-1)*9/10:
		return Verdict{
			Worth: WorthPartial,
			Summary: fmt.Sprintf("the stream was connected for %s of %s: it told of every change then, and lists found %s meanwhile",
				bench.Seconds(f.ConnectedSeconds), bench.Seconds(f.Seconds), lives(f.Unheard)),
			PeriodSeconds: base, Period: "every second while it is away, and after each return it earns longer ones anew",
		}
	case r.lacking() > 0:
		return Verdict{
			Worth: WorthPartial,
			Summary: fmt.Sprintf("the stream left out %s of %d, and the news came with later ones: with less luck only lists find it",
				bench.Count(r.lacking(), "event"), r.lacking()+r.Received),
			PeriodSeconds: longest, Period: fmt.Sprintf("up to the longest, %s, until a loss shows", bench.Short(f.Longest)),
		}
	case r.ToldSomething < enough:
		return Verdict{
			Worth: WorthUntested, Summary: fmt.Sprintf("the stream told of every change, but %d are too few to judge by: watch for longer", r.ToldSomething),
		}
	}
	flaws := "and nothing is wrong with it"
	if len(r.complaints(f)) > 0 {
		flaws = "though the runtime is not without flaws, which this PLEG survives (see below)"
	}
	return Verdict{
		Worth: WorthFull,
		Summary: fmt.Sprintf("the stream told of every change that reads found, %s; with %d changes told, it loses fewer than %.2g %% (at 95 %%)",
			flaws, r.ToldSomething, 300/float64(r.ToldSomething)),
		PeriodSeconds: longest,
		Period:        fmt.Sprintf("the longest, %s, after about %s without a loss", bench.Short(f.Longest), bench.Short(2*f.Longest)),
	}
}

// lives counts starts and exits.
func lives(n int) string { return bench.Count(n, "start or exit", "starts and exits") }

// also names the changes of the times without a stream, for the end of a clause.
func (f Facts) also() string {
	if f.Unheard == 0 {
		return ""
	}
	return fmt.Sprintf(", and was away for %d more", f.Unheard)
}

// advice explains each flaw and its remedy in a runtime.
var advice = []struct {
	flaw Flaw
	says string
}{
	{Duplicate, "were sent twice: each change should be told once"},
	{Reordered, "came after one of a later change of the same container: events of one container should be in order"},
	{StalePayload, "show another container of the pod in a state that it had left before, under a newer stamp: read the statuses and take the stamp under one lock, or stamp before the read"},
	{Contradicting, "show their own container in a state before the one that they announce: change the state before the event is made"},
	{NoSandbox, "have no pod_sandbox_status: a client cannot tell whose container it is without a list"},
	{NoStatuses, "have no containers_statuses: a client has to read the pod, which is what events are to save"},
	{UnknownType, "have a type that the CRI does not have"},
	{Malformed, "cannot be decoded or name no container"},
	{StampBack, "have a created_at older than that of an event sent before: a client that compares stamps drops them"},
	{FromFuture, "are stamped later than they were received: is another clock in use?"},
	{NoStamp, "have no created_at"},
}

// complaints is the advice to the runtime's maintainers.
func (r Report) complaints(f Facts) []string {
	list := []string{}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if f.Unsupported {
		add("GetContainerEvents ends at once or is not implemented: in CRI-O set enable_pod_events = true; containerd has it from 1.7 on")
		return list
	}
	// about adds advice on something that has happened.
	about := func(n int, format string, args ...any) {
		if n > 0 {
			add(format, args...)
		}
	}
	lacking, all := r.lacking(), r.Delays[AllKinds]
	about(f.Missed, "%s came without an event", lives(f.Missed))
	about(lacking, "events are left out: %s; later events, or the stamps in their statuses, show that what they tell happened", bench.Counts(r.Skipped))
	for _, a := range advice {
		n := r.Flaws[a.flaw]
		about(n, "%d of %d events %s; the first: %s", n, r.Received, a.says, r.Examples[a.flaw])
	}
	about(f.Overruled, "%s told of a change that no read confirmed", bench.Count(f.Overruled, "event"))
	about(f.ListErrors, "%d of %d lists of the whole runtime failed", f.ListErrors, f.ListErrors+f.Lists)
	about(f.ReadErrors, "%d of %d reads of a pod's statuses failed", f.ReadErrors, f.ReadErrors+f.Reads)
	about(f.ListsHung, "%s of the whole runtime got no answer for seconds", bench.Count(f.ListsHung, "list"))
	about(f.ReadsHung, "%s of a pod's statuses got no answer for seconds", bench.Count(f.ReadsHung, "read"))
	about(r.LateEvents, "%d of %d events came a second or more after their stamp, the latest after %s", r.LateEvents, all.Count, bench.Seconds(all.Max))
	about(r.LateExits, "%d of %d exits were stamped a second or more after they happened, the latest after %s", r.LateExits, r.ExitLag.Count, bench.Seconds(r.ExitLag.Max))
	about(f.Unheard, "%s happened while the stream was away, and no event told of them afterwards", lives(f.Unheard))
	about(r.LargestBytes-kubeletMessage, "the largest event has %s: a kubelet takes %s, and loses the stream with what is larger",
		bench.Bytes(uint64(r.LargestBytes)), bench.Bytes(kubeletMessage))
	about(f.Malformed, "%s of answers and events had to be left out: incomplete, or without an ID that can be used", bench.Count(f.Malformed, "item"))
	about(f.ListedTwice, "%s came twice in one list", bench.Count(f.ListedTwice, "item"))
	about(f.UnknownPhase, "%s in the state UNKNOWN, or in a state that the CRI does not have", bench.Count(f.UnknownPhase, "item"))
	about(f.Unattributed, "%s of the last list without a pod: no pod UID, and no sandbox in the list", bench.Count(f.Unattributed, "container"))
	about(len(r.Endings), "the stream ended: %s; what happens before a client is back is lost", r.Ends())
	return list
}
