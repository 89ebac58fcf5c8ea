// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/rawgrpc"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Host looks at the machine. Begin begins a measurement of CPU, End returns the facts. Runs reports
// whether there is a process with a PID.
type Host interface {
	Begin(ctx context.Context)
	End(ctx context.Context, what Whereabouts) HostFacts
	Runs(pid int) bool
}

// Whereabouts tell a Host where to look.
type Whereabouts struct {
	// IDs are those of the listed sandboxes and containers, Paths the folders of the runtime.
	IDs, Paths []string
}

// UsualHealthz is where kubelets tell of their health, UsualMetrics where runtimes serve metrics.
const UsualHealthz = "http://127.0.0.1:10248/healthz"

var UsualMetrics = []string{"http://127.0.0.1:1338/v1/metrics", "http://127.0.0.1:9090/metrics"}

// Options are those of an examination.
type Options struct {
	Endpoint string
	// Dial connects to the runtime, for calls.
	Dial func(context.Context) (net.Conn, error)
	// DialStream connects to the runtime for the stream of events; nil is Dial. A child process reads
	// the stream, and ends if the child gets no CPU: no calls go through the child.
	DialStream func(context.Context) (net.Conn, error)
	// Own returns why this program ended a stream with the error, empty if the runtime ended the
	// stream; nil if this program never does.
	Own func(error) string
	// Within is how long the examination takes.
	Within time.Duration
	// NoEvents leaves the event stream alone. JudgedBy names the judge of the stream if someone else
	// judges it.
	NoEvents bool
	JudgedBy string
	// Gentle is for examinations without a waiting user: two reads at a time and fifty a second, in a
	// random order, none while the runtime is slow, and no more once five hang.
	Gentle bool
	// Listing waits until no other list of this process is under way, or ctx ends. The caller calls the
	// returned function after its own list. Nil for a process without other lists.
	Listing func(ctx context.Context) func()
	// Host looks at the machine; nil for none.
	Host Host
	// Meter beats while this process runs; nil to have the examination beat one.
	Meter *standstill.Meter
	// Adjust changes the facts before a conclusion is drawn, for tests on any machine; nil for none.
	Adjust func(*Facts)
	// Metrics returns the lists a minute by the runtime's metrics, and their address; nil for none.
	Metrics func(context.Context) (map[string]float64, string)
}

// itemCalls are the calls for each item.
var itemCalls = []string{"PodSandboxStatus", "ContainerStatus", "ContainerStats"}

// ended are the ends of a stream without a failure.
var ended = struct{ eof, none string }{"EOF", "Unimplemented"}

// usual is the longest time of an answer on a quiet node of two cores: a base, and more for each
// item in the answer.
var usual = map[string]struct{ base, item time.Duration }{
	"Version":          {10 * time.Millisecond, 0},
	"Status":           {20 * time.Millisecond, 0},
	"ListPodSandbox":   {10 * time.Millisecond, 20 * time.Microsecond},
	"ListContainers":   {10 * time.Millisecond, 20 * time.Microsecond},
	"PodSandboxStatus": {10 * time.Millisecond, 0},
	"ContainerStatus":  {10 * time.Millisecond, 0},
	"ContainerStats":   {50 * time.Millisecond, 0},
}

// Examine examines a runtime.
func Examine(ctx context.Context, o Options) Report {
	e := &examiner{options: o, began: time.Now(), calls: make(map[string]*Call)}
	defer e.disconnect()
	e.facts.Began = e.began
	e.facts.Endpoint = o.Endpoint
	e.meter = o.Meter
	if e.meter == nil {
		meter, stop := standstill.Start()
		defer stop()
		e.meter = meter
	}
	tally := e.meter.Tally()
	e.span = e.meter.Begin()
	ctx, cancel := e.meter.WithTimeout(ctx, o.Within)
	defer cancel()
	if o.Host != nil {
		o.Host.Begin(ctx)
	}
	e.examine(ctx)
	e.facts.standstills(tally())
	if o.Host != nil {
		e.facts.Host = o.Host.End(context.WithoutCancel(ctx), Whereabouts{IDs: e.ids(), Paths: e.paths})
		e.facts.Looked = true
		e.unended(ctx)
	}
	e.strays()
	e.facts.Kept = make(map[string]Item)
	for id := range e.facts.Host.Shims {
		if kept, ok := e.first[id]; ok {
			e.facts.Kept[id] = kept.Item
		}
	}
	e.facts.Seconds = time.Since(e.began).Seconds()
	for _, method := range e.order {
		c := *e.calls[method]
		u := usual[method]
		c.UsualSeconds = (u.base + time.Duration(e.facts.Containers+e.facts.Pods)*u.item).Seconds()
		e.facts.Calls = append(e.facts.Calls, c)
	}
	if o.Adjust != nil {
		o.Adjust(&e.facts)
	}
	return Conclude(e.facts)
}

// disconnect closes the connection for calls.
func (e *examiner) disconnect() {
	if e.conn != nil {
		_ = e.conn.Close() // nothing is under way
	}
}

// left returns the rest of a share of the examination's time, which the process's standstills do
// not use up.
func (e *examiner) left(share time.Duration) time.Duration {
	ran, _ := e.span.Took()
	return share - ran
}

// examiner collects facts.
type examiner struct {
	options Options
	began   time.Time
	meter   *standstill.Meter
	span    standstill.Span                 // the whole examination
	conn    *grpc.ClientConn                // for calls, nil without one
	client  runtimeapi.RuntimeServiceClient // likewise
	events  runtimeapi.RuntimeServiceClient // for the stream

	mu    sync.Mutex // owns the fields below while several goroutines run
	facts Facts
	calls map[string]*Call
	order []string // of calls, by the first call of each method
	hung  int      // calls without an answer in time
	// first and second are the items of two lists, third those of one more, nil if none was made.
	first, second, third map[string]item
	heard                map[string]bool // IDs in events
	told                 map[string]Item // containers in events, but those told to be removed
	// absent are items that no list shows any more and whose statuses are answered. unsure are those
	// that were not asked for.
	absent []Item
	unsure map[string]bool
	paths  []string // the runtime's folders, by its configuration
}

// item is an item as listed.
type item struct {
	Item
	phase     pleg.Phase // of a sandbox that is ready: Running
	createdAt int64
}

// running reports whether the item runs, or is a sandbox that is ready.
func (i *item) running() bool { return i.phase == pleg.PhaseRunning }

// answerIn is how long the runtime may take for an answer, a share of the whole examination.
func (e *examiner) answerIn() time.Duration { return min(2*time.Second, e.options.Within/4) }

func (e *examiner) examine(ctx context.Context) {
	dialing, cancel := e.meter.WithTimeout(ctx, e.answerIn())
	defer cancel()
	probe, err := deadmount.Dial(dialing, e.options.Dial)
	if err != nil {
		if errors.Is(context.Cause(dialing), context.DeadlineExceeded) { // nobody accepts
			ran, _ := e.span.Took()
			e.order = []string{"Version"}
			e.calls["Version"] = &Call{
				Method:     "Version",
				Count:      1,
				Hung:       1,
				MaxSeconds: ran.Seconds(),
			}
			return
		}
		e.facts.Unreachable = err.Error()
		e.facts.Forbidden = errors.Is(err, fs.ErrPermission)
		return
	}
	dial := e.options.Dial
	given := make(chan net.Conn, 1)
	given <- probe
	conn, err := client(func(ctx context.Context) (net.Conn, error) {
		select {
		case c := <-given:
			return c, nil
		default:
			return dial(ctx)
		}
	})
	if err != nil {
		e.facts.Unreachable = err.Error()
		return
	}
	e.conn = conn
	dialStream := dial
	if e.options.DialStream != nil {
		dialStream = e.options.DialStream
	}
	stream, err := client(dialStream)
	if err != nil {
		e.facts.Unreachable = err.Error()
		return
	}
	defer stream.Close()
	e.events = runtimeapi.NewRuntimeServiceClient(stream)
	e.client = runtimeapi.NewRuntimeServiceClient(conn)
	e.connect(ctx, conn)
	version, ok := ask(ctx, e, "Version", e.client.Version, &runtimeapi.VersionRequest{})
	if !ok { // a busy machine answers the second time
		version, ok = ask(ctx, e, "Version", e.client.Version, &runtimeapi.VersionRequest{})
	}
	if !ok {
		return
	}
	e.facts.Name = version.GetRuntimeName()
	e.facts.Version = version.GetRuntimeVersion()

	// The stream is open until shortly before the end, while all else is asked. The second list comes
	// earlier: events are on their way for a moment.
	var listening sync.WaitGroup
	// The context of the stream has no deadline: the runtime might end the stream at the deadline
	// first.
	until, stop := e.meter.WithTimeout(ctx, e.left(e.options.Within*9/10))
	defer stop()
	again, done := e.meter.WithTimeout(ctx, e.left(e.options.Within*6/10))
	defer done()
	e.facts.Stream.Skipped = e.skip()
	e.facts.Stream.Judged = e.options.JudgedBy != ""
	if e.facts.Stream.Skipped == "" {
		e.connect(ctx, stream) // the stream's reader may start slowly; changes meanwhile are not untold
	}
	opened := time.Now()
	if e.facts.Stream.Skipped == "" {
		e.heard = make(map[string]bool)
		e.told = make(map[string]Item)
		listening.Go(func() { e.listen(until, opened) })
	}
	e.status(ctx)
	ok = e.listTwice(ctx, again)
	if !ok {
		stop()
	}
	listening.Wait()
	if ok {
		e.compare(opened)
		e.forget()
	}
}

// listTwice lists, reads the items until again ends, and lists once more. It looks again at what
// that list lacks.
func (e *examiner) listTwice(ctx, again context.Context) (ok bool) {
	e.first, ok = e.list(ctx)
	if !ok {
		return false
	}
	e.count()
	e.read(again)
	e.metrics(again)
	<-again.Done()
	named := e.named()
	e.second, ok = e.list(ctx)
	if !ok {
		return false
	}
	if e.lost() || e.unlisted(named) {
		e.third, _ = e.list(ctx)
	}
	e.lookForAbsent(ctx, named)
	return true
}

// client returns a client that connects for its first call.
func client(dial func(context.Context) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return deadmount.Dial(ctx, dial) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rawgrpc.MaxMessage)))
}

// connect waits for a connection, so no call's time includes the connecting.
func (e *examiner) connect(ctx context.Context, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, e.answerIn())
	defer cancel()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready && conn.WaitForStateChange(ctx, state); {
		state = conn.GetState()
	}
}

// skip returns why the stream is left alone.
func (e *examiner) skip() string {
	version := strings.TrimPrefix(e.facts.Version, "v")
	switch {
	case e.options.JudgedBy != "":
		return e.options.JudgedBy
	case e.options.NoEvents:
		return "asked so by --no-events"
	case e.facts.Name == "containerd" && strings.HasPrefix(version, "1."):
		return "containerd 1.7 gives each event to one client only, and a kubelet or agent may be that client"
	}
	return ""
}

// ask makes a call with its deadline, and counts the call.
func ask[Q, A any](
	ctx context.Context,
	e *examiner,
	method string,
	call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q,
) (A, bool) {
	answer, _, err := try(ctx, e, method, call, request)
	return answer, err == nil
}

// try is ask, and also returns the duration and the error.
func try[Q, A any](
	ctx context.Context,
	e *examiner,
	method string,
	call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q,
) (A, time.Duration, error) {
	answer, took, stood, err := timed(ctx, e, call, request)
	for range mostAgain { // a time in which this process did not run proves nothing
		if err == nil || stood == 0 || ctx.Err() != nil {
			break
		}
		e.again()
		answer, took, stood, err = timed(ctx, e, call, request)
	}
	if err == nil && took.Seconds() > slowFrom { // a moment without a CPU is not the runtime's
		second, again, _, err := timed(ctx, e, call, request)
		if err == nil && again < took {
			answer = second
			took = again
		}
	}
	gone := slices.Contains(itemCalls, method) && status.Code(err) == codes.NotFound // the item
	if gone || hung(err) && e.cutShort(took) || err != nil && stood > 0 {
		return answer, took, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.calls[method]
	if c == nil {
		c = &Call{Method: method}
		e.calls[method] = c
		e.order = append(e.order, method)
	}
	c.Count++
	c.MaxSeconds = max(c.MaxSeconds, took.Seconds())
	switch {
	case err == nil:
		c.doneSeconds = max(c.doneSeconds, took.Seconds())
	case hung(err):
		c.Hung++
		e.hung++
		if e.options.Gentle && e.hung >= mostHung {
			e.facts.Spared = fmt.Sprintf("%d calls hang, and the runtime was asked no more", e.hung)
		}
	default:
		c.Failed++
		if c.Error == "" {
			c.Error = err.Error()
		}
	}
	return answer, took, err
}

// mostAgain is how often a call is made again that failed while this process stood still.
const mostAgain = 3

// again counts a call that is made again.
func (e *examiner) again() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.facts.Again++
}

// timed makes a call with its deadline, by which the runtime ends it if this process stops for
// good. It returns how long this process ran meanwhile, and how long the process stood still.
func timed[Q, A any](
	ctx context.Context,
	e *examiner,
	call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q,
) (answer A, took, stood time.Duration, err error) {
	bounded, cancel := context.WithTimeout(ctx, e.answerIn())
	defer cancel()
	span := e.meter.Begin()
	answer, err = call(bounded, request)
	took, stood = span.Took()
	return answer, took, stood, err
}

// cutShort reports whether a call without an answer was ended by the end of the examination.
func (e *examiner) cutShort(took time.Duration) bool { return took < e.answerIn()*9/10 }

// hung reports whether an error is the end of a deadline.
func hung(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Canceled ||
		errors.Is(err, context.DeadlineExceeded)
}

// status asks for the runtime's conditions, and containerd's configuration.
func (e *examiner) status(ctx context.Context) {
	answer, ok := ask(ctx, e, "Status", e.client.Status, &runtimeapi.StatusRequest{Verbose: true})
	if !ok {
		return
	}
	for _, c := range answer.GetStatus().GetConditions() {
		e.facts.Conditions = append(e.facts.Conditions, Condition{
			Type:    c.GetType(),
			OK:      c.GetStatus(),
			Reason:  c.GetReason(),
			Message: c.GetMessage(),
		})
	}
	var config struct {
		StatsCollectPeriod *string `json:"statsCollectPeriod"`
		Root               string  `json:"containerdRootDir"`
		State              string  `json:"stateDir"`
	}
	if json.Unmarshal([]byte(answer.GetInfo()["config"]), &config) == nil {
		e.facts.StatsPeriod = config.StatsCollectPeriod
		e.paths = []string{config.Root, config.State}
	}
}

// list lists everything.
func (e *examiner) list(ctx context.Context) (map[string]item, bool) {
	done := e.listing(ctx)
	pods, ok := ask(
		ctx,
		e,
		"ListPodSandbox",
		thin(e.client.ListPodSandbox),
		&runtimeapi.ListPodSandboxRequest{},
	)
	done()
	done = e.listing(ctx)
	containers, both := ask(
		ctx,
		e,
		"ListContainers",
		thin(e.client.ListContainers),
		&runtimeapi.ListContainersRequest{},
	)
	done()
	if !ok || !both {
		return nil, false
	}
	items := make(map[string]item)
	for _, p := range pods.GetItems() {
		m := p.GetMetadata()
		items[p.GetId()] = item{
			Item: Item{
				ID:        p.GetId(),
				Sandbox:   p.GetId(),
				Kind:      "sandbox",
				Name:      m.GetName(),
				Pod:       m.GetName(),
				Namespace: m.GetNamespace(),
			},
			phase:     criphase.OfSandbox(p.GetState()),
			createdAt: p.GetCreatedAt(),
		}
	}
	for _, c := range containers.GetContainers() {
		pod := items[c.GetPodSandboxId()]
		items[c.GetId()] = item{
			Item: Item{
				ID:        c.GetId(),
				Sandbox:   c.GetPodSandboxId(),
				Kind:      "container",
				Name:      c.GetMetadata().GetName(),
				Pod:       pod.Pod,
				Namespace: pod.Namespace,
			},
			phase:     criphase.OfContainer(c.GetState()),
			createdAt: c.GetCreatedAt(),
		}
	}
	return items, true
}

// listing waits for the other lists of this process, as long as an answer may take.
func (e *examiner) listing(ctx context.Context) (done func()) {
	if e.options.Listing == nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, e.answerIn())
	defer cancel()
	return e.options.Listing(ctx)
}

// count counts the items of the first list.
func (e *examiner) count() {
	f := &e.facts
	f.Listed = true
	exited := make(map[string]int)
	now := time.Now()
	for _, i := range e.first {
		if ahead := time.Unix(0, i.createdAt).Sub(now); ahead.Seconds() > clockOff && i.createdAt > 0 {
			f.Ahead = append(f.Ahead, i.Item)
			f.AheadSeconds = max(f.AheadSeconds, ahead.Seconds())
		}
		switch {
		case i.Kind == "sandbox":
			f.Pods++
			if !i.running() {
				f.NotReady++
			}
			continue
		case i.running():
			f.Running++
		case i.phase == pleg.PhaseExited:
			f.Exited++
			exited[i.Sandbox]++
			if n := exited[i.Sandbox]; n > f.MostExitedCount {
				f.MostExitedCount = n
				f.MostExited = i.Item
			}
		}
		f.Containers++
	}
	slices.SortFunc(f.Ahead, func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
}

const (
	// mostReads is how many reads are in flight, and gentleReads those of a gentle examination, which
	// begins a read each gentlePause.
	mostReads   = 8
	gentleReads = 2
	gentlePause = 20 * time.Millisecond
	// mostHung is how many calls of a gentle examination may hang before its last call.
	mostHung = 5
)

// read reads the status of every item, and the statistics of every running container, until ctx
// ends.
func (e *examiner) read(ctx context.Context) {
	reads := mostReads
	if e.options.Gentle {
		reads = gentleReads
		e.spare()
	}
	work := make(chan item)
	var group sync.WaitGroup
	for range reads {
		group.Go(func() {
			for i := range work {
				e.readItem(ctx, i)
			}
		})
	}
	for _, i := range e.inOrder() {
		if e.options.Gentle && ctx.Err() == nil && e.enough() == "" {
			_ = bench.Sleep(ctx, gentlePause)
		}
		work <- i
	}
	close(work)
	group.Wait()
}

// inOrder are the items in the order of their reads: running ones first, since those are missed
// most. A gentle examination may not reach all, and begins with others each time.
func (e *examiner) inOrder() []item {
	items := make([]item, 0, len(e.first))
	for _, id := range slices.Sorted(maps.Keys(e.first)) {
		items = append(items, e.first[id])
	}
	if e.options.Gentle {
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	slices.SortStableFunc(items, func(a, b item) int {
		if a.running() == b.running() {
			return 0
		}
		return map[bool]int{true: -1, false: 1}[a.running()]
	})
	return items
}

// spare ends the calls of an examination if the runtime has answered slowly.
func (e *examiner) spare() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, method := range e.order {
		if c := e.calls[method]; c.MaxSeconds > slowFrom {
			e.facts.Spared = fmt.Sprintf(
				"the runtime is slow, and was asked no more: %s took %s",
				method,
				bench.Seconds(c.MaxSeconds),
			)
			return
		}
	}
}

// enough returns why no more is asked of the runtime, empty if more is.
func (e *examiner) enough() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.facts.Spared
}

// skipped counts an unread item.
func (e *examiner) skipped() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.facts.Unexamined++
}

// readItem reads one item. The statistics of a container come from its shim, all else from the
// runtime's memory.
func (e *examiner) readItem(ctx context.Context, i item) {
	if ctx.Err() != nil || e.enough() != "" {
		e.skipped()
		return
	}
	if i.Kind == "sandbox" {
		_, took, err := try(
			ctx,
			e,
			"PodSandboxStatus",
			e.client.PodSandboxStatus,
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: i.ID},
		)
		e.enter(ctx, i, "PodSandboxStatus", err, took)
		return
	}
	_, took, err := try(
		ctx,
		e,
		"ContainerStatus",
		e.client.ContainerStatus,
		&runtimeapi.ContainerStatusRequest{ContainerId: i.ID},
	)
	e.enter(ctx, i, "ContainerStatus", err, took)
	if i.running() && err == nil {
		_, took, err = try(
			ctx,
			e,
			"ContainerStats",
			e.client.ContainerStats,
			&runtimeapi.ContainerStatsRequest{ContainerId: i.ID},
		)
		if status.Code(err) != codes.Unimplemented {
			e.enter(ctx, i, "ContainerStats", err, took)
		}
	}
}

// enter enters the outcome of a read. A read cut off by the end of the examination counts as
// unexamined, and a read of a removed item has no outcome.
func (e *examiner) enter(ctx context.Context, i item, call string, err error, took time.Duration) {
	gone := status.Code(err) == codes.NotFound
	switch {
	case err == nil || gone:
		return
	case hung(err) && e.cutShort(took):
		e.skipped()
		return
	}
	found := i.Item
	found.Call = call
	found.Seconds = took.Seconds()
	found.Hung = hung(err)
	if !found.Hung {
		found.Error = err.Error()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.facts.Items = append(e.facts.Items, found)
}

// listen listens to the stream until ctx ends.
func (e *examiner) listen(ctx context.Context, opened time.Time) {
	stream, err := e.events.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var event *runtimeapi.ContainerEventResponse
		event, err = stream.Recv()
		if err == nil {
			e.hear(event, opened)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, io.EOF):
		e.facts.Stream.Ended = ended.eof
	case status.Code(err) == codes.Unimplemented:
		e.facts.Stream.Ended = ended.none
	default:
		own := ""
		if e.options.Own != nil {
			own = e.options.Own(err)
		}
		if own != "" {
			e.facts.Stream.Skipped = own
			return
		}
		e.facts.Stream.Ended = err.Error()
	}
}

// hear enters an event.
func (e *examiner) hear(event *runtimeapi.ContainerEventResponse, opened time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.facts.Stream
	s.Received++
	if at := event.GetCreatedAt(); at > 0 && time.Unix(0, at).Before(opened) {
		s.Replayed++
		s.OldestSeconds = max(s.OldestSeconds, opened.Sub(time.Unix(0, at)).Seconds())
	}
	const most = 200_000
	if len(e.heard) < most {
		e.heard[event.GetContainerId()] = true
	}
	e.name(event)
}

// metrics asks for the lists a minute.
func (e *examiner) metrics(ctx context.Context) {
	if e.options.Metrics != nil {
		e.facts.ListsAMinute, e.facts.MetricsAddress = e.options.Metrics(ctx)
	}
}

// listening reports whether the event stream was listened to until the end.
func (e *examiner) listening() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.facts.Stream.Skipped == "" && e.facts.Stream.Ended == ""
}

// lost reports whether a container is in the first list alone, and no event tells of it: it may be
// gone, or the second list lacks it.
func (e *examiner) lost() bool {
	if !e.listening() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, before := range e.first {
		_, still := e.second[id]
		if !still && !e.heard[id] && before.Kind == "container" {
			return true
		}
	}
	return false
}

// newest are the latest stamps of the first list, by the kind of item.
func (e *examiner) newest() map[string]int64 {
	newest := make(map[string]int64)
	for _, i := range e.first {
		newest[i.Kind] = max(newest[i.Kind], i.createdAt)
	}
	return newest
}

// toldOf are the IDs of which the stream told, and of sandboxes with such a container.
func (e *examiner) toldOf() map[string]bool {
	told := maps.Clone(e.heard)
	for id, i := range e.second {
		if e.heard[id] {
			told[i.Sandbox] = true
		}
	}
	return told
}

// compare finds the changes between the two lists, and the changes without an event. An item of the
// second list alone that is stamped before the examination was missing from the first list, if the
// first has later ones or none; else, and if the stream told of it, its stamp is wrong.
func (e *examiner) compare(opened time.Time) {
	f := &e.facts
	listening := e.listening()
	newest := e.newest()
	told := e.toldOf()
	missing := make(map[string]bool)
	f.Missed = append(f.Missed, e.absent...)
	for _, i := range e.absent {
		missing[i.ID] = true
	}
	if len(missing) > 0 {
		f.Unsure = len(e.unsure)
	}
	shown := len(e.second) + len(e.third)
	f.Blank = len(missing) > 0 && shown == 0
	f.Empty = len(e.first)+shown == 0
	changed := func(i item) {
		if missing[i.ID] || len(missing) > 0 && e.unsure[i.ID] { // such lists prove no change
			return
		}
		f.Stream.Changed++
		if listening && !e.heard[i.ID] && i.Kind == "container" { // CRI-O tells little of sandboxes
			f.Stream.Untold = append(f.Stream.Untold, i.Item)
		}
	}
	for id, now := range e.second {
		before, known := e.first[id]
		late := opened.Sub(time.Unix(0, now.createdAt)).Seconds()
		switch {
		case known && before.phase == now.phase:
			continue
		case known || now.createdAt <= 0 || late <= clockOff:
		case !told[id] && (now.createdAt < newest[now.Kind] || newest[now.Kind] == 0):
			f.Missed = append(f.Missed, now.Item)
			continue
		default:
			f.BehindSeconds = max(f.BehindSeconds, late)
		}
		changed(now)
	}
	for id, before := range e.first {
		_, still := e.second[id]
		_, back := e.third[id]
		switch {
		case still:
		case back:
			f.Missed = append(f.Missed, before.Item)
		default:
			changed(before)
		}
	}
	byID := func(a, b Item) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(f.Stream.Untold, byID)
	slices.SortFunc(f.Missed, byID)
}

// forget drops read errors of items that had ended or gone by the second list. The error for the
// statistics of a newly ended container has no code of its own, and containerd still shows the
// container as running for a moment.
func (e *examiner) forget() {
	e.facts.Items = slices.DeleteFunc(e.facts.Items, func(i Item) bool {
		now, still := e.second[i.ID]
		return !i.Hung && (!still || i.Call == "ContainerStats" && !now.running())
	})
}

// strays drops the shims whose items a later list or an event has shown. Without a second list
// nothing is known of them.
func (e *examiner) strays() {
	maps.DeleteFunc(e.facts.Host.Strays, func(id string, _ Process) bool {
		_, listed := e.second[id]
		_, back := e.third[id]
		return e.second == nil || listed || back || e.heard[id]
	})
}

// ids are the IDs of the listed items.
func (e *examiner) ids() (list []string) {
	for id := range e.first {
		list = append(list, id)
	}
	return list
}

// String names an item in errors.
func (i Item) String() string { return fmt.Sprintf("%s %s", i.words(), i.ID) }
