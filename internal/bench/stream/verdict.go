// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Facts are the findings of reads of the runtime, by the generator on the same stream.
type Facts struct {
	// Seconds is the duration of the watch.
	Seconds float64 `json:"seconds"`
	// ConnectedSeconds is the part of it with a connected stream.
	ConnectedSeconds float64 `json:"connected_seconds"`
	// Missed counts starts and exits found by reads without an event.
	Missed int `json:"missed"`
	// Unheard counts starts and exits found by reads while the stream was down.
	Unheard int `json:"unheard"`
	// MissedCreations counts creations found by reads without an event; not every runtime sends
	// one.
	MissedCreations int `json:"missed_creations"`
	// MissedRemovals counts removals likewise.
	MissedRemovals int `json:"missed_removals"`
	// MissedUnknowns counts items that reads showed in the state UNKNOWN, or no longer in it,
	// without an event.
	MissedUnknowns int `json:"missed_unknowns"`
	// ContentChanges counts changes of a status within a state, of which the CRI has no event.
	ContentChanges int `json:"content_changes"`
	// Overruled counts events refuted by reads.
	Overruled int `json:"overruled"`
	// TakenBack counts findings of a read refuted by a later one.
	TakenBack int `json:"taken_back"`
	// UnreadPods counts pods that could not be read when last tried.
	UnreadPods int `json:"unread_pods"`
	// UnreadItems counts containers and sandboxes without a status in other pods.
	UnreadItems int `json:"unread_items"`
	// InvalidText counts texts of answers and events that are not UTF-8: clients with the code that
	// protobuf generates fail the whole answer.
	InvalidText int `json:"invalid_text"`
	// Left counts the ends of the stream by the watch itself, so that it holds up no runtime: what
	// happened then is not the runtime's fault.
	Left int `json:"left_by_watch"`
	// Dead is why the runtime does not answer any more at the end, empty if it does.
	Dead string `json:"dead"`
	// Lists counts successful lists of the whole runtime.
	Lists int `json:"lists"`
	// ListErrors counts failed ones.
	ListErrors int `json:"list_errors"`
	// ListsHung counts those without an answer for 3 s.
	ListsHung int `json:"lists_hung"`
	// Reads counts successful reads of a pod.
	Reads int `json:"reads"`
	// ReadErrors counts failed ones.
	ReadErrors int `json:"read_errors"`
	// ReadsHung counts those without an answer for 3 s.
	ReadsHung int `json:"reads_hung"`
	// Malformed counts listed items without a usable ID.
	Malformed int `json:"malformed"`
	// ListedTwice counts items listed twice in a list.
	ListedTwice int `json:"listed_twice"`
	// Unattributed counts the containers of the last list without a pod.
	Unattributed int `json:"unattributed"`
	// UnknownPhase counts the items of all reads in the state UNKNOWN or in a state outside the
	// CRI.
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

// enough is the number of starts and exits for a stream without a gap to count as tested: fewer
// leave room for a loss of more than a tenth (rule of three).
const enough = 30

// kubeletMessage is the largest message accepted by a kubelet's client of the CRI, in bytes.
const kubeletMessage = 16 << 20

// Verdict is a conclusion in words.
type Verdict struct {
	// Worth is full, partial, none, untested or unknown.
	Worth Worth `json:"worth"`
	// Summary is the worth in words.
	Summary string `json:"summary"`
	// PeriodSeconds is the relist period earned by the stream, 0 if unknown.
	PeriodSeconds float64 `json:"relist_period_seconds"`
	// Period says why the period is so long.
	Period string `json:"relist_period"`
	// Maintainers is the advice to the runtime's maintainers, empty for none.
	Maintainers []string `json:"for_maintainers"`
}

// Conclude puts a stream's worth in words.
func (r Report) Conclude(f Facts) Verdict {
	v := r.worth(f)
	v.Maintainers = r.complaints(f)
	if f.Left > 0 {
		v.Summary += fmt.Sprintf("; this watch itself left the stream %s, to hold up no runtime, and what happened then (%s) says nothing of the stream",
			bench.Count(f.Left, "time"), lives(f.Unheard))
	}
	if f.Contested {
		v.Summary += "; this runtime gives each event to one of its clients only: with another one beside, nothing follows from what is missing, and that one has missed what came here"
	}
	return v
}

// base is the relist period without trust, in seconds.
const base = 1.

func (r Report) worth(f Facts) Verdict {
	theirs := len(r.Endings) > 0 || f.Left == 0
	away := theirs && (f.Unheard > 0 || len(r.Endings) > 0 && f.ConnectedSeconds < (f.Seconds-1)*9/10)
	unread := r.Received == 0 && f.Reads <= f.ReadsHung && f.ReadErrors+f.ReadsHung > 0
	lossy := r.lossy()
	mute := r.ToldSomething == 0 && (len(lossy) > 0 || f.Missed > 0)
	// Lists can be wrong as well: what they alone have found is no loss of a stream of which much is
	// proven.
	missed := f.MissedUnknowns > 0 || f.Missed > 0 && f.Malformed+f.TakenBack == 0 && r.proven("STARTED", "STOPPED").Of < enough
	switch {
	case f.Lists == 0:
		return Verdict{Worth: WorthUnknown, Summary: "no list of the runtime succeeded: nothing can be said of its events"}
	case f.Dead != "":
		return r.dead(f)
	case f.Unsupported:
		return r.unsupported()
	case unread:
		return Verdict{
			Worth: WorthUnknown,
			Summary: fmt.Sprintf("not one pod could be read (%d reads failed, %d hung): nothing can be said of the runtime's events",
				f.ReadErrors, f.ReadsHung),
		}
	case mute:
		return Verdict{
			Worth:         WorthNone,
			Summary:       "the stream told nothing of " + bench.Count(max(r.proven().Hits, f.Missed), "change") + " that happened while it was open",
			PeriodSeconds: base,
			Period:        "every second: each change that events do not tell takes the period back",
		}
	case len(lossy) > 0 || missed:
		return r.loses(f, lossy)
	case away:
		return Verdict{
			Worth: WorthPartial,
			Summary: fmt.Sprintf("the stream was connected for %s of %s: it told of every change that is proven to have happened then, and lists found %s meanwhile",
				bench.Seconds(f.ConnectedSeconds), bench.Seconds(f.Seconds), lives(f.Unheard)),
			PeriodSeconds: base,
			Period:        "every second while it is away, and after each return it earns longer ones anew",
		}
	case f.UnreadPods+f.UnreadItems > 0:
		return Verdict{
			Worth: WorthPartial,
			Summary: fmt.Sprintf("the stream told of every change that is proven, but %s: nobody can say what happens there",
				f.unread()),
		}
	}
	return r.faultless(f)
}

// dead is the verdict on a runtime that is gone in the end.
func (r Report) dead(f Facts) Verdict {
	found := "what happened meanwhile is unknown"
	if lossy := r.lossy(); len(lossy) > 0 {
		found += "; before, the stream lost " + strings.Join(lossy, "; ")
	}
	return Verdict{
		Worth:         WorthUnknown,
		Summary:       fmt.Sprintf("the runtime does not answer any more (%s): %s", f.Dead, found),
		PeriodSeconds: base,
		Period:        "every second, until the runtime is back",
	}
}

// unsupported is the verdict on a runtime that offers no events in the end.
func (r Report) unsupported() Verdict {
	v := Verdict{
		Worth: WorthNone, Summary: "this runtime offers no events",
		PeriodSeconds: base, Period: "every second, as a polling PLEG: there is nothing to trust",
	}
	if r.Received > 0 {
		v.Summary = fmt.Sprintf("this runtime sent %s and has refused the stream since (%s): it offers no events now",
			bench.Count(r.Received, "event"), r.Ends())
	}
	return v
}

// loses is the verdict on a stream that loses events.
func (r Report) loses(f Facts, lossy []string) Verdict {
	const most = 3
	n := max(r.proven().Hits, f.Missed+f.MissedUnknowns)
	between := time.Duration(f.Seconds / float64(n) * float64(time.Second))
	earned := min(max(between.Seconds()/2, base), f.Longest.Seconds())
	what := strings.Join(lossy[:min(len(lossy), most)], "; ")
	if r.MuteSeconds > 0 {
		what = fmt.Sprintf("all of %s in which it carried nothing; besides, ", bench.Seconds(r.MuteSeconds)) + what
	}
	if more := len(lossy) - most; more > 0 {
		what += fmt.Sprintf("; and of %s more", bench.Count(more, "kind"))
	}
	if f.Missed > 0 && len(lossy) == 0 {
		what = lives(f.Missed) + " that lists have found"
	}
	if f.MissedUnknowns > 0 {
		what = strings.TrimPrefix(what+"; "+bench.Count(f.MissedUnknowns, "change")+" to or from the state UNKNOWN", "; ")
	}
	how := "lost events"
	if f.Contested {
		how = "lost events, or another client took them"
	}
	return Verdict{
		Worth: WorthPartial,
		Summary: fmt.Sprintf("the stream %s: %s%s. A PLEG that believes it alone would be wrong, this one finds them with its lists",
			how, what, f.also()),
		PeriodSeconds: earned,
		Period: fmt.Sprintf("up to about %s: an event is lost every %s on average, each takes the period back to a second, and clean lists double it again",
			bench.Short(time.Duration(earned*float64(time.Second)).Round(time.Second)), bench.Short(between.Round(100*time.Millisecond))),
	}
}

// faultless is the verdict on a stream of which no loss is known.
func (r Report) faultless(f Facts) Verdict {
	ends := r.proven("STARTED", "STOPPED")
	all := r.proven()
	if all.Of == 0 {
		v := Verdict{Worth: WorthUntested, Summary: "nothing happened: watch for longer, or while pods come and go"}
		if r.Received > r.Replayed {
			v.Summary = "what happened proves nothing yet: an event counts once it is 2 s old, and something else has shown its change; watch for longer"
		}
		if r.Replayed > 0 {
			v.Summary += fmt.Sprintf(" (%s from before the stream was opened, which the runtime had kept, prove nothing)", bench.Count(r.Replayed, "event"))
		}
		return v
	}
	if ends.Of < enough {
		return Verdict{
			Worth: WorthUntested,
			Summary: fmt.Sprintf("the stream told of every change that is proven, but %s are too few to judge by: watch for longer",
				lives(ends.Of)),
		}
	}
	wrong := "and nothing is wrong with it"
	if len(r.complaints(f)) > 0 {
		wrong = "and other things are to be said of the runtime (see below)"
	}
	if len(r.Never) > 0 {
		never := "it sends no event of: "
		if f.Contested {
			never = "no event came of: "
		}
		wrong += "; " + never + strings.Join(r.Never, ", ")
	}
	return Verdict{
		Worth: WorthFull,
		Summary: fmt.Sprintf("the stream told of all of %s that something else proves, %s: it loses fewer than %.2g %% of them (at 95 %%)",
			lives(ends.Of), wrong, 300/float64(ends.Of)),
		PeriodSeconds: f.Longest.Seconds(),
		Period:        fmt.Sprintf("the longest, %s, after about %s without a loss", bench.Short(f.Longest), bench.Short(2*f.Longest)),
	}
}

// unread names what cannot be read.
func (f Facts) unread() string {
	pods := bench.Count(f.UnreadPods, "pod")
	items := bench.Count(f.UnreadItems, "item")
	switch {
	case f.UnreadItems == 0:
		return pods + " cannot be read"
	case f.UnreadPods == 0:
		return items + " cannot be read"
	}
	return pods + " and " + items + " of others cannot be read"
}

// lives counts starts and exits.
func lives(n int) string { return bench.Count(n, "start or exit", "starts and exits") }

// also names the changes of the times without a stream, for the end of a clause.
func (f Facts) also() string {
	if f.Unheard == 0 || f.Left > 0 {
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
	lossy := r.lossy()
	all := r.Delays[AllKinds]
	lost := "events are lost"
	if f.Contested {
		lost = "events are lost, unless another client took them"
	}
	about(len(lossy), lost+": %s; later events, stamps in their statuses, or lists prove what happened", strings.Join(lossy, "; "))
	about(f.Missed, "lists found %s without an event", lives(f.Missed))
	about(f.MissedUnknowns, "%s to or from the state UNKNOWN came without an event", bench.Count(f.MissedUnknowns, "change"))
	about(f.UnreadPods+f.UnreadItems, "%s in the end", f.unread())
	about(f.InvalidText, "%s not valid UTF-8: a client with generated code fails the whole answer, or loses the stream", bench.Count(f.InvalidText, "text is", "texts are"))
	about(r.FullBacklogs, "the events kept from before the stream was opened were exactly %d, as many as the runtime's channel holds: older ones may be lost", backlogRoom)
	r.clockComplaint(add)
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
	if len(r.Endings) > 0 || f.Left == 0 {
		about(f.Unheard, "%s happened while the stream was away, and no event told of them afterwards", lives(f.Unheard))
	}
	about(r.LargestBytes-kubeletMessage, "the largest event has %s: a kubelet takes %s, and loses the stream with what is larger",
		bench.Bytes(uint64(r.LargestBytes)), bench.Bytes(kubeletMessage))
	about(f.Malformed, "%s of answers and events had to be left out: incomplete, or without an ID that can be used", bench.Count(f.Malformed, "item"))
	about(f.ListedTwice, "%s came twice in one list", bench.Count(f.ListedTwice, "item"))
	about(f.UnknownPhase, "%s in the state UNKNOWN, or in a state that the CRI does not have", bench.Count(f.UnknownPhase, "item"))
	about(f.Unattributed, "%s of the last list without a pod: no pod UID, and no sandbox in the list", bench.Count(f.Unattributed, "container"))
	about(f.TakenBack, "%s refuted by a later read", bench.Count(f.TakenBack, "finding of a read was", "findings of reads were"))
	about(len(r.Endings), "the stream ended: %s; what happens before a client is back is lost", r.Ends())
	return list
}

// clockComplaint adds what is to be said of the runtime's clock.
func (r Report) clockComplaint(add func(format string, args ...any)) {
	off := bench.Seconds(max(r.ClockSeconds, -r.ClockSeconds))
	switch {
	case r.ClockSeconds > 0:
		add("no event came less than %s after its stamp: the runtime's clock is behind the one here, or each of its events is late", off)
	case r.ClockSeconds < 0:
		add("events are stamped %s after they were received: the runtime's clock is ahead of the one here", off)
	}
}
