// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/rawgrpc"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; no test asserts a duration.
const patience = 30 * time.Second

// A rig is a runtime with events written by the test, a proxy in front and a client.
type rig struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	events chan string // their IDs; closed: the stream ends
	greets bool        // streams begin with a header, before any event
	asked  atomic.Int64
	server *grpc.Server
	proxy  *Proxy
	client runtimeapi.RuntimeServiceClient
}

func (r *rig) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	r.asked.Add(1)
	return &runtimeapi.ListContainersResponse{
		Containers: []*runtimeapi.Container{{Id: "one"}, {Id: "two"}},
	}, nil
}

// ContainerStatus knows no container, and sends metadata beside its error.
func (r *rig) ContainerStatus(
	ctx context.Context,
	request *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	err := errors.Join(
		grpc.SetHeader(ctx, metadata.Pairs("head", "of an error")),
		grpc.SetTrailer(ctx, metadata.Pairs("tail", "of an error")),
	)
	if err != nil {
		return nil, err
	}
	if request.ContainerId == "canceled" {
		return nil, status.Error(codes.Canceled, "by the runtime itself")
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (r *rig) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	if r.greets {
		if err := stream.SendHeader(metadata.Pairs("head", "of a stream")); err != nil {
			return err
		}
	}
	for {
		select {
		case id, ok := <-r.events:
			if !ok {
				return status.Error(codes.ResourceExhausted, "no more events")
			}
			if err := stream.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Version answers with the metadata of its request, as header and as trailer.
func (r *rig) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	got := append(md.Get("traceparent"), md.Get("some-bin")...)
	err := errors.Join(
		grpc.SetHeader(ctx, metadata.MD{"head-bin": got}),
		grpc.SetTrailer(ctx, metadata.MD{"tail-bin": got}),
	)
	return &runtimeapi.VersionResponse{}, err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// A test's own directory may be too long for a socket.
	dir := testkit.Must(os.MkdirTemp("/tmp", "criproxy-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{events: make(chan string)}
	runtime, listen := filepath.Join(dir, "runtime.sock"), filepath.Join(dir, "proxy.sock")
	listener := testkit.Must(net.Listen("unix", runtime))(t)
	r.server = grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(r.server, r)
	served := make(chan struct{})
	go func() { defer close(served); _ = r.server.Serve(listener) }()
	t.Cleanup(func() { r.server.Stop(); <-served })
	r.proxy = testkit.Must(Start(listen, runtime))(t)
	t.Cleanup(r.proxy.Close)
	conn := testkit.Must(grpc.NewClient("unix:"+listen, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnectAtOnce)))(t)
	t.Cleanup(func() { conn.Close() })
	r.client = runtimeapi.NewRuntimeServiceClient(conn)
	return r
}

// list makes a call within a time.
func (r *rig) list(t *testing.T, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return err
}

// awaits returns once done reports true, within patience.
func awaits(t *testing.T, done func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !done() {
		if time.Now().After(end) {
			t.Fatal("what the test waits for does not come")
		}
		time.Sleep(time.Millisecond)
	}
}

// reconnects waits until the client has found the proxy again by its own means.
func (r *rig) reconnects(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); r.list(t, patience) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client has not reconnected")
		}
	}
}

// subscribe returns a function that reads the IDs of the next n events, fewer at the end of the
// stream, and the end's code.
func (r *rig) subscribe(t *testing.T) func(n int) ([]string, codes.Code) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream := testkit.Must(r.client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
	return func(n int) (got []string, code codes.Code) {
		for len(got) < n {
			event, err := stream.Recv()
			if err != nil {
				return got, status.Code(err)
			}
			got = append(got, event.ContainerId)
		}
		return got, codes.OK
	}
}

// emit sends events from the runtime until the test ends, or the stream.
func (r *rig) emit(t *testing.T, ids []string) (sent chan struct{}) {
	sent = make(chan struct{})
	go func() {
		defer close(sent)
		for _, id := range ids {
			select {
			case r.events <- id:
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { <-sent })
	return sent
}

func ids(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("c%d", i))
	}
	return out
}

func TestTransparent(t *testing.T) {
	r := newRig(t)
	if _, err := r.client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{}); status.Code(err) != codes.NotFound {
		t.Errorf("error %v, want the runtime's NotFound", err)
	}
	if _, err := r.client.Status(t.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v, want the runtime's Unimplemented", err)
	}
	read := r.subscribe(t)
	<-r.emit(t, ids(100))
	close(r.events)
	got, code := read(101)
	if diff := cmp.Diff(ids(100), got); diff != "" || code != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v, want the runtime's status; events (-want +got):\n%s", code, diff)
	}
	if got := r.proxy.Calls(); got["ContainerStatus"] != 1 || got["GetContainerEvents"] != 1 {
		t.Errorf("calls %v", got)
	}
}

// TestStreamFaults compares the events that a client reads of five.
func TestStreamFaults(t *testing.T) {
	named := func(event string) func([]byte) bool {
		return func(m []byte) bool { return strings.Contains(string(m), event) }
	}
	for _, tt := range []struct {
		name  string
		fault Fault
		want  []string
		end   codes.Code
		hits  int
	}{
		{"drop one", Fault{Match: named("c2"), Do: Drop{}}, []string{"c0", "c1", "c3", "c4"}, codes.OK, 1},
		{"drop the first two", Fault{Times: 2, Do: Drop{}}, []string{"c2", "c3", "c4"}, codes.OK, 2},
		{"a delay keeps the order", Fault{Times: 1, Do: Delay{For: 50 * time.Millisecond}}, ids(5), codes.OK, 1},
		{"another method's fault", Fault{Method: "Version", Do: Drop{}}, ids(5), codes.OK, 0},
		{"truncate", Fault{Match: named("c2"), Do: Truncate{}}, ids(2), codes.Internal, 1},
		{"fail", Fault{Match: named("c2"), Do: Fail{codes.Aborted, "so told"}}, ids(2), codes.Aborted, 1},
		{"cut", Fault{Match: named("c2"), Do: Cut{}}, nil, codes.Unavailable, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			if tt.fault.Method == "" {
				tt.fault.Method = "GetContainerEvents"
			}
			injected := r.proxy.Inject(tt.fault)
			read := r.subscribe(t)
			r.emit(t, ids(5))
			n := 5
			if tt.end == codes.OK {
				n = len(tt.want)
			}
			got, code := read(n)
			if tt.want == nil {
				got = nil // what was under way at the cut may be lost
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.end {
				t.Errorf("the end %v, want %v; events (-want +got):\n%s", code, tt.end, diff)
			}
			if got := injected.Hits(); got != tt.hits {
				t.Errorf("hits %d, want %d", got, tt.hits)
			}
			r.reconnects(t)
		})
	}
}

// TestFaultsBehindAnEnd: a fault behind one that ends a call, or swallows a reply, has not acted on
// it: it is neither counted nor used up, and acts on the next.
func TestFaultsBehindAnEnd(t *testing.T) {
	t.Run("refusals", func(t *testing.T) {
		r := newRig(t)
		var faults []*Injected
		for _, code := range []codes.Code{codes.Aborted, codes.DataLoss} {
			faults = append(faults, r.proxy.Inject(Fault{Method: "ListContainers", Do: Refuse{Code: code}, Times: 1}))
		}
		for i, want := range []codes.Code{codes.Aborted, codes.DataLoss, codes.OK} {
			if err := r.list(t, patience); status.Code(err) != want {
				t.Errorf("call %d: error %v, want %v", i, err, want)
			}
			if got, want := faults[0].Hits()+faults[1].Hits(), min(i+1, 2); got != want {
				t.Errorf("call %d: %d hits, want %d", i, got, want)
			}
		}
	})
	t.Run("a drop, then a failure", func(t *testing.T) {
		r := newRig(t)
		drop := r.proxy.Inject(Fault{Method: "GetContainerEvents", Do: Drop{}, Times: 2})
		r.proxy.Inject(Fault{Method: "GetContainerEvents", Do: Fail{Code: codes.DataLoss}, Times: 1})
		read := r.subscribe(t)
		r.emit(t, ids(3))
		if got, code := read(1); code != codes.DataLoss {
			t.Errorf("the stream ended with %v after %v, want DataLoss", code, got)
		}
		if n := drop.Hits(); n != 2 {
			t.Errorf("the stream ended behind %d drops, want 2", n)
		}
	})
}

// TestNothingToTruncate: an empty reply has no last byte, and the fault waits for another.
func TestNothingToTruncate(t *testing.T) {
	r := newRig(t)
	injected := r.proxy.Inject(Fault{Do: Truncate{}, Times: 1})
	_, err := r.client.Version(t.Context(), &runtimeapi.VersionRequest{})
	testkit.Check(t, err)
	if n := injected.Hits(); n != 0 {
		t.Errorf("%d hits on an empty reply", n)
	}
	if err := r.list(t, patience); status.Code(err) != codes.Internal {
		t.Errorf("a list: error %v, want Internal", err)
	}
}

// TestFaultsBehindAStall: a reply that is held is held also if it is dropped or replaced behind.
func TestFaultsBehindAStall(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   Action
		want []string
		end  codes.Code
	}{
		{"drop", Drop{}, []string{"c1", "c2"}, codes.ResourceExhausted},
		{"fail", Fail{Code: codes.DataLoss}, nil, codes.DataLoss},
		{"cut", Cut{}, nil, codes.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			stall := r.proxy.Inject(Fault{Method: "GetContainerEvents", Do: Stall{}, Times: 1})
			behind := r.proxy.Inject(Fault{Method: "GetContainerEvents", Do: tt.do, Times: 1})
			read := r.subscribe(t)
			r.events <- "c0"
			awaits(t, func() bool { return behind.Hits() > 0 })
			if tt.end == codes.ResourceExhausted {
				<-r.emit(t, []string{"c1", "c2"})
				close(r.events)
			}
			type end struct {
				got  []string
				code codes.Code
			}
			ended := make(chan end, 1)
			go func() {
				got, code := read(4)
				ended <- end{got, code}
			}()
			testkit.Check(t, r.list(t, patience)) // behind all that the proxy has sent on the stream
			select {
			case e := <-ended:
				t.Fatalf("ended with %v after %v while it was stalled", e.code, e.got)
			default:
			}
			stall.Remove()
			if e := <-ended; !slices.Equal(e.got, tt.want) || e.code != tt.end {
				t.Errorf("ended with %v after %v, want %v after %v", e.code, e.got, tt.end, tt.want)
			}
		})
	}
}

// TestRemovedWhileHeld: the faults behind a Hold act on a held call only if they are in force at
// its end.
func TestRemovedWhileHeld(t *testing.T) {
	r := newRig(t)
	for _, clear := range []bool{false, true} {
		hold := r.proxy.Inject(Fault{Method: "ListContainers", Do: Hold{}})
		refuse := r.proxy.Inject(Fault{Method: "ListContainers", Do: Refuse{Code: codes.Aborted}})
		answered := make(chan error)
		go func() { answered <- r.list(t, patience) }()
		awaits(t, func() bool { return hold.Hits() > 0 })
		want := codes.Aborted
		if clear {
			refuse.Remove()
			want = codes.OK
		}
		hold.Remove()
		if err := <-answered; status.Code(err) != want {
			t.Errorf("refusal removed %v: error %v, want %v", clear, err, want)
		}
		r.proxy.Clear()
	}
}

// TestStall: the runtime can go on while the client is told nothing, and all is
// told in order once the fault is removed.
func TestStall(t *testing.T) {
	r := newRig(t)
	stall := r.proxy.Inject(Fault{Times: 1, Do: Stall{}})
	read := r.subscribe(t)
	const many = 5000 // far above grpc's buffers
	select {
	case <-r.emit(t, ids(many)):
	case <-time.After(patience):
		t.Fatal("a stalled client stops the runtime")
	}
	stall.Remove()
	stall.Remove()
	got, _ := read(many)
	if diff := cmp.Diff(ids(many), got); diff != "" {
		t.Errorf("after the stall (-want +got):\n%s", diff)
	}
}

// TestHoldsNoMoreThanItMay: a stalled call holds so many replies only, and delivers all in order
// once the gate opens.
func TestHoldsNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			size = 1 << 20
			all  = 2 * mostHeld / size
		)
		gate := make(chan struct{})
		in := make(chan reply)
		taken := 0 // owned by the runtime's goroutine, and read while it is blocked
		go func() {
			for i := range all {
				frame := rawgrpc.Frame{Data: make([]byte, size)}
				frame.Data[0] = byte(i)
				in <- reply{Frame: frame, gates: []<-chan struct{}{gate}}
				taken++
			}
			in <- reply{last: true}
		}()
		var got []byte
		ended := make(chan error, 1)
		go func() {
			ended <- deliver(t.Context(), in, func(r reply) error {
				if !r.last {
					got = append(got, r.Data[0])
				}
				return nil
			})
		}()
		synctest.Wait()
		if taken != mostHeld/size {
			t.Errorf("%d replies of a MiB are held, want %d", taken, mostHeld/size)
		}
		close(gate)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(got) != all || !slices.IsSorted(got) {
			t.Errorf("delivered %v, want %d in order", got, all)
		}
	})
}

// TestHoldsNoMoreEmptyRepliesThanItMay: a held reply costs memory without a byte of its own.
func TestHoldsNoMoreEmptyRepliesThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in := make(chan reply)
		taken := 0 // owned by the runtime's goroutine, and read while it is blocked
		go func() {
			for {
				select {
				case in <- reply{gates: []<-chan struct{}{ctx.Done()}}:
					taken++
				case <-ctx.Done():
					return
				}
				if taken > mostHeld/overhead {
					return
				}
			}
		}()
		go func() { _ = deliver(ctx, in, func(reply) error { return nil }) }()
		synctest.Wait()
		if want := mostHeld / overhead; taken != want {
			t.Errorf("%d empty replies are held, want %d", taken, want)
		}
		cancel()
	})
}

// TestCallHangs checks that a held call and a held answer last until their deadline, and go on
// after the fault.
func TestCallHangs(t *testing.T) {
	r := newRig(t)
	for _, do := range []Action{Hold{}, Stall{}} {
		injected, before := r.proxy.Inject(Fault{Method: "ListContainers", Do: do}), r.asked.Load()
		for injected.Hits() == 0 { // on a busy machine a deadline may pass before the call is at the proxy
			if err := r.list(t, 50*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("%T: error %v, want DeadlineExceeded", do, err)
			}
		}
		ended := injected.Hits()
		answered := make(chan error)
		go func() { answered <- r.list(t, patience) }()
		awaits(t, func() bool { return injected.Hits() > ended })
		if _, hold := do.(Hold); hold != (r.asked.Load() == before) {
			t.Errorf("%T: the runtime was asked %d times", do, r.asked.Load()-before)
		}
		injected.Remove()
		if err := <-answered; err != nil {
			t.Errorf("after the %T: %v", do, err)
		}
	}
}

// outcomes collects what an observer learns.
type outcomes struct {
	mu  sync.Mutex // owns the list
	all []Outcome
}

func (o *outcomes) add(one Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, one)
}

// ends are the outcomes that are ends of calls.
func (o *outcomes) ends() (ends []Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.all {
		if one.Ended {
			ends = append(ends, one)
		}
	}
	return ends
}

// TestObservesTheRuntimesAbsence: the observer learns of a call that finds no runtime.
func TestObservesTheRuntimesAbsence(t *testing.T) {
	r := newRig(t)
	r.server.Stop()
	var heard outcomes
	r.proxy.Observe(heard.add)
	if err := r.list(t, patience); status.Code(err) != codes.Unavailable {
		t.Fatalf("error %v, want Unavailable", err)
	}
	ends := heard.ends()
	if len(ends) != 1 || status.Code(ends[0].Err) != codes.Unavailable || ends[0].GivenUp {
		t.Errorf("the observer has heard %+v, want an end with Unavailable", ends)
	}
}

// TestObservesWhoGaveUp: the end of a call that its client has given up is told apart from one that
// the runtime has failed with the same status.
func TestObservesWhoGaveUp(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      Action // nil: the runtime hangs
		givesUp bool
		want    codes.Code
	}{
		{"a deadline in the runtime", nil, false, codes.DeadlineExceeded},
		{"a deadline in a hold", Hold{}, false, codes.DeadlineExceeded},
		{"canceled in the runtime", nil, true, codes.Canceled},
		{"canceled in a hold", Hold{}, true, codes.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			if tt.do != nil {
				r.proxy.Inject(Fault{Do: tt.do})
			}
			var heard outcomes
			r.proxy.Observe(heard.add)
			for end := time.Now().Add(patience); len(heard.ends()) == 0; {
				if time.Now().After(end) {
					t.Fatal("the observer hears of no end")
				}
				// On a busy machine the call may be given up before it is at the proxy.
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if tt.givesUp {
					cancel()
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(50*time.Millisecond, cancel)
				}
				stream, err := r.client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
				if err == nil {
					_, err = stream.Recv()
				}
				cancel()
				if err == nil {
					t.Fatal("the call does not hang")
				}
			}
			for _, end := range heard.ends() {
				if !end.GivenUp || status.Code(end.Err) != tt.want && status.Code(end.Err) != codes.Canceled {
					t.Errorf("the end %v, given up %v; want %v, given up", end.Err, end.GivenUp, tt.want)
				}
			}
		})
	}
	t.Run("by the runtime", func(t *testing.T) {
		r := newRig(t)
		var heard outcomes
		r.proxy.Observe(heard.add)
		_, err := r.client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "canceled"})
		if ends := heard.ends(); status.Code(err) != codes.Canceled || len(ends) != 1 || ends[0].GivenUp {
			t.Errorf("error %v, ends %+v: want the runtime's Canceled", err, ends)
		}
	})
}

func TestDownAndUp(t *testing.T) {
	r := newRig(t)
	read := r.subscribe(t)
	r.emit(t, ids(1))
	read(1)
	r.proxy.Down()
	if _, code := read(1); code != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", code)
	}
	if err := r.list(t, patience); status.Code(err) != codes.Unavailable {
		t.Errorf("while down: error %v, want Unavailable", err)
	}
	testkit.Check(t, r.proxy.Up())
	r.reconnects(t)
}

// greeting is a call of which the runtime has sent the header.
type greeting struct{ grpc.ClientStream }

func (greeting) Header() (metadata.MD, error) { return metadata.Pairs("head", "of a call"), nil }

// TestObservesWhoTakesNothing: a call whose client has gone before it took what there is has an
// end, too.
func TestObservesWhoTakesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var p Proxy
	var heard outcomes
	p.Observe(heard.add)
	p.forward(ctx, greeting{}, call{method: "Version"}, nil, make(chan reply))
	ends := heard.ends()
	if len(ends) != 1 || status.Code(ends[0].Err) != codes.Canceled || !ends[0].GivenUp {
		t.Errorf("the observer has heard %+v, want an end that was given up", ends)
	}
}

// TestDownAtOnce: a proxy that goes down before it has begun to serve leaves its socket as well.
func TestDownAtOnce(t *testing.T) {
	r := newRig(t)
	for range 20 {
		r.proxy.Down()
		testkit.Check(t, r.proxy.Up())
	}
	r.reconnects(t)
}

// TestSilentClient: a client that has connected and says nothing holds up no end.
func TestSilentClient(t *testing.T) {
	r := newRig(t)
	silent := testkit.Must(net.Dial("unix", r.proxy.listen))(t)
	defer silent.Close()
	awaits(t, func() bool { return r.proxy.Clients() > 0 })
	down := make(chan struct{})
	go func() {
		defer close(down)
		r.proxy.Down()
	}()
	select {
	case <-down:
	case <-time.After(patience):
		t.Error("the proxy waits for the client")
	}
	<-down
	if n := r.proxy.Clients(); n != 0 {
		t.Errorf("%d clients of a proxy that is down", n)
	}
	testkit.Check(t, r.proxy.Up())
	r.reconnects(t)
}

// TestStartFails: a proxy that cannot listen leaves nothing behind (goleak), and is none.
func TestStartFails(t *testing.T) {
	p, err := Start(filepath.Join(t.TempDir(), "absent", "proxy.sock"), "/absent/runtime.sock")
	if err == nil || p != nil {
		t.Errorf("started %v, error %v", p, err)
	}
}

// TestMetadataPasses: what a client sends beside its request reaches the runtime, such as the
// context of a trace, and the runtime's own beside the answers reaches the client.
func TestMetadataPasses(t *testing.T) {
	r := newRig(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-1-2-01", "some-bin", "\x00\xff")
	var header, trailer metadata.MD
	_, err := r.client.Version(ctx, &runtimeapi.VersionRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	testkit.Check(t, err)
	for name, got := range map[string][]string{"head": header.Get("head-bin"), "tail": trailer.Get("tail-bin")} {
		if diff := cmp.Diff([]string{"00-1-2-01", "\x00\xff"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMetadataOfAnErrorPasses: a call that ends without a reply has the runtime's header as well.
func TestMetadataOfAnErrorPasses(t *testing.T) {
	r := newRig(t)
	var header, trailer metadata.MD
	_, err := r.client.ContainerStatus(
		t.Context(),
		&runtimeapi.ContainerStatusRequest{},
		grpc.Header(&header),
		grpc.Trailer(&trailer),
	)
	if status.Code(err) != codes.NotFound {
		t.Errorf("error %v, want NotFound", err)
	}
	want := []string{"of an error"}
	if head, tail := header.Get("head"), trailer.Get("tail"); !slices.Equal(head, want) || !slices.Equal(tail, want) {
		t.Errorf("header %v, trailer %v, want %v in both", head, tail, want)
	}
}

// TestHeaderComesBeforeTheFirstReply: a runtime that greets a stream is heard at once.
func TestHeaderComesBeforeTheFirstReply(t *testing.T) {
	r := newRig(t)
	r.greets = true
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream := testkit.Must(r.client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
	header, err := stream.Header()
	if got := header.Get("head"); err != nil || !slices.Equal(got, []string{"of a stream"}) {
		t.Errorf("header %v, error %v", got, err)
	}
}
