// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// asProgram makes the test binary pleg-agent.
const asProgram = "PLEG_AGENT_TEST_AS_PROGRAM"

// deadSockets names the usual sockets of that program, with commas between them.
const deadSockets = "PLEG_AGENT_TEST_SOCKETS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if sockets := os.Getenv(deadSockets); sockets != "" {
			usualSockets = strings.Split(sockets, ",")
		}
		os.Exit(cli.Execute(newRoot(cli.NewOutlet(os.Stdout), cli.NewOutlet(os.Stderr)), os.Args[1:], nil))
	}
	testkit.Waiting(6) // for programs, their deadlines and disks that hang
	os.Exit(m.Run())
}

// writer is an output.
type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestAgentEndsWithItsOutput: an agent that prints, and cannot, ends at the first line, and keeps
// what it has not printed.
func TestAgentEndsWithItsOutput(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		synctest.Test(t, func(t *testing.T) {
			writes := 0
			var notes bytes.Buffer
			root := newRoot(writer(func([]byte) (int, error) {
				writes++
				return 0, errors.New("no space")
			}), &notes)
			state := filepath.Join(t.TempDir(), "reported.json")
			root.SetArgs([]string{"--fake", "--node", "n", "--output", form, "--duration", "10m", "--state", state})
			began := time.Now()
			err := root.ExecuteContext(t.Context())
			if took := time.Since(began); took > 5*time.Second || writes != 1 {
				t.Errorf("it went on for %v, with %d writes", took, writes)
			}
			if err == nil || err.Error() != "print the Events: no space" {
				t.Errorf("the error is %v", err)
			}
			if text := notes.String(); strings.Count(text, "\n") != 1 {
				t.Errorf("it says %q, want the first line only", text)
			}
			kept := string(testkit.Must(os.ReadFile(state))(t))
			testkit.Says(t, "the state", kept, `"unsent":[{`)
		})
	}
}

// TestAgentLeavesAnOutputThatNobodyReads: a write that blocks does not hold up the end.
func TestAgentLeavesAnOutputThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		root := newRoot(writer(func([]byte) (int, error) {
			<-read
			return 0, io.ErrClosedPipe
		}), io.Discard)
		root.SetArgs([]string{"--fake", "--node", "n", "--duration", "1m"})
		began := time.Now()
		err := root.ExecuteContext(t.Context())
		if took := time.Since(began); took > time.Minute+flushFor+time.Second || !errors.Is(err, cli.ErrUnread) {
			t.Errorf("after %v: %v", took, err)
		}
		close(read)
	})
}

// TestAPausedOutputIsWaitedFor: a pager stands still for longer than a call to an API server may
// take. Nothing is lost or printed twice.
func TestAPausedOutputIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, notes bytes.Buffer
		root := newRoot(writer(func(b []byte) (int, error) {
			if out.Len() == 0 {
				time.Sleep(2 * time.Minute)
			}
			return out.Write(b)
		}), &notes)
		root.SetArgs([]string{"--fake", "--node", "n", "--duration", "5m"})
		testkit.Check(t, root.ExecuteContext(t.Context()))
		lines := strings.Split(out.String(), "\n")
		if first := lines[0]; strings.Count(out.String(), first) != 1 {
			t.Errorf("twice: %s", first)
		}
		testkit.Says(t, "the output", out.String(), "ContainerFailed        shop/worker", "  (x2", "ContainerOOMKilled")
		testkit.Says(t, "the summary", notes.String(), " ends in ")
	})
}

// TestSummaryCountsAllEvents: those of earlier hours too.
func TestSummaryCountsAllEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(io.Discard, false)
		const events = 3000
		for i := range events {
			e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i)}}
			_, err := p.Create(t.Context(), e)
			testkit.Check(t, err)
			time.Sleep(5 * time.Second)
		}
		n, err := p.total()
		testkit.Check(t, err)
		if n != events {
			t.Errorf("%d Events, want %d", n, events)
		}
		if len(p.events) > events/2 {
			t.Errorf("%d Events are kept", len(p.events))
		}
	})
}

// notes are what a program says, which can be read while it runs.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

var (
	metricsAt = regexp.MustCompile(`http://\S+/metrics`)
	unsent    = regexp.MustCompile(`(?m)^event_recorder_unsent [1-9]`)
)

// served returns the metrics that a program serves by its notes, empty for none.
func served(said string) string {
	answer, err := http.Get(metricsAt.FindString(said))
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// TestStatusOfABrokenOutput runs the program into a pipe without a reader, a pipe that is full, and
// a full disk.
func TestStatusOfABrokenOutput(t *testing.T) {
	t.Parallel()
	full := func(t *testing.T) *os.File {
		read, write, err := os.Pipe()
		testkit.Check(t, err)
		t.Cleanup(func() { testkit.Check(t, read.Close()) })
		raw := testkit.Must(write.SyscallConn())(t)
		testkit.Check(t, raw.Write(func(fd uintptr) bool {
			for err == nil {
				_, err = syscall.Write(int(fd), make([]byte, 1<<16))
			}
			return true
		}))
		if !errors.Is(err, syscall.EAGAIN) {
			t.Fatalf("the pipe is not full: %v", err)
		}
		return write
	}
	unread := func(t *testing.T) *os.File {
		read, write, err := os.Pipe()
		testkit.Check(t, errors.Join(err, read.Close()))
		return write
	}
	disk := func(t *testing.T) *os.File { return testkit.Must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t) }
	for name, c := range map[string]struct {
		out    func(t *testing.T) *os.File
		signal bool
		status int
		says   string
	}{
		"a pipe without a reader": {unread, false, cli.ExitUnread, ""},
		"a full pipe":             {full, true, cli.ExitInterrupted, "nobody reads the output"},
		"a full disk":             {disk, false, cli.ExitFailure, "write /dev/stdout: no space"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said notes
			program := exec.CommandContext(t.Context(), os.Args[0], "--fake", "--node", "n")
			if c.signal {
				program.Args = append(program.Args, "--http-addr", "127.0.0.1:0")
			}
			program.Env = append(os.Environ(), asProgram+"=1")
			out := c.out(t)
			program.Stdout = out
			program.Stderr = &said
			testkit.Check(t, program.Start())
			testkit.Check(t, out.Close())
			hung := time.AfterFunc(time.Minute, func() { _ = program.Process.Kill() })
			defer hung.Stop()
			if c.signal {
				for limit := time.Now().Add(time.Minute); !unsent.MatchString(served(said.String())); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(limit) {
						t.Fatalf("it has no Event to print: %s", said.String())
					}
				}
				testkit.Check(t, program.Process.Signal(syscall.SIGTERM))
			}
			err := program.Wait()
			if status := program.ProcessState.ExitCode(); status != c.status {
				t.Errorf("status %d (%v), want %d: %s", status, err, c.status, said.String())
			}
			_, rest, _ := strings.Cut(said.String(), "\n") // after the first line
			if c.says == "" && rest != "" || !strings.Contains(rest, c.says) {
				t.Errorf("it says %q, want %q in it, or nothing", rest, c.says)
			}
		})
	}
}

// TestStatusOfALockedState runs the program with the --state of another agent: it ends at once, as
// called wrongly, and names the file. The ledger stays as it is.
func TestStatusOfALockedState(t *testing.T) {
	state := filepath.Join(t.TempDir(), "reported.json")
	testkit.Check(t, os.WriteFile(state, []byte(`{"version":1,"since":"2026-01-01T00:00:00Z"}`), 0o600))
	lock := testkit.Must(os.Create(state + ".lock"))(t)
	defer lock.Close()
	testkit.Check(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	before := testkit.Must(os.ReadFile(state))(t)
	program := exec.CommandContext(t.Context(), os.Args[0], "--fake", "--node", "n", "--duration", "1m", "--state", state)
	program.Env = append(os.Environ(), asProgram+"=1")
	said, err := program.CombinedOutput()
	if status := program.ProcessState.ExitCode(); status != cli.ExitUsage {
		t.Errorf("status %d (%v), want %d", status, err, cli.ExitUsage)
	}
	testkit.Says(t, "the program", string(said), "--state: "+state+" is in use", state+".lock", "See pleg-agent --help.")
	if after := testkit.Must(os.ReadFile(state))(t); !bytes.Equal(before, after) {
		t.Errorf("the state is %s, was %s", after, before)
	}
}

// TestPrintSaysSinceWhen: with a file of --state, reports of before come first.
func TestPrintSaysSinceWhen(t *testing.T) {
	for state, want := range map[string]string{
		"":          ", from now on.",
		"kept.json": ", from the last one told in kept.json on.",
	} {
		var notes bytes.Buffer
		o := options{endpoint: "unix:///cri.sock", print: true, state: state}
		_, finish, err := o.connect(t.Context(), io.Discard, &notes)
		testkit.Check(t, err)
		finish()
		testkit.Says(t, "the first line", notes.String(), want)
	}
}
