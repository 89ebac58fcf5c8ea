// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestSocketPath(t *testing.T) {
	long := "/" + strings.Repeat("x", 107)
	for _, tt := range []struct{ endpoint, want, message string }{
		{"unix:///run/x.sock", "/run/x.sock", ""},
		{"/run/x.sock", "/run/x.sock", ""},
		{"unix:/run/x.sock", "/run/x.sock", ""},
		{"/run/a:b/x.sock", "/run/a:b/x.sock", ""},
		{"unix://" + long[:107], long[:107], ""},
		{"unix://run/x.sock", "", "three slashes"},
		{"run/x.sock", "", "absolute path"},
		{"./x.sock", "", "absolute path"},
		{"", "", "absolute path"},
		{"unix:", "", "no path"},
		{"tcp://127.0.0.1:1234", "", `scheme "tcp"`},
		{"npipe:////./pipe/containerd", "", `scheme "npipe"`},
		{"localhost:1234", "", "address of a host"},
		{"[::1]:80", "", "address of a host"},
		{"127.0.0.1:80", "", "address of a host"},
		{long, "", "at most 107"},
		{"/run/\x00x", "", "NUL"},
		{"unix:///run/x.sock\n", "", "white space"},
		{"/run/x.sock ", "", "white space"},
		{"unix://", "", "no path"},
	} {
		got, err := socketPath(tt.endpoint)
		if got != tt.want || (err == nil) != (tt.message == "") || err != nil && !strings.Contains(err.Error(), tt.message) {
			t.Errorf("socketPath(%q) = %q, %v; want %q, %q", tt.endpoint, got, err, tt.want, tt.message)
		}
	}
}

func TestDialSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.WriteFile(path("file"), nil, 0o600))
	dead := must(net.ListenUnix("unix", &net.UnixAddr{Name: path("dead"), Net: "unix"}))(t)
	dead.SetUnlinkOnClose(false)
	check(t, dead.Close())
	check(t, os.Symlink(path("loop"), path("loop")))
	datagrams := must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path("datagrams"), Net: "unixgram"}))(t)
	defer datagrams.Close()
	for endpoint, message := range map[string]string{
		path("missing"):        "there is no socket",
		path("file"):           "is a regular file, not a socket",
		path("file") + "/x":    "a part of its path is a file: name the runtime's socket",
		path("datagrams"):      "a socket of another kind: name the runtime's socket",
		path("loop"):           "a loop of links: name the runtime's socket",
		dir:                    "is a directory, not a socket",
		"/dev/null":            "is a special file",
		path("dead"):           "nothing listens",
		"unix://x":             "three slashes",
		"":                     "Config.Endpoint is empty",
		strings.Repeat(dir, 9): "at most 107",
	} {
		c, err := Dial(t.Context(), Config{Endpoint: endpoint})
		if err == nil {
			_ = c.Close()
			t.Errorf("Dial(%q) worked", endpoint)
		} else if !strings.Contains(err.Error(), message) || !strings.HasPrefix(err.Error(), "cri: ") {
			t.Errorf("Dial(%q): %v; want %q", endpoint, err, message)
		}
	}
	_, err := New(Config{Endpoint: "/x", MaxMessageSize: -1})
	wantError(t, err, "MaxMessageSize is -1")
	_, err = New(Config{Endpoint: "/x", MaxMessageSize: 64}) // meant MiB
	wantError(t, err, "MaxMessageSize is 64")
}

// hangsUp is a connection to a server that says a greeting and hangs up: it takes some writes of
// the client's first, and is read when it has refused one, or has nothing to refuse.
type hangsUp struct {
	net.Conn
	greeting io.Reader
	takes    int    // writes
	refuse   func() // closes refused, once
	refused  chan struct{}
}

func (c *hangsUp) Write(b []byte) (int, error) {
	if c.takes > 0 {
		c.takes--
		return len(b), nil
	}
	c.refuse()
	return 0, &net.OpError{Op: "write", Net: "unix", Err: os.NewSyscallError("write", syscall.EPIPE)}
}

func (c *hangsUp) Read(b []byte) (int, error) {
	<-c.refused
	return c.greeting.Read(b)
}

func (c *hangsUp) Close() error                     { c.refuse(); return nil }
func (c *hangsUp) LocalAddr() net.Addr              { return new(net.UnixAddr) }
func (c *hangsUp) RemoteAddr() net.Addr             { return new(net.UnixAddr) }
func (c *hangsUp) SetDeadline(time.Time) error      { return nil }
func (c *hangsUp) SetReadDeadline(time.Time) error  { return nil }
func (c *hangsUp) SetWriteDeadline(time.Time) error { return nil }

// TestDialHangsUp: a server that does not speak gRPC is recognised by what it says, whenever it
// hangs up. One that says nothing may be a runtime that ends, and is not accused.
func TestDialHangsUp(t *testing.T) {
	const accusation = "does not speak gRPC"
	for name, c := range map[string]struct {
		greeting string
		accused  bool
	}{
		"HTTP/1":           {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request", true},
		"SSH":              {"SSH-2.0-OpenSSH_9.9\r\n", true},
		"short":            {"hi\n", true},
		"another frame":    {"\x00\x00\x00\x01\x00\x00\x00\x00\x00", true},
		"nothing":          {"", false},
		"settings":         {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", false},
		"half of settings": {"\x00\x00\x00\x04", false},
	} {
		for takes := range 3 {
			dialer := func(context.Context) (net.Conn, error) {
				refused := make(chan struct{})
				conn := &hangsUp{
					greeting: strings.NewReader(c.greeting),
					takes:    takes,
					refuse:   sync.OnceFunc(func() { close(refused) }),
					refused:  refused,
				}
				if takes == 2 { // all that the client writes before it has heard the server
					conn.refuse()
				}
				return conn, nil
			}
			_, err := Dial(t.Context(), Config{Dialer: dialer})
			switch {
			case status.Code(err) != codes.Unavailable:
				t.Errorf("%s, after %d writes: %v", name, takes, err)
			case strings.Contains(err.Error(), accusation) != c.accused:
				t.Errorf("%s, after %d writes: accused is not %t: %v", name, takes, c.accused, err)
			}
		}
	}
}

// endsUnanswered is a dialer to a server that greets like a gRPC server and then hangs up, as often
// as a number says, and then to a runtime. It cancels ctx at a number of dials that no call should
// need.
type endsUnanswered struct {
	greeting string
	times    int
	then     func(context.Context) (net.Conn, error)
	dials    int
	cancel   context.CancelFunc
}

func (d *endsUnanswered) dial(ctx context.Context) (net.Conn, error) {
	d.dials++ // grpc dials one after another
	if d.dials > 100 {
		d.cancel()
	}
	if d.dials > d.times {
		return d.then(ctx)
	}
	conn := &hangsUp{
		greeting: strings.NewReader(d.greeting),
		takes:    100,
		refuse:   func() {},
		refused:  make(chan struct{}),
	}
	close(conn.refused)
	return conn, nil
}

// TestEndsUnanswered: a server that greets and hangs up, again and again, is an error of each call,
// not a call that connects for ever. A runtime that listens in its place is reached.
func TestEndsUnanswered(t *testing.T) {
	const (
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		goAway   = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	)
	for name, greeting := range map[string]string{"settings": settings, "goaway": settings + goAway} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := new(stub)
			s.start(t, bufconn.Listen(1<<20))
			d := &endsUnanswered{greeting: greeting, times: 1000, then: s.dial, cancel: cancel}
			c := must(New(Config{Dialer: d.dial}))(t)
			defer c.Close()
			for range 3 {
				_, err := c.Version(ctx)
				if status.Code(err) != codes.Unavailable {
					t.Fatalf("Version, after %d connections: %v", d.dials, err)
				}
			}
			for _, err := range c.Events(ctx) {
				if status.Code(err) != codes.Unavailable {
					t.Fatalf("Events, after %d connections: %v", d.dials, err)
				}
			}
			_, err := c.Version(ctx)
			wantError(t, err, "connections ended before the runtime answered")
			d.times = 0
			for err != nil && ctx.Err() == nil {
				_, err = c.Version(ctx)
			}
			if err != nil {
				t.Errorf("the runtime was not reached after %d connections: %v", d.dials, err)
			}
		})
	}
}

// TestConnectionsOfAQuietNode: connections that end in turn, over which no more came than that the
// stream is there, are none of a server that hangs up.
func TestConnectionsOfAQuietNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(stub)
		s.start(t, bufconn.Listen(1<<20))
		s.on("GetContainerEvents", hang)
		c := must(New(Config{Dialer: func(ctx context.Context) (net.Conn, error) {
			conn, err := s.dial(ctx)
			if err == nil {
				time.AfterFunc(time.Minute, func() { _ = conn.Close() })
			}
			return conn, err
		}}))(t)
		defer c.Close()
		for night := range 6 {
			for _, err := range c.Events(t.Context()) {
				if err == nil || strings.Contains(err.Error(), "connections ended") {
					t.Fatalf("the end of stream %d: %v", night, err)
				}
			}
		}
		if _, err := c.Version(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestUnavailableAnswers: a runtime that answers Unavailable, as it starts, and ends the connection
// has answered.
func TestUnavailableAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(stub)
		s.start(t, bufconn.Listen(1<<20))
		s.on("Version", failing(codes.Unavailable, "server is not initialized yet"))
		var conn net.Conn
		c := must(New(Config{Dialer: func(ctx context.Context) (_ net.Conn, err error) {
			conn, err = s.dial(ctx)
			return conn, err
		}}))(t)
		defer c.Close()
		for start := range 6 {
			_, err := c.Version(t.Context())
			wantError(t, err, "not initialized")
			_ = conn.Close()
			synctest.Wait()
			if t.Failed() {
				t.Fatalf("after %d starts", start)
			}
		}
	})
}

// TestConnecting: which attempts to connect are refused.
func TestConnecting(t *testing.T) {
	row := strings.Repeat("c", connsInRow)
	for name, steps := range map[string]string{
		"every other one, for ever":            row + "!c!c!c!",
		"an answer ends it":                    row + "!ca" + row + "!",
		"an answer to each":                    strings.Repeat("ca", 2*connsInRow),
		"the client gave one of them up":       row[1:] + "g" + row + "!",
		"an answer while refused":              row + "!ac",
		"attempts that fail are no connection": strings.Repeat("f", connsInRow) + row + "!f!f",
		"close together":                       strings.Repeat("cs", connsInRow) + "!",
		"apart":                                strings.Repeat("cl", 2*connsInRow),
		"one apart":                            row[1:] + "l" + row + "!",
		"apart after a refusal":                row + "!lc",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playConnecting(t, steps) })
		})
	}
}

// playConnecting plays steps: a connection (c), one that is refused (!), one that fails (f), an
// answer that a call takes (a), a connection given up (g), and a short or long time without any
// (s, l).
func playConnecting(t *testing.T, steps string) {
	m := new(connMonitor)
	for i, step := range steps {
		switch step {
		case 'a':
			m.received.Add(1)
			continue
		case 'g':
			m.abandon(m.conn)
			continue
		case 's':
			time.Sleep(apart - 1)
			continue
		case 'l':
			time.Sleep(apart)
			continue
		}
		err := m.connecting()
		if (err != nil) != (step == '!') {
			t.Errorf("step %d of %s: %v", i, steps, err)
		}
		if step == 'c' {
			m.connected(new(net.UnixConn), nil)
		}
	}
}

// TestGreeting: what is heard of a greeting is the same however it is cut.
func TestGreeting(t *testing.T) {
	for name, tc := range map[string]struct {
		said            string
		spoken, foreign bool
	}{
		"nothing":             {},
		"half a head":         {said: "\x00\x00\x06"},
		"the type":            {said: "\x00\x00\x06\x04", spoken: true},
		"a greeting and more": {said: "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x01\x01\x01\x01\x01\x01HELO", spoken: true},
		"another frame":       {said: "\x00\x00\x01\x01\x00\x00\x00\x00\x01x", foreign: true},
		"HTTP/1":              {said: "HTTP/1.1 400 Bad Request\r\n", foreign: true},
		"a text":              {said: "\x00\x00\x00HELO", foreign: true},
	} {
		for cut := 1; cut <= 32; cut++ {
			c := new(watchedConn)
			var err error
			for part := range slices.Chunk([]byte(tc.said), cut) {
				if err = c.hear(part); err != nil {
					break
				}
			}
			if foreign := err != nil; foreign != tc.foreign || c.spoken.Load() != tc.spoken {
				t.Errorf("%s in parts of %d bytes: spoken %v, %v", name, cut, c.spoken.Load(), err)
			}
		}
	}
}

// TestDialAnotherServer: a socket of a program that is no runtime, such as Docker's, and of a
// containerd whose configuration turns the CRI off, says so.
func TestDialAnotherServer(t *testing.T) {
	listen := func(greeting string) string {
		path := filepath.Join(t.TempDir(), "socket")
		l := must(net.Listen("unix", path))(t)
		var served sync.WaitGroup
		served.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, greeting)
				_, _ = conn.Read(make([]byte, 1)) // the client's first byte, or its end
				_ = conn.Close()
			}
		})
		t.Cleanup(func() {
			_ = l.Close()
			served.Wait()
		})
		return path
	}
	for name, greeting := range map[string]string{
		"HTTP/1": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request",
		"SSH":    "SSH-2.0-OpenSSH_9.9\r\n",
	} {
		_, err := Dial(t.Context(), Config{Endpoint: listen(greeting)})
		if err == nil || status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "does not speak gRPC") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := new(stub)
	c := serve(t, s, Config{})
	s.on("Version", failing(codes.Unimplemented, "unknown service runtime.v1.RuntimeService"))
	_, err := c.Version(t.Context())
	wantError(t, err, "does not serve the CRI", "disabled_plugins", "unknown service")
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("code %v", status.Code(err))
	}
	s.on("Version", failing(codes.Unimplemented, "Method not found")) // as servers in other languages say it
	_, err = c.Version(t.Context())
	wantError(t, err, "does not serve the CRI")
	_, err = c.ListPod(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
}

// TestDialSaysPermission calls the wording function, because only a user other than root sees the
// refusal.
func TestDialSaysPermission(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := connectUnix(ctx, "/nowhere")
	wantError(t, err, "cannot connect")
	err = explainDial("/run/x.sock", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)})
	wantError(t, err, "no permission to connect to /run/x.sock")
	enforced := strings.Index(err.Error(), "SELinux")
	modes := strings.Index(err.Error(), "run as root")
	if enforced < 0 || modes < enforced { // root does not help where SELinux enforces
		t.Errorf("%v: it names the modes first", err)
	}
}

// silentRuntime listens on a socket, accepts, and answers nothing. Sent is called when a client has
// sent something.
func silentRuntime(t *testing.T, sent func()) (path string) {
	t.Helper()
	path = socketPathForTest(t)
	l := must(net.Listen("unix", path))(t)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			n, _ := conn.Read(make([]byte, 1))
			if n > 0 {
				sent()
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
	})
	return path
}

// TestDialAHungRuntime checks that the end of its context ends a Dial of a socket that accepts and
// stays silent: the caller gives up, or its deadline passes. The deadline leaves the client the
// time to connect, however slow the machine is.
func TestDialAHungRuntime(t *testing.T) {
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := Dial(ctx, Config{Endpoint: silentRuntime(t, cancel)})
		if err == nil {
			_ = c.Close()
			t.Fatal("Dial worked")
		}
		wantError(t, err, "Version", context.Canceled.Error())
	})
	t.Run("deadline", func(t *testing.T) {
		var sent atomic.Bool
		path := silentRuntime(t, func() { sent.Store(true) })
		for wait := 50 * time.Millisecond; ; wait *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			c, err := Dial(ctx, Config{Endpoint: path})
			cancel()
			if err == nil {
				_ = c.Close()
				t.Fatal("Dial worked")
			}
			if sent.Load() {
				wantError(t, err, "Version", context.DeadlineExceeded.Error())
				return
			}
			if wait > time.Minute {
				t.Fatalf("the client has sent nothing within %v: %v", wait, err)
			}
		}
	})
}

// listenOnSocket starts a server of a pod on a socket.
func listenOnSocket(t *testing.T, path string) *stub {
	t.Helper()
	l := must(net.Listen("unix", path))(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}}
	s.start(t, l)
	return s
}

// TestCallsAfterClose: each call of a closed client, and each that Close ends, says who closed it.
// A second Close does nothing.
func TestCallsAfterClose(t *testing.T) {
	s := statuses(0, nil, map[string]runtimeapi.ContainerState{"c": running})
	c := serve(t, s, Config{})
	calls := map[string]func() error{
		"Version": func() error { _, err := c.Version(t.Context()); return err },
		"List":    func() error { _, err := c.List(t.Context(), 0); return err },
		"ListPod": func() error { _, err := c.ListPod(t.Context(), "u"); return err },
		"Inspect": func() error {
			_, err := c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "c"}}})
			return err
		},
		"Events": func() (err error) {
			for _, err = range c.Events(t.Context()) {
			}
			return err
		},
	}
	const methods = 5 // those that hang: of List and of ListPod the first
	begun := make(chan struct{}, 2*methods)
	for _, method := range []string{
		"Version", "StreamPodSandboxes", "ListPodSandbox", "ListContainers", "ContainerStatus", "GetContainerEvents",
	} {
		s.on(method, func(c *call) error {
			begun <- struct{}{}
			return hang(c)
		})
	}
	underWay := make(map[string]chan error)
	for name, do := range calls {
		ended := make(chan error, 1)
		underWay[name] = ended
		go func() { ended <- do() }()
	}
	for range methods {
		<-begun
	}
	check(t, c.Close())
	check(t, c.Close())
	for name, do := range calls {
		for when, err := range map[string]error{"under way": <-underWay[name], "afterwards": do()} {
			if !errors.Is(err, ErrClosed) || status.Code(err) != codes.Canceled {
				t.Errorf("%s %s: %v", name, when, err)
			}
		}
	}
}

// socketPathForTest returns a short path: t.TempDir may be too long for a socket.
func socketPathForTest(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "cri"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// TestSocket lists over a real socket, named in each possible way.
func TestSocket(t *testing.T) {
	socket := socketPathForTest(t)
	listenOnSocket(t, socket)
	for _, endpoint := range []string{socket, "unix://" + socket, "unix:" + socket} {
		c := must(Dial(t.Context(), Config{Endpoint: endpoint}))(t)
		if c.Endpoint() != "unix://"+socket {
			t.Errorf("the endpoint of %q is %q", endpoint, c.Endpoint())
		}
		if l := mustList(t, c, 0); len(l.Pods) != 1 {
			t.Errorf("List: %+v", l)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.List(t.Context(), 0); err == nil {
			t.Error("List of a closed client worked")
		}
	}
}

// TestCounts wants each number of Stats once from Counts, under its own name.
func TestCounts(t *testing.T) {
	s := Stats{Calls: map[string]uint64{"List": 1000}}
	want := map[float64]string{1000: "calls/list"}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[Stats]()) {
		switch v := reflect.ValueOf(&s).Elem().Field(i); v.Kind() {
		case reflect.Uint64:
			v.SetUint(uint64(i))
		case reflect.Int:
			v.SetInt(int64(i))
		default:
			continue
		}
		want[float64(i)] = strings.ToLower(f.Name)
	}
	numbers := len(want) - len(s.Calls)
	serve(t, &stub{}, Config{}).Counts(func(string, float64) { numbers-- })
	if numbers != 0 {
		t.Errorf("Counts of a client yields %d numbers too few", numbers)
	}
	s.counts(func(name string, v float64) {
		if strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "client_"), "_", "")) != want[v] {
			t.Errorf("%s is yielded for %q", name, want[v])
		}
		delete(want, v)
	})
	if len(want) > 0 {
		t.Errorf("Counts leaves out %v", want)
	}
}

// TestRuntimeWithoutTheService: a containerd that comes back without its CRI plugin says so in each
// call, not only in Dial: an agent that runs asks for the version no more.
func TestRuntimeWithoutTheService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener := must(net.Listen("unix", path))(t)
	server := grpc.NewServer() // with no service
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	defer served.Wait()
	defer server.Stop()
	c := must(New(Config{Endpoint: path}))(t)
	defer c.Close()
	pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}}}
	for name, call := range map[string]func() error{
		"Version": func() error { _, err := c.Version(t.Context()); return err },
		"List":    func() error { _, err := c.List(t.Context(), 0); return err },
		"ListPod": func() error { _, err := c.ListPod(t.Context(), "u"); return err },
		"Inspect": func() error { _, err := c.Inspect(t.Context(), pod); return err },
		"Events": func() (last error) {
			for _, err := range c.Events(t.Context()) {
				last = err
			}
			return last
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s worked", name)
		} else if text := err.Error(); !strings.Contains(text, "does not serve the CRI") || !strings.Contains(text, "disabled_plugins") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
