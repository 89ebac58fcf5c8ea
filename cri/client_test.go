// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
		{"localhost:1234", "", `scheme "localhost"`},
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
	for endpoint, message := range map[string]string{
		path("missing"):        "there is no socket",
		path("file"):           "is a regular file, not a socket",
		path("file") + "/x":    "not a directory",
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
