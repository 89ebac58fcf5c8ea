// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// asReader makes the test binary a reader.
const asReader = "be-a-reader"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asReader {
		if err := Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Waiting(4) // for processes
	goleak.VerifyTestMain(m)
}

// patience bounds every wait; no test asserts a duration.
const patience = 60 * time.Second

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// serve serves a fake runtime on a listener until the test ends.
func serve(t *testing.T, lis net.Listener) *fakeruntime.Runtime {
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 1}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = rt.Serve(ctx, lis) })
	t.Cleanup(func() { cancel(); served.Wait(); rt.Close() })
	return rt
}

// client returns a client whose connections are dialed.
func client(t *testing.T, dial func(context.Context) (net.Conn, error)) runtimeapi.RuntimeServiceClient {
	conn := testkit.Must(grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })))(t)
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// subscribe opens a stream by a reader that runs. On a busy machine a process may take so long to
// start that its supervisor ends it, as it is meant to; the next connection is by another reader.
func subscribe(t *testing.T, rt *fakeruntime.Runtime, s *Supervisor, c runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeService_GetContainerEventsClient {
	t.Helper()
	until(t, "a reader", func() bool {
		_, err := c.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err == nil
	})
	stream := testkit.Must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
	until(
		t,
		"a subscriber, and no other reader",
		func() bool { return rt.Stats().Subscribers == 1 && len(s.PIDs()) == 1 },
	)
	s.takeWhy()
	return stream
}

// onSocket is a fake runtime on a socket.
func onSocket(t *testing.T) (*fakeruntime.Runtime, string) {
	dir := testkit.Must(os.MkdirTemp("/tmp", "reader-"))(t) // a test's own may be too long for a socket
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "runtime.sock")
	return serve(t, testkit.Must(net.Listen("unix", socket))(t)), socket
}

// TestReads checks that reads and events pass by a reader's process, with the time of their
// receipt, and that nothing else does.
func TestReads(t *testing.T) {
	t.Parallel()
	rt, socket := onSocket(t)
	s := NewSupervisor(socket, asReader)
	c := client(t, s.Dial)
	t.Cleanup(func() { s.Close() })
	stream := subscribe(t, rt, s, c) // before the containers end: the events go to nobody else
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 3, Containers: 2, Life: fakeruntime.After(time.Second, 0)}))(t)
	if list := testkit.Must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t); len(list.Containers) != 6 {
		t.Errorf("%d containers, want 6", len(list.Containers))
	}
	_, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: "x"})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("RemoveContainer: %v, want PermissionDenied", err)
	}
	before := time.Now()
	event := testkit.Must(stream.Recv())(t)
	at, _, ok := Received(event.ProtoReflect().GetUnknown())
	if !ok || event.ContainerId == "" || at.After(time.Now()) || at.Before(before.Add(-patience)) {
		t.Errorf("the event %v was received at %v, %v", event, at, ok)
	}
}

// TestStopped stops a reader: its supervisor ends it, the runtime is without a subscriber, and the
// next connection is by another reader.
func TestStopped(t *testing.T) {
	t.Parallel()
	rt, socket := onSocket(t)
	s := NewSupervisor(socket, asReader)
	c := client(t, s.Dial)
	t.Cleanup(func() { s.Close() })
	stream := subscribe(t, rt, s, c)
	before := s.Ended()
	stopped := s.PIDs()[0]
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	event, err := stream.Recv()
	if status.Code(err) != codes.Unavailable || !strings.Contains(s.Why(err), "did not read") {
		t.Errorf("the stream ended with %v %v, want Unavailable and why", event, err)
	}
	until(t, "no subscriber", func() bool { return left(t, rt) })
	if n := s.Ended() - before; n != 1 || s.Why(err) != "" {
		t.Errorf("%d ended, want 1; the reason comes once", n)
	}
	until(t, "another reader", func() bool {
		_, err := c.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err == nil
	})
}

// TestDiesByItself stops a reader that nobody supervises: the kernel ends it.
func TestDiesByItself(t *testing.T) {
	t.Parallel()
	rt, socket := onSocket(t)
	conn := testkit.Must(net.Dial("unix", socket))(t)
	runtime := testkit.Must(conn.(*net.UnixConn).File())(t)
	conn.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	beats, beat, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer beats.Close()
	cmd := exec.Command(testkit.Must(os.Executable())(t), asReader)
	cmd.ExtraFiles = []*os.File{runtime, theirs, beat}
	p := testkit.Must(child.Spawn(cmd))(t)
	t.Cleanup(func() { _ = p.Kill() })
	runtime.Close()
	theirs.Close()
	beat.Close()
	c := client(t, func(context.Context) (net.Conn, error) { return ours, nil })
	testkit.Must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
	until(t, "a subscriber", func() bool { return rt.Stats().Subscribers == 1 })
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Wait(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the stopped reader: %v, want its end by SIGKILL", err)
	}
	until(t, "no subscriber", func() bool { return left(t, rt) })
}

// left reports whether the runtime has no subscriber. As real ones do, the fake notices the end of
// one at an event for it.
func left(t *testing.T, rt *fakeruntime.Runtime) bool {
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1, Life: fakeruntime.After(time.Millisecond, 0)}))(t)
	return rt.Stats().Subscribers == 0
}

// TestObserverTakesNothing has an observer that takes nothing: the runtime is read all the time,
// and left when the observer's time is up; what waits and the reason come when the observer goes
// on.
func TestObserverTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		rt := serve(t, lis)
		ours, theirs := net.Pipe()
		ctx := t.Context()
		var alive atomic.Int64
		var served sync.WaitGroup
		defer served.Wait()
		served.Go(func() {
			_ = Serve(
				ctx,
				Config{
					Runtime:  testkit.Must(lis.DialContext(ctx))(t),
					Observer: theirs,
					Alive:    func() { alive.Add(1) },
				},
			)
		})
		gate := &gated{Conn: ours, open: make(chan struct{})}
		close(gate.open)
		conn := testkit.Must(grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return gate, nil })))(t)
		defer conn.Close()
		stream := testkit.Must(runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
		synctest.Wait()
		gate.shut()
		const pods = 2000
		testkit.Must(rt.Populate(fakeruntime.Population{Pods: pods, Containers: 1, Life: fakeruntime.After(time.Second, 0)}))(t)
		time.Sleep(HandOn / 2)
		if n := rt.Stats().Subscribers; n != 1 {
			t.Fatalf("%d subscribers in the time of the observer, want 1", n)
		}
		time.Sleep(HandOn)
		for range 3 {
			left(t, rt)
			time.Sleep(time.Second)
		}
		if n := rt.Stats().Subscribers; n != 0 {
			t.Errorf("%d subscribers after the time of the observer, want none", n)
		}
		close(gate.open)
		received := 0
		for {
			if _, err := stream.Recv(); err != nil {
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "left the stream") {
					t.Errorf("the end: %v", err)
				}
				break
			}
			received++
		}
		if received != pods {
			t.Errorf("%d events, want all %d", received, pods)
		}
		if n := alive.Load(); n < int64(HandOn/beat) {
			t.Errorf("%d reports of life, want them without a pause", n)
		}
	})
}

// gated is a connection that reads nothing while shut.
type gated struct {
	net.Conn
	mu   sync.Mutex
	open chan struct{}
}

func (g *gated) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
	return n, err
}

func TestBufferIsBounded(t *testing.T) {
	for _, b := range []bounds{{count: 3, bytes: 1000}, {count: 1000, bytes: 30}} {
		q := newBuffer(b)
		for range 5 {
			q.put(make([]byte, 10))
		}
		if q.full.Err() == nil {
			t.Errorf("%v: not full", b)
		}
		q.end(context.Canceled)
		taken := 0
		for {
			_, err := q.get(t.Context())
			if err != nil {
				if !strings.Contains(err.Error(), "3 messages of 30 bytes wait to be taken; it dropped 2 messages") {
					t.Errorf("%v: the end: %v", b, err)
				}
				break
			}
			taken++
		}
		if taken != 3 {
			t.Errorf("%v: %d taken, want 3", b, taken)
		}
	}
}
