// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import "slices"

// ID is the record of one container or sandbox: evidence, and what others were shown.
type ID struct {
	Name    string
	Sandbox bool
	Evidence
	// Stamp is the runtime's wall-clock time of the claim that first told of the belief, in Unix
	// nanoseconds; zero if a read or a call was first, [NoStamp] for a claim without a stamp.
	Stamp int64
	// Cached is what the pod's status in the cache shows; Gone once it has been shown no longer.
	Cached Phase
	// Told is the set of events that Watch was told of the ID.
	Told Events
}

// NoStamp is the stamp of a claim that carries none.
const NoStamp = int64(-1)

// Pod is all that is kept of what is known of one pod.
type Pod struct {
	IDs []ID
	// AsOf is the start of the read that the cache's entry stands for.
	AsOf Time
	// Moved is when something told that the cache may be wrong, evidence apart; zero if nothing did.
	Moved Time
	// Failed: the last inspection failed, and the cache has its error beside the last good status.
	Failed bool
	// Foreign: the cache's status was written before this generator started.
	Foreign bool
	// Listed is what the last list showed of the pod, nil if that is what the cached status shows. A
	// list that tells only differences tells the rest by its silence.
	Listed []Shown
}

// Shown is one ID in a report.
type Shown struct {
	Name    string
	Sandbox bool
	Phase   Phase
}

// Read is what a list or an inspection shows of one pod.
type Read struct {
	// From is when the read began, Cut the instant one grace before.
	From, Cut Time
	// Shows is every ID that the runtime has of the pod.
	Shows []Shown
}

// Reason is why a pod is in doubt.
type Reason uint8

// Reasons.
const (
	Settled     Reason = iota
	Foreign            // the cache's status is another generator's
	Failed             // the last inspection failed
	Moved              // a list, a refused read or a failed call told that something is different
	Unconfirmed        // a claim has been neither borne out nor overruled, and that is all
	Differs            // the cache shows other than is believed
	Blank              // the cached status does not know the state of an ID
)

// String returns the name that logs use.
func (r Reason) String() string {
	return [...]string{"settled", "foreign", "failed", "moved", "unconfirmed", "differs", "blank"}[r]
}

// Doubt says why the cache may be wrong about the pod. Doubt and waiters cause reads; nothing else
// does.
func (p *Pod) Doubt() Reason {
	switch {
	case p.Foreign:
		return Foreign
	case p.Failed:
		return Failed
	case p.Moved != 0:
		return Moved
	}
	worst := Settled
	for i := range p.IDs {
		worst = max(worst, p.IDs[i].doubt())
	}
	return worst
}

func (x *ID) doubt() Reason {
	switch {
	case x.Cached == Unknown:
		return Blank
	case x.Seen == None && x.Claim == Gone:
		return Settled // remembered for the reads under way, and needs none of its own
	case x.Claim != None:
		return Unconfirmed
	case shown(x.Cached) != shown(x.Belief()):
		return Differs
	}
	return Settled
}

// Served appends the pod as reads and acks bear it out, for a list that the agent is served from
// here instead of from the runtime. It reports false if the pod must be read first.
func (p *Pod) Served(to []Shown) ([]Shown, bool) {
	if p.Doubt() != Settled {
		return to, false
	}
	for i := range p.IDs {
		if x := &p.IDs[i]; x.Seen.Live() {
			to = append(to, Shown{x.Name, x.Sandbox, x.Seen})
		}
	}
	return to, true
}

// OnInspected applies a read that brought statuses, or found the pod exactly as its last good
// status shows it. With Stored, the caller puts the statuses into the cache as of r.From.
func (p *Pod) OnInspected(r Read, now Time) Effects {
	var buf [16]Phase
	shows := p.align(r.Shows, buf[:0])
	var e Effects
	defer p.prune()
	p.weigh(shows, &r, now, &e)
	if r.From < p.AsOf || p.takesBack(shows) {
		p.Moved, e.Refused = now, true
		return e
	}
	p.AsOf = r.From
	if r.From > p.Moved {
		p.Moved = 0
	}
	p.Failed, p.Foreign = false, false
	p.store(shows, &e)
	return e
}

// OnListed applies what a list, which brings no statuses, shows of the pod. Inspecting says that an
// inspection of the pod is under way, which may have looked before the list did. With Observed, the
// cached status is as of r.From, or later.
func (p *Pod) OnListed(r Read, inspecting bool, now Time) Effects {
	var buf [16]Phase
	shows := p.align(r.Shows, buf[:0])
	defer p.prune()
	p.Listed = nil
	if !p.showsCached(shows) {
		p.Listed = append(make([]Shown, 0, len(r.Shows)), r.Shows...)
	}
	return p.compare(shows, &r, inspecting, now)
}

// OnPodListed applies a list of this pod alone, after which no statuses were read. If it shows what
// the cached status does, or that there is nothing to read, it is an inspection.
func (p *Pod) OnPodListed(r Read, now Time) Effects {
	var buf [16]Phase
	shows := p.align(r.Shows, buf[:0])
	nothing := !slices.ContainsFunc(shows, Phase.Live)
	if nothing || p.refreshes(shows) {
		return p.OnInspected(r, now)
	}
	defer p.prune()
	return p.compare(shows, &r, false, now)
}

// compare weighs what a list shows, and compares it with what the cached status does.
func (p *Pod) compare(shows []Phase, r *Read, inspecting bool, now Time) Effects {
	var e Effects
	p.weigh(shows, r, now, &e)
	same := p.refreshes(shows)
	if inspecting || !same && !p.believes(shows) {
		p.Moved = now
	}
	if same && !inspecting && r.From > p.Moved {
		p.Moved = 0
	}
	if same {
		p.AsOf = max(p.AsOf, r.From)
		e.Observed = true // doubt is for an inspection to end
	}
	return e
}

// refreshes says that a report shows what the cached status does, and that this is worth something.
func (p *Pod) refreshes(shows []Phase) bool {
	return !p.Failed && !p.Foreign && p.showsCached(shows) && !slices.Contains(shows, Unknown)
}

// showsCached says that a report shows literally what the cached status shows.
func (p *Pod) showsCached(shows []Phase) bool {
	for i := range p.IDs {
		if shows[i] != shown(p.IDs[i].Cached) {
			return false
		}
	}
	return true
}

// believes says that the evidence has taken up what a report shows: every ID is shown as is
// believed, or short of a claim that is still to be borne out or overruled. If the cache shows
// otherwise, or has an error or a foreign status, that is doubt enough, and an inspection may begin
// with the report.
func (p *Pod) believes(shows []Phase) bool {
	for i := range p.IDs {
		x := &p.IDs[i]
		if shows[i] != shown(x.Belief()) && (x.Claim == None || shows[i] != shown(x.Seen)) {
			return false
		}
	}
	return true
}

// LastList appends what the last list showed of the pod, which is what a list shows by its silence
// if it tells only differences.
func (p *Pod) LastList(to []Shown) []Shown {
	if p.Listed != nil {
		return append(to, p.Listed...)
	}
	return p.CachedIDs(to)
}

// CachedIDs appends what the cached status shows.
func (p *Pod) CachedIDs(to []Shown) []Shown {
	for i := range p.IDs {
		if x := &p.IDs[i]; x.Cached.Live() {
			to = append(to, Shown{x.Name, x.Sandbox, x.Cached})
		}
	}
	return to
}

// OnFailed notes an inspection, begun at the given time, that failed. It reports whether the
// error is to be stored in the cache: not if something newer is there.
func (p *Pod) OnFailed(from, now Time) bool {
	if from < p.AsOf {
		p.Moved = now
		return false
	}
	p.Failed, p.AsOf = true, from
	return true
}

// OnClaim applies an event of the stream to its own ID, or to another ID that its payload shows. It
// reports whether the claim told anything new.
func (p *Pod) OnClaim(s Shown, stamp int64, now Time) bool {
	if s.Phase == None || s.Phase > Gone {
		return false
	}
	i := p.find(s.Name)
	if i < 0 {
		p.IDs = append(p.IDs, ID{Name: s.Name, Sandbox: s.Sandbox})
		i = len(p.IDs) - 1
	}
	x := &p.IDs[i]
	was := x.Evidence
	if x.Evidence = was.claimed(s.Phase, now); x.Evidence == was {
		return false
	}
	x.Stamp = stamp
	return true
}

// OnPayload takes a payload, every ID of which was given to OnClaim, as the pod's status if it
// dominates what is known. With Stored, the caller puts it into the cache as of p.AsOf.
func (p *Pod) OnPayload(payload []Shown) Effects {
	var e Effects
	var buf [16]Phase
	if shows, ok := p.dominating(payload, buf[:0]); ok {
		p.store(shows, &e)
	}
	return e
}

// Dominates says that OnPayload would store the payload.
func (p *Pod) Dominates(payload []Shown) bool {
	var buf [16]Phase
	_, ok := p.dominating(payload, buf[:0])
	return ok
}

// dominating returns what the payload shows of every ID, and whether it dominates what is known.
func (p *Pod) dominating(payload []Shown, buf []Phase) ([]Phase, bool) {
	if p.Failed || p.Foreign || p.Moved != 0 {
		return nil, false
	}
	known := len(p.IDs)
	shows := p.align(payload, buf)
	if len(p.IDs) > known { // it shows an ID in a phase that claims nothing
		p.IDs = p.IDs[:known]
		return nil, false
	}
	change, live := false, false
	for i := range p.IDs {
		x := &p.IDs[i]
		belief := shown(x.Belief())
		switch {
		case x.Cached == None && belief != Gone: // the cached status may be older than the ID
			return nil, false
		case shows[i] != belief, x.Cached == Unknown:
			return nil, false
		}
		live = live || belief != Gone
		change = change || belief != shown(x.Cached)
	}
	return shows, change && live
}

// OnCall applies the return of a call of the agent's own that makes, starts, stops or removes an
// ID. Of a call that failed nothing is known but that it may have worked.
func (p *Pod) OnCall(s Shown, ok bool, now Time) {
	if !ok {
		p.Moved = now
		return
	}
	i := p.find(s.Name)
	if i < 0 {
		p.IDs = append(p.IDs, ID{Name: s.Name, Sandbox: s.Sandbox})
		i = len(p.IDs) - 1
	}
	x := &p.IDs[i]
	if s.Phase > x.Belief() {
		x.Stamp = 0
	}
	x.Evidence = x.acked(s.Phase, now)
}

// OnRemembered answers who waits for the pod with what the cache shows, without a read, if the pod is
// in no doubt and is not being inspected: what an inspection under way shows would then be refused as
// too old. It reports whether it did. The cached status is as of now, but for what the stream has
// still to tell. No call of the agent's own about the pod may be under way.
func (p *Pod) OnRemembered(inspecting bool, now Time) bool {
	if inspecting || p.Doubt() != Settled {
		return false
	}
	p.AsOf = now
	return true
}

// Forget drops the IDs that no read under way, or to come, can contradict. Oldest is when the
// oldest of those began, and cut the instant one grace before: a removal may be told of before
// reads show it, even the removal of an ID that no read has shown yet.
func (p *Pod) Forget(oldest, cut Time) {
	p.IDs = slices.DeleteFunc(p.IDs, func(x ID) bool {
		switch {
		case x.Seen == Gone:
			return !x.Cached.Live() && oldest > x.To
		case x.Seen == None:
			return x.Claim == None || x.Claim == Gone && cut >= x.At
		}
		return false
	})
}

// prune drops the IDs of which a read has left no evidence: claims that it did not bear out.
func (p *Pod) prune() {
	none := func(x ID) bool { return x.Seen == None && x.Claim == None }
	if slices.ContainsFunc(p.IDs, none) {
		p.IDs = slices.DeleteFunc(p.IDs, none)
	}
}

// weigh adds what a read shows of every ID.
func (p *Pod) weigh(shows []Phase, r *Read, now Time, e *Effects) {
	for i := range p.IDs {
		x := &p.IDs[i]
		var v verdict
		x.Evidence, v = x.Evidence.weigh(shows[i], r.From, r.Cut, now)
		if v == 0 {
			continue
		}
		x.Stamp = 0
		if v&found != 0 {
			e.Found = append(e.Found, Shown{x.Name, x.Sandbox, x.Seen})
		}
		if v&overruled != 0 {
			e.Overruled = append(e.Overruled, Shown{x.Name, x.Sandbox, shows[i]})
		}
		if v&regressed != 0 {
			e.Regressed++
		}
	}
}

// takesBack says that a status would take back what the cache has shown, or what a call of the
// agent's own has ended, though no evidence overrules that.
func (p *Pod) takesBack(shows []Phase) bool {
	for i := range p.IDs {
		if p.IDs[i].takenBackBy(shows[i]) {
			return true
		}
	}
	return false
}

func (x *ID) takenBackBy(shows Phase) bool {
	belief := x.Belief()
	switch {
	case shows == Gone: // void, unless a read or an ack bore the absence out
		return x.Cached.Live() && x.Seen != Gone
	case x.Cached == Gone, x.Seen == Gone:
		return belief == Gone
	}
	return shows != Unknown && shows < x.Cached && shows < belief
}

// few is the number of IDs up to which they are looked through.
const few = 8

// Has says that there is a record of the ID.
func (p *Pod) Has(name string) bool { return p.find(name) >= 0 }

func (p *Pod) find(name string) int {
	return slices.IndexFunc(p.IDs, func(x ID) bool { return x.Name == name })
}

// align appends to phases what a report shows of every ID of the pod, Gone if it does not, and adds
// to the pod the IDs that it does not have. An ID shown twice is shown in the later phase. Reports
// mostly show IDs in the order in which they are known; in any other order, too, the cost is
// linear.
func (p *Pod) align(report []Shown, phases []Phase) []Phase {
	for range p.IDs {
		phases = append(phases, Gone)
	}
	var index map[string]int
	for at, s := range report {
		if s.Name == "" || !s.Phase.Live() {
			continue
		}
		i := at
		if at >= len(p.IDs) || p.IDs[at].Name != s.Name {
			i, index = p.locate(s.Name, index)
		}
		if i < 0 {
			i = len(p.IDs)
			p.IDs = append(p.IDs, ID{Name: s.Name, Sandbox: s.Sandbox})
			phases = append(phases, Gone)
			if index != nil {
				index[s.Name] = i
			}
		}
		if phases[i] == Gone || phases[i] < s.Phase {
			phases[i] = s.Phase
		}
	}
	return phases
}

// locate finds an ID that is not where the report has it, -1 if the pod does not have it. The index
// is made when it is first needed.
func (p *Pod) locate(name string, index map[string]int) (int, map[string]int) {
	if len(p.IDs) <= few {
		return p.find(name), index
	}
	if index == nil {
		index = make(map[string]int, len(p.IDs))
		for i := range p.IDs {
			index[p.IDs[i].Name] = i
		}
	}
	if i, ok := index[name]; ok {
		return i, index
	}
	return -1, index
}
