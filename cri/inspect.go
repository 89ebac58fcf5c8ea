// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// A read of the statuses of one pod: the IDs to read and the statuses to reuse, the calls, and the
// resulting status.

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Inspect implements [pleg.Source]. Inspect reads the status of every sandbox of the pod, and of
// every container missing from the PodSandboxStatus answers. A timestamp in such an answer proves
// nothing: containerd 2.0.0 to 2.0.2 sets the timestamp and leaves the statuses out. Only the
// presence of the very container counts. So CRI-O with events on needs one call a sandbox, others
// one a sandbox and one a container, four at once.
//
// IDs that the runtime no longer has are left out. A read yields what it can: an item whose status
// fails, makes no sense, or has not been answered long after the others of the pod, is in Unread,
// and the error names its call; the status is good for the others. Without the status of any item
// there is none, nor if the connection breaks during the read. An item that hangs has one call
// under way, until the runtime answers or the deadline of its read passes, and is not asked for
// again before; an item that is slow is waited for, once the client knows how slow.
func (c *Client) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[PodStatus], error) {
	return c.Update(ctx, pod, nil)
}

// Update implements [pleg.Updater]: statuses in prev are reused for the sandboxes and containers
// of pod with an unchanged phase, and the others are read: an exited container costs one call,
// however many run beside it. Where PodSandboxStatus answers include container statuses, several
// changed containers are read with one call a sandbox. Changes without a change of phase
// (resources, annotations) are read by Inspect only, the method behind a generator's
// RequestReinspect.
func (c *Client) Update(ctx context.Context, pod pleg.Pod, prev *PodStatus) (pleg.Inspection[PodStatus], error) {
	in := inspection{client: c, pod: pod, broken: c.broken.Load()}
	in.plan(prev)
	in.run(ctx)
	if in.nothing {
		return pleg.Inspection[PodStatus]{}, in.err()
	}
	return in.result(), in.err()
}

// inspection is a read of one pod's statuses.
type inspection struct {
	client *Client
	pod    pleg.Pod
	// sandboxes and containers are the IDs to read; reused holds the earlier statuses of the other
	// IDs.
	sandboxes, containers []string
	reused                statusMessages
	multipleSandboxes     bool
	// sandboxStatuses and containerStatuses hold the encoded statuses by the index of their ID,
	// nil if the runtime has none.
	sandboxStatuses, containerStatuses [][]byte
	// bundled holds the container statuses in each sandbox's answer.
	bundled [][][]byte
	// isSandbox holds the IDs of the pod's sandboxes, once an answer has brought containers.
	isSandbox map[string]bool
	sandboxOf map[string]string
	// failed holds the calls without an answer, in the order of the calls; nothing: no status at
	// all could be had.
	failed  []failure
	nothing bool
	// broken is the client's number of broken connections when the read began.
	broken uint64
}

// failure is a call about an item that was not answered. ID is empty for the call about the
// membership of containers.
type failure struct {
	id  string
	err error
}

// err returns the error of an inspection, nil if all was read. It names the first item, and how
// many others could not be read.
func (in *inspection) err() error {
	switch n := len(in.failed); n {
	case 0:
		return nil
	case 1:
		return in.failed[0].err
	case 2:
		return fmt.Errorf("%w; and 1 more call of the pod has failed", in.failed[0].err)
	default:
		return fmt.Errorf("%w; and %d more calls of the pod have failed", in.failed[0].err, n-1)
	}
}

// unread returns the IDs without a status.
func (in *inspection) unread() (ids []string) {
	for _, f := range in.failed {
		if f.id != "" {
			ids = append(ids, f.id)
		}
	}
	return ids
}

// plan divides the pod's IDs into those to read and those to take over from prev, which may be
// nil.
func (in *inspection) plan(prev *PodStatus) {
	old := prev.parts()
	var sandboxes []string // all
	for _, item := range in.pod.Items {
		raw, ok := old[pleg.Item{ID: item.ID, Kind: item.Kind, Phase: item.Phase}]
		if item.Kind == pleg.Sandbox {
			sandboxes = append(sandboxes, item.ID)
			if ok {
				in.reused.sandboxes = append(in.reused.sandboxes, raw)
			} else {
				in.sandboxes = append(in.sandboxes, item.ID)
			}
			continue
		}
		if ok {
			in.reused.containers = append(in.reused.containers, raw)
		} else {
			in.containers = append(in.containers, item.ID)
		}
	}
	in.multipleSandboxes = len(sandboxes) > 1
	if len(in.containers) > len(sandboxes) && !in.client.capabilities.Load().fillsStatuses.no() {
		in.sandboxes = sandboxes
		in.reused.sandboxes = nil // they may bring them all along
	}
	if len(in.sandboxes)+len(in.containers) < len(in.pod.Items) {
		in.reused.sandboxOf = prev.encoded.sandboxOf
	}
}

// unattributed reports whether the sandbox of any container of the pod is missing from the earlier
// status.
func (in *inspection) unattributed() bool {
	return slices.ContainsFunc(in.pod.Items, func(item pleg.Item) bool {
		return item.Kind == pleg.Container && in.reused.sandboxOf[item.ID] == ""
	})
}

// parts returns the reusable statuses.
func (s *PodStatus) parts() map[pleg.Item][]byte {
	var found map[pleg.Item][]byte
	for part := range s.encodedParts {
		if part.phase == pleg.PhaseUnknown {
			continue
		}
		if found == nil {
			found = make(map[pleg.Item][]byte)
		}
		found[pleg.Item{ID: string(part.id), Kind: part.kind, Phase: part.phase}] = s.encoded.own(part.raw)
	}
	return found
}

// run makes the calls. What could not be read is in failed afterwards.
func (in *inspection) run(ctx context.Context) {
	known := in.client.capabilities.Load()
	in.sandboxStatuses = make([][]byte, len(in.sandboxes))
	in.bundled = make([][][]byte, len(in.sandboxes))
	in.containerStatuses = make([][]byte, len(in.containers))
	calls := in.client.newGathering(ctx, len(in.pod.Items)+1)
	for _, i := range in.client.late.order(in.sandboxes) {
		calls.add(in.sandboxCall(i))
	}
	atOnce := known.fillsStatuses.no() || len(in.sandboxes) == 0 // nothing to wait for
	containers := in.client.late.order(in.containers)
	if atOnce {
		for _, i := range containers {
			calls.add(in.containerCall(i))
		}
	}
	if in.multipleSandboxes && in.unattributed() {
		calls.add(in.membershipCall()) // a ContainerStatus does not name its sandbox
	}
	if atOnce {
		in.waitBesides(calls, true)
		in.finish(calls)
		return
	}
	answered := calls.wait(stuckAfter)
	covered := in.bundledIDs()
	for _, i := range containers {
		if _, ok := covered[in.containers[i]]; !ok {
			calls.add(in.containerCall(i))
		}
	}
	in.waitBesides(calls, answered)
	in.finish(calls)
}

// callsPerWitness is how many more of a read's calls may be under way for each witness, witness
// included. The others cost the runtime nothing more: their turn comes in any case.
const callsPerWitness = 4

// waitBesides waits for the calls of a read. While none is answered, more is asked for beside them,
// twice as much each time, and each time after a wait four times as long: an answer tells that the
// runtime is not slow with everything, and that what does not answer hangs. A runtime that is slow
// with everything is asked for a few items more, and no herd of calls makes it slower. Answered
// reports whether calls made before were.
func (in *inspection) waitBesides(calls *gathering, answered bool) {
	if answered {
		answered = calls.wait(stuckAfter)
	}
	wait := 4 * stuckAfter
	for n := 2; !answered; n *= 2 {
		in.addWitnesses(calls, n)
		if calls.begunAll() {
			calls.wait(0)
			return
		}
		calls.beside += callsPerWitness * n
		answered = calls.wait(wait)
		wait *= 4
	}
}

// addWitnesses has items that have not changed asked for beside the calls of an update, n at most:
// their answers tell whether the runtime is slow, or hangs with what is new alone, which must not
// keep the ends of the others from the reader. Each may hang as well, and is asked for once.
func (in *inspection) addWitnesses(calls *gathering, n int) {
	for _, same := range in.unchanged(calls) {
		if n == 0 {
			return
		}
		n--
		ask := containerStatus
		if same.Kind == pleg.Sandbox {
			ask = podSandboxStatus
		}
		calls.addWitness(itemCall{id: same.ID, kind: same.Kind, do: func(ctx context.Context) (func(), error) {
			_, _, err := in.status(ctx, ask, same.ID)
			return func() {}, err
		}})
	}
}

// unchanged returns the items whose status is taken over, and that may answer: none that was asked
// for in vain. The first two are of either kind, if there are both: a sandbox answers where all
// containers hang, and some runtimes lock each container for the answer about a sandbox.
func (in *inspection) unchanged(calls *gathering) (found []pleg.Item) {
	asked := make(map[string]bool, len(calls.calls))
	for _, call := range calls.calls {
		asked[call.id] = true
	}
	for _, item := range in.pod.Items {
		_, isLate := in.client.late.waitingSince(item.ID)
		if !asked[item.ID] && !isLate {
			found = append(found, item)
		}
	}
	other := slices.IndexFunc(found, func(item pleg.Item) bool { return item.Kind != found[0].Kind })
	if other > 1 {
		found[1], found[other] = found[other], found[1]
	}
	return found
}

// finish notes what could not be read: an item whose call has no answer, unless the answer of
// another call has shown the item.
func (in *inspection) finish(calls *gathering) {
	covered := in.bundledIDs()
	in.learnFills(len(covered) > 0)
	read := len(in.reused.sandboxes) + len(in.reused.containers)
	for i, call := range calls.calls {
		err := calls.state[i].err
		if call.witness {
			continue
		}
		if err == nil {
			if call.list == "" {
				read++
			}
			continue
		}
		if _, ok := covered[call.id]; ok {
			continue
		}
		f := failure{err: err}
		if call.list == "" {
			f.id = call.id
		}
		in.failed = append(in.failed, f)
	}
	in.nothing = read == 0 && len(in.failed) > 0 || in.disconnected()
}

// learnFills notes whether the runtime's answers about sandboxes bring the statuses of their
// containers along. That there was none is no lesson unless a container has a status of its own: a
// container may be removed between the list and the read.
func (in *inspection) learnFills(bundled bool) {
	has := func(raw []byte) bool { return raw != nil }
	switch {
	case bundled:
		in.client.capabilities.Load().fillsStatuses.learn(true)
	case slices.ContainsFunc(in.sandboxStatuses, has) && slices.ContainsFunc(in.containerStatuses, has):
		in.client.capabilities.Load().fillsStatuses.learn(false)
	}
}

// disconnected reports whether a connection has broken during the read, or could not be made: what
// has no answer is no fault of its item.
func (in *inspection) disconnected() bool {
	broken := func(f failure) bool { return status.Code(f.err) == codes.Unavailable }
	return slices.ContainsFunc(in.failed, broken) && in.client.broken.Load() != in.broken
}

// bundledIDs returns the IDs of the containers with a status in a sandbox's answer.
func (in *inspection) bundledIDs() map[string]struct{} {
	var ids map[string]struct{}
	for _, statuses := range in.bundled {
		for _, raw := range statuses {
			var item containerItem
			if item.readStatus(raw) {
				if ids == nil {
					ids = make(map[string]struct{})
				}
				ids[string(item.id)] = struct{}{}
			}
		}
	}
	return ids
}

// status makes a status call and returns the encoded status, nil if the runtime does not have the
// ID, and the whole container statuses in the same answer.
func (in *inspection) status(ctx context.Context, m method, id string) (raw []byte, containers [][]byte, err error) {
	c := in.client
	var reply owned
	req := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	if err := c.invoke(ctx, m, req, &reply); err != nil {
		if status.Code(err) == codes.NotFound {
			return nil, nil, nil
		}
		return nil, nil, c.explain(ctx, m, id, err)
	}
	return c.readStatus(m, id, reply.data)
}

// readStatus takes the answer to a status call: see [inspection.status].
func (c *Client) readStatus(m method, id string, reply []byte) (raw []byte, containers [][]byte, err error) {
	fail := func(format string, args ...any) ([]byte, [][]byte, error) {
		return nil, nil, fmt.Errorf("cri: %s of %s on %s: "+format, append([]any{m, printable(id), c.endpoint}, args...)...)
	}
	ofSandbox, ofContainer := c.statusShapes()
	parts := []checkedStatus{{}} // first the status asked for
	merged := false
	bad := false
	f := fields{rest: reply}
	for f.next() {
		switch {
		case f.isBytes(1):
			raw = mergeOccurrence(raw, f.data, &merged)
		case f.isBytes(3) && m == podSandboxStatus:
			p, ok := c.bundledStatus(f.data, ofContainer)
			if ok && len(parts) <= maxStatuses+1 {
				parts = append(parts, p)
			}
		case f.isBytes(2): // info
			_, _, ok := mapEntry(f.data)
			bad = bad || !ok
		}
	}
	if f.malformed || bad {
		return fail("%w of %d bytes", ErrMalformed, len(reply))
	}
	if raw == nil {
		return fail("the answer holds no status")
	}
	if len(parts) > maxStatuses+1 {
		c.counter.malformed.Add(1)
		parts = parts[:1] // each is read by its own ID if needed
	}
	var (
		shape                *shape
		subject              []byte // the ID in the status
		readable, knownState bool
	)
	if m == podSandboxStatus {
		var item sandboxItem
		shape = ofSandbox
		readable = item.read(raw, labelsOfPodSandboxStatus)
		subject = item.id
		knownState = knownSandboxState(item.state)
	} else {
		var item containerItem
		shape = ofContainer
		readable = item.readStatus(raw)
		subject = item.id
		knownState = knownContainerState(item.state)
	}
	if readable && string(subject) != id {
		return fail("the answer is about %q", truncate(string(subject)))
	}
	if !knownState {
		c.counter.unknownStates.Add(1)
	}
	var ok bool
	parts[0], ok = checkStatus(raw, shape)
	if !ok && parts[0].whole {
		return fail("%w: no metadata or no creation time", ErrMalformed)
	} else if !ok {
		return fail("%w of %d bytes: a part of the status cannot be read", ErrMalformed, len(reply))
	}
	kept := retain(parts, len(reply))
	return kept[0], kept[1:], nil
}

// bundledStatus takes the status of a container in the answer about its sandbox, and reports false
// if it cannot be used: the container is read by its own ID if needed.
func (c *Client) bundledStatus(raw []byte, ofContainer *shape) (p checkedStatus, ok bool) {
	var item containerItem
	p, ok = checkStatus(raw, ofContainer)
	if !ok || !item.readStatus(raw) || !item.usable() {
		c.counter.malformed.Add(1)
		return p, false
	}
	if !knownContainerState(item.state) {
		c.counter.unknownStates.Add(1)
	}
	return p, true
}

func (in *inspection) sandboxCall(i int) itemCall {
	id := in.sandboxes[i]
	return itemCall{id: id, kind: pleg.Sandbox, do: func(ctx context.Context) (func(), error) {
		raw, bundled, err := in.status(ctx, podSandboxStatus, id)
		return func() {
			in.sandboxStatuses[i] = raw
			in.bundled[i] = in.ofContainers(bundled)
		}, err
	}}
}

// ofContainers returns the statuses in a sandbox's answer without those that have the ID of a
// sandbox of the pod: an ID is a sandbox's or a container's, and the sandbox stands.
func (in *inspection) ofContainers(bundled [][]byte) [][]byte {
	if len(bundled) == 0 {
		return nil
	}
	if in.isSandbox == nil {
		in.isSandbox = make(map[string]bool)
		for _, item := range in.pod.Items {
			if item.Kind == pleg.Sandbox {
				in.isSandbox[item.ID] = true
			}
		}
	}
	return slices.DeleteFunc(bundled, func(raw []byte) bool {
		id, _ := identity(raw)
		taken := in.isSandbox[string(id)]
		if taken {
			in.client.counter.malformed.Add(1)
		}
		return taken
	})
}

func (in *inspection) containerCall(i int) itemCall {
	id := in.containers[i]
	return itemCall{id: id, kind: pleg.Container, do: func(ctx context.Context) (func(), error) {
		raw, _, err := in.status(ctx, containerStatus, id)
		return func() { in.containerStatuses[i] = raw }, err
	}}
}

// membershipCall finds out which container belongs to which of several sandboxes. Its ID is no
// item's: no item's is invalid UTF-8.
func (in *inspection) membershipCall() itemCall {
	call := itemCall{
		id:   "\xff" + string(in.pod.UID),
		kind: pleg.Container,
		list: "the list of the containers of pod " + printable(string(in.pod.UID)),
	}
	call.do = func(ctx context.Context) (func(), error) {
		c := in.client
		found := podBuilder{
			client:    c,
			uid:       in.pod.UID,
			at:        make(map[string]int),
			sandboxOf: make(map[string]string),
		}
		_, queries := c.podQueries(in.pod.UID)
		for _, read := range queries {
			if err := c.queryPod(ctx, read, &found); err != nil {
				return nil, err
			}
		}
		return func() { in.sandboxOf = found.sandboxOf }, nil
	}
	return call
}

// result builds the status from the read and the reused parts.
func (in *inspection) result() pleg.Inspection[PodStatus] {
	b := inspectionBuilder{in: in, at: make(map[string]int, len(in.containers))}
	b.body = &encodedStatus{statusMessages: statusMessages{sandboxOf: in.sandboxOf}}
	if b.body.sandboxOf == nil && in.multipleSandboxes {
		b.body.sandboxOf = in.reused.sandboxOf
		if b.body.sandboxOf == nil {
			b.body.sandboxOf = map[string]string{} // not known, which is more than nothing
		}
	}
	b.pod = pleg.Pod{
		UID:       in.pod.UID,
		Name:      in.pod.Name,
		Namespace: in.pod.Namespace,
		Items:     make([]pleg.Item, 0, len(in.pod.Items)),
	}
	for _, raw := range slices.Concat(in.reused.sandboxes, in.sandboxStatuses) {
		b.addSandbox(raw)
	}
	for _, raw := range in.reused.containers {
		b.addContainer(raw, "", origin{})
	}
	for i, raw := range in.containerStatuses {
		if raw != nil {
			b.addContainer(raw, in.containers[i], origin{read: true})
		}
	}
	for _, statuses := range in.bundled {
		b.body.shared = b.body.shared || len(statuses) > 0
		for _, raw := range statuses {
			b.addContainer(raw, "", origin{read: true})
		}
	}
	unread := in.unread()
	lacks := make(map[string]bool, len(unread))
	for _, id := range unread {
		lacks[id] = true
	}
	for _, item := range in.pod.Items {
		if lacks[item.ID] {
			b.pod.Items = append(b.pod.Items, item)
		}
	}
	status := &PodStatus{
		uid:       b.pod.UID,
		name:      b.pod.Name,
		namespace: b.pod.Namespace,
		encoded:   b.body,
		unread:    unread,
	}
	if b.pod.Name == "" { // asked for by IDs that events have named, and that no list has shown
		b.pod.Name, b.pod.Namespace = status.names()
	}
	return pleg.Inspection[PodStatus]{Status: status, Pod: b.pod, Unread: unread}
}

// inspectionBuilder puts the result of an inspection together: first the sandboxes, then the
// containers.
type inspectionBuilder struct {
	in   *inspection
	body *encodedStatus
	pod  pleg.Pod
	// at holds where in body.containers a container is, by ID.
	at map[string]int
}

// addSandbox adds the status of a sandbox; nil, or one that cannot be read, adds nothing.
func (b *inspectionBuilder) addSandbox(raw []byte) {
	var item sandboxItem
	if raw == nil || !item.read(raw, labelsOfPodSandboxStatus) {
		return
	}
	if uid := cmp.Or(string(item.meta.uid), string(item.labels.uid)); uid != "" && uid != string(b.pod.UID) {
		return // another pod's
	}
	b.body.sandboxes = append(b.body.sandboxes, raw)
	b.pod.Items = append(b.pod.Items, pleg.Item{
		ID:    string(item.id),
		Kind:  pleg.Sandbox,
		Phase: item.phase(),
	})
}

// addContainer adds the status of the container with the ID; the status names the ID if it is
// empty. Several answers may show the same container, none older than this inspection: the later
// phase holds.
func (b *inspectionBuilder) addContainer(raw []byte, id string, from origin) {
	var item containerItem
	if !item.readStatus(raw) {
		return // no stored status
	}
	if id == "" {
		id = string(item.id)
	}
	b.in.client.exits.note(id, &item, from)
	if len(item.labels.uid) > 0 && string(item.labels.uid) != string(b.pod.UID) {
		return // another pod's
	}
	if j, ok := b.at[id]; ok {
		k := len(b.pod.Items) - len(b.body.containers) + j
		if item.phase() >= b.pod.Items[k].Phase {
			b.pod.Items[k].Phase = item.phase()
			b.body.containers[j] = raw
		}
		return
	}
	b.at[id] = len(b.body.containers)
	b.body.containers = append(b.body.containers, raw)
	b.pod.Items = append(b.pod.Items, pleg.Item{
		ID:    id,
		Kind:  pleg.Container,
		Phase: item.phase(),
		Name:  nameOfStatus(raw),
	})
}
