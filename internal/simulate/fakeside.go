// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"context"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// fakeSide is the runtime's side of the second tier: the fake runtime, served over a connection in
// memory, and the real client.
type fakeSide struct {
	w      *world
	rt     *fakeruntime.Runtime
	client *cri.Client
	agent  *fakeAgent
	cache  *cache.Cache[cri.PodStatus]
	quiet  fakeruntime.Faults // the faults of a healthy runtime: its calls take a little time
	stop   context.CancelFunc
	served sync.WaitGroup

	mu    sync.Mutex // owns the fields below
	names map[string]string
	ids   map[string]string
	next  uint64 // change of the runtime's history not yet taken over

	nextWriting uint64 // likewise, of the history of contents
	down        bool
	listed      map[cache.UID][]pleg.Item // by the last list of everything; owned by the only list under way
	unseen      map[string]int            // looks in a row without the living ID
	leftovers   map[string]bool           // removed IDs still in lists
	bad         map[string]bool           // unreadable IDs, as reported to the truth
	conn        *breakable                // the client's latest connection
	faultsSet   time.Time                 // when the faults have last changed
	slowSince   time.Time                 // when a read first gave up a container for being slow since
	cut         atomic.Pointer[time.Time] // when a connection last ended, which breaks with or without the mutex
	writes      time.Time                 // until when changes may be made late by the faults before: see writesUntil
}

func newFakeSide(w *world) (side, error) {
	s := &w.settings
	profile, err := fakeruntime.ProfileByName(s.profile)
	if err != nil {
		return nil, err
	}
	f := &fakeSide{
		w:      w,
		names:  make(map[string]string),
		ids:    make(map[string]string),
		listed: make(map[cache.UID][]pleg.Item),
		unseen: make(map[string]int),
		bad:    make(map[string]bool),

		leftovers: make(map[string]bool),
	}
	f.quiet = fakeruntime.Faults{SlowList: s.latency, SlowStatus: s.latency / 4}
	f.rt, err = fakeruntime.New(fakeruntime.Config{
		Profile:      profile,
		Seed:         s.seed,
		Faults:       f.quiet,
		HistoryLimit: -1,

		ConnectionAge:   s.age,
		ConnectionGrace: s.ageGrace,
	})
	if err != nil {
		return nil, err
	}
	lis := bufconn.Listen(1 << 16)
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.served.Go(func() { _ = f.rt.Serve(ctx, lis) })
	dial := func(ctx context.Context) (net.Conn, error) { return lis.DialContext(ctx) }
	f.client, err = cri.New(cri.Config{Dialer: func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.conn = &breakable{Conn: conn, broken: func() {
			now := time.Now()
			f.cut.Store(&now)
			w.upset(now)
		}}
		f.conn.left.Store(unbroken)
		return f.conn, nil
	}})
	if err != nil {
		stop()
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		stop()
		return nil, err
	}
	f.agent = newFakeAgent(conn)
	f.cache = cache.New(cri.EmptyStatus)
	w.store = view[cri.PodStatus]{
		Cache:  f.cache,
		items:  itemsOfStatus,
		fields: fieldsOfStatus,
		unread: (*cri.PodStatus).Unread,
	}
	w.oracle = newOracle(w.truth, w.store, s)
	w.oracle.named = false // a sandbox without metadata is a pod without a name
	w.truth.pull = f.pull
	return f, nil
}

// itemsOfStatus returns the items in a status of the real client.
func itemsOfStatus(s *cri.PodStatus) []pleg.Item {
	var items []pleg.Item
	for _, x := range s.Sandboxes() {
		items = append(items, pleg.Item{ID: x.ID, Kind: pleg.Sandbox, Phase: x.Phase})
	}
	for _, x := range s.Containers() {
		items = append(items, pleg.Item{ID: x.ID, Kind: pleg.Container, Phase: x.Phase})
	}
	return items
}

// pull takes the runtime's history over into the truth. The contents are fetched first: an ID made
// between the two calls then has a change and no content yet, never a content without a history.
func (f *fakeSide) pull() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var writings []fakeruntime.Writing
	if f.w.settings.content {
		writings, f.nextWriting = f.rt.Contents(f.nextWriting)
	}
	var changes []fakeruntime.Change
	changes, f.next = f.rt.History(f.next)
	for _, c := range changes {
		id := c.SandboxID
		kind := pleg.Sandbox
		if c.ContainerID != "" {
			id = c.ContainerID
			kind = pleg.Container
		}
		f.w.truth.Record(c.Time, cache.UID(c.PodUID), id, kind, phaseOf(c.New))
	}
	for _, w := range writings {
		f.w.truth.Rewrite(w.Time, w.ID, w.Text)
	}
	if len(changes) > 0 {
		f.spoil()
	}
}

func phaseOf(s fakeruntime.State) pleg.Phase {
	switch s {
	case fakeruntime.StateCreated:
		return pleg.PhaseCreated
	case fakeruntime.StateRunning, fakeruntime.StateReady:
		return pleg.PhaseRunning
	case fakeruntime.StateExited, fakeruntime.StateNotReady:
		return pleg.PhaseExited
	case fakeruntime.StateRemoved:
		return pleg.PhaseRemoved
	}
	return pleg.PhaseUnknown
}

func (f *fakeSide) system(w *world) (System, *boundary, error) {
	l := newBoundary(w.truth, w.settings.workers, w.oracle.fail)
	l.doubt = w.oracle.doubtful
	l.mood = w.oracle.mood
	l.ofList = w.oracle.lists
	l.lying = w.oracle.liars
	b := &crossing[cri.PodStatus]{boundary: l, source: fakeLooks{f.client, f}, stream: f.client}
	cfg := configOf(&w.settings, f.cache, b, hook{w.oracle, &w.within}, time.Now)
	cfg.Same = cri.SameStatus
	cfg.Merge = cri.KeepIPs
	cfg.Without = cri.Without
	sys, err := pleg.New(cfg)
	return sys, l, err
}

func (f *fakeSide) restless() bool {
	now := f.rt.Faults()
	return f.failing() || now.SlowContainer > 0 || now.Throttle > 0
}

// failing reports whether calls fail for a reason outside of the items, or all of a kind are slow.
func (f *fakeSide) failing() bool {
	now := f.rt.Faults()
	well := f.quiet
	f.mu.Lock()
	down := f.down || len(f.leftovers) > 0 || f.conn.breaks()
	f.mu.Unlock()
	return down || now.SlowList != well.SlowList || now.SlowStatus != well.SlowStatus ||
		now.SlowSandboxList+now.SlowContainerList > 0 ||
		now.FailList+now.CutList+now.FailStatus+now.HangStatus+now.EmptyList+
			now.HangList+now.HangSandboxList+now.HangContainerList+
			now.NilFields+now.UnknownEnum+now.InvalidUTF8+now.DuplicateID+now.OrphanContainer > 0
}

// throttled is how long a read waits at the most for the runtime's share of the processors: its
// list, and its statuses, two periods each.
const throttled = 400 * time.Millisecond

// outlast notes until when the calls under way may go on when the faults change: what hangs, or is
// slow, is not asked for again before its end. That is true of the list of a pod's containers as
// well, of which a read of a pod with several sandboxes learns whose each container is: such a pod
// comes to rest later, as one with an item that hangs does, and no other.
func (f *fakeSide) outlast(w *world) {
	w.upset(time.Now().Add(f.unanswered(w)))
	now := f.rt.Faults()
	listHangs := now.HangList + now.HangSandboxList + now.HangContainerList
	slowLists := min(now.SlowList+now.SlowSandboxList+now.SlowContainerList, w.settings.inspectTimeout)
	for _, uid := range w.truth.UIDs() {
		several := w.truth.severalSandboxes(uid)
		switch {
		case now.HangItem > 0 && w.truth.spoilt(uid), listHangs > 0 && several:
			w.truth.Hangs(uid, time.Now().Add(w.settings.inspectTimeout))
		case slowLists > 0 && several:
			w.truth.Hangs(uid, time.Now().Add(slowLists))
		}
	}
}

// unanswered returns how long calls about any pod may go on when the faults change.
func (f *fakeSide) unanswered(w *world) time.Duration {
	now := f.rt.Faults()
	if now.HangStatus > 0 {
		return w.settings.inspectTimeout
	}
	slow := now.SlowStatus + now.SlowContainer
	if now.Throttle > 0 {
		slow += throttled
	}
	return min(slow, w.settings.inspectTimeout)
}

func (f *fakeSide) calm(w *world) {
	defer w.oracle.lieEnds()
	f.outlast(w)
	_ = f.setFaults(f.quiet)
	f.rt.Up(0)
	f.mu.Lock()
	f.down = false
	if f.conn.breaks() {
		f.conn.left.Store(unbroken)
	}
	f.mu.Unlock()
}

func (f *fakeSide) name(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, ok := f.names[id]; ok {
		return name
	}
	return id
}

func (f *fakeSide) id(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ids[name]
}

func (f *fakeSide) called(name, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[id] = name
	f.ids[name] = id
}

func (f *fakeSide) offersEvents() bool {
	now := f.rt.Faults()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rt.Profile().Events == fakeruntime.EventsOn && !f.down &&
		now.Cut+now.EOF+now.EOFAtOnce+now.Unimplemented+now.Oversize+now.InvalidEvent == 0
}

func (f *fakeSide) finishCalls() { f.agent.line.finish() }

// writesUntil returns the end of the time for changes by unanswered calls: by the faults in force,
// or by earlier faults. The caller holds the mutex.
func (f *fakeSide) writesUntil() time.Time {
	now := f.rt.Faults()
	if now.LateWrite == 0 {
		return f.writes
	}
	by := cmp.Or(now.LateWriteBy, 5*time.Minute)
	return latest(f.writes, time.Now().Add(by))
}

func (f *fakeSide) empty(w *world) {
	f.mu.Lock()
	writes := f.writesUntil()
	f.mu.Unlock()
	if wait := time.Until(writes); wait >= 0 { // late creations are removed, too, the last after its instant
		w.sleep(wait + time.Millisecond)
	}
	for _, p := range f.rt.Truth().Pods {
		for _, s := range p.Sandboxes {
			_ = f.rt.RemoveSandbox(s.ID)
		}
	}
	f.w.upset(time.Now().Add(f.rt.Profile().DeleteLag))
}

func (f *fakeSide) close() {
	_ = f.agent.conn.Close()
	_ = f.client.Close()
	f.stop()
	f.served.Wait()
	f.rt.Close()
}

// command runs the same commands as the first tier as far as the fake runtime has them, and
//
//	fault drop=0.3 stale=0.5 …     all faults in force, as in fakeruntime.FaultList
//	agent sandbox p1 s1 …          a call of the agent's own, over gRPC: see fakeagent.go
//	runtime restart 400ms 100ms    down for that long, and not ready for that long after
//	runtime disconnect [700]       the client's connection breaks, when it has read so many bytes
//	                               more; the next dial works at once
func (f *fakeSide) command(w *world, verb string, args []string) error {
	if verb != "fault" && len(args) == 0 {
		return errUsage
	}
	defer func() { w.upset(time.Now()) }()
	switch verb {
	case "agent":
		return f.agent.call(w, f, args[0], args[1:])
	case "runtime":
		return f.runtime(w, args[0], args[1:])
	case "stream":
		switch args[0] {
		case "cut":
			f.rt.CutStreams(fakeruntime.Code(codes.Unavailable))
		case "eof":
			f.rt.CutStreams(0)
		case "stall":
			f.rt.StallStreams()
		default:
			return errNotHere
		}
		return nil
	case "fault":
		return f.fault(w, args)
	}
	return errNotHere
}

// lies are the faults with false reads.
var lies = []string{"nil-fields", "unknown-enum", "duplicate-id", "orphan-container"}

func (f *fakeSide) fault(w *world, args []string) error {
	faults, err := fakeruntime.ParseFaults(args...)
	if err != nil {
		return err
	}
	faults.SlowList = max(faults.SlowList, f.quiet.SlowList)
	faults.SlowStatus = max(faults.SlowStatus, f.quiet.SlowStatus)
	lying := false
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		for _, l := range lies {
			lying = lying || name == l
		}
	}
	if lying {
		w.oracle.lie()
	}
	f.outlast(w)
	err = f.setFaults(faults)
	f.outlast(w) // a read under way goes on as long as one begun now
	if !lying {
		w.oracle.lieEnds()
	}
	return err
}

// setFaults sets the faults in force. A read hit by a fault is judged only after the truth knows
// the fault's targets.
func (f *fakeSide) setFaults(faults fakeruntime.Faults) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = f.writesUntil()
	err := f.rt.SetFaults(faults)
	f.faultsSet = time.Now()
	if slow := faults.SlowStatus + faults.SlowContainer; slow > f.quiet.SlowStatus {
		f.w.truth.slows(slow)
	}
	f.slowSince = time.Time{}
	f.spoil()
	return err
}

func (f *fakeSide) runtime(w *world, what string, args []string) error {
	id := ""
	if len(args) > 0 {
		id = f.id(args[len(args)-1])
	}
	switch what {
	case "sandbox":
		if len(args) != 2 || id != "" {
			return errUsage
		}
		w.truth.Mention(cache.UID(args[0]))
		id, err := f.rt.AddPod(fakeruntime.PodSpec{UID: args[0]})
		if err == nil {
			f.called(args[1], id)
		}
		return err
	case "container":
		if len(args) != 2 || id != "" {
			return errUsage
		}
		id, err := f.rt.AddContainer(f.id(args[0]), fakeruntime.ContainerSpec{})
		if err == nil {
			f.called(args[1], id)
		}
		return err
	case "start":
		return f.rt.Start(id)
	case "exit":
		return f.rt.Exit(id, 1)
	case "remove":
		if strings.HasPrefix(args[len(args)-1], "s") {
			w.upset(time.Now().Add(f.rt.Profile().DeleteLag))
			return f.rt.RemoveSandbox(id)
		}
		return f.rt.Remove(id)
	case "unready":
		return f.rt.StopSandbox(id)
	case "update":
		return f.resize(w.ctx, id)
	case "kill":
		return f.rt.KillShim(id)
	case "recover":
		w.takesBack(id)
		return f.rt.RecoverSandbox(id)
	case "lose":
		w.upset(time.Now())
		return f.rt.LoseTrack(id)
	}
	return f.process(w, what, args)
}

// resize changes the memory limit of a container, by a call of somebody else's.
func (f *fakeSide) resize(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := f.agent.cri.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: f.agent.limit.Add(1 << 20)},
	})
	return err
}

// takesBack notes the runtime's coming withdrawal of a recent event: a read overrules the claim
// after the grace.
func (w *world) takesBack(id string) {
	w.truth.refresh()
	w.recovers(id)
	w.upset(time.Now().Add(w.oracle.doubtful()))
}

// process stops and starts the runtime's process.
func (f *fakeSide) process(w *world, what string, args []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch what {
	case "down":
		f.down = true
		f.rt.Down()
	case "up":
		f.down = false
		f.rt.Up(0)
	case "disconnect":
		return f.disconnect(args)
	case "restart":
		if len(args) != 2 {
			return errUsage
		}
		down, err := one(args[:1])
		if err != nil {
			return err
		}
		starting, err := one(args[1:])
		if err != nil {
			return err
		}
		f.rt.Restart(down, starting)
		w.upset(time.Now().Add(down + starting))
	default:
		return errNotHere
	}
	return nil
}

// disconnect has the client's connection break. The caller holds the mutex.
func (f *fakeSide) disconnect(args []string) error {
	switch {
	case f.conn == nil: // nothing has been dialed yet
	case len(args) == 0:
		_ = f.conn.Close() // perhaps broken already
	default:
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return errUsage
		}
		f.conn.left.Store(int64(n))
	}
	return nil
}

// breakable is a connection that breaks after a number of bytes: between two answers, or in the
// middle of an answer.
type breakable struct {
	net.Conn
	left   atomic.Int64 // bytes; unbroken: the connection is not to break
	broken func()
}

// unbroken is more than any connection reads.
const unbroken = math.MaxInt64 / 2

// breaks reports whether the connection is going to break.
func (c *breakable) breaks() bool { return c != nil && c.left.Load() < unbroken/2 }

// Close implements net.Conn.
func (c *breakable) Close() error {
	c.broken()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *breakable) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	left := c.left.Add(-int64(n))
	if left >= 0 || err != nil {
		return n, err
	}
	_ = c.Close() // the reader sees the end next
	return max(0, n+int(left)), nil
}

// fieldsOfStatus returns the content of a status of the real client, in the fake runtime's words,
// without unreadable items.
func fieldsOfStatus(s *cri.PodStatus) (fields []field) {
	for _, x := range s.Sandboxes() {
		fields = append(fields, field{x.ID, cmp.Or(strings.Join(x.IPs, ","), "none")})
	}
	for _, x := range s.Containers() {
		var limit int64
		if x.Resources != nil {
			limit = x.Resources.MemoryLimit
		}
		fields = append(fields, field{x.ID, fakeruntime.ContainerText(x.ExitCode, x.Reason, limit)})
	}
	return slices.DeleteFunc(fields, func(f field) bool { return slices.Contains(s.Unread(), f.ID) })
}
