// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// onSocket serves a fake runtime on a unix socket until the test's end, and returns its path.
func onSocket(t *testing.T) string {
	dir := testkit.Must(os.MkdirTemp("", "pu"))(t)
	t.Cleanup(func() { testkit.Check(t, os.RemoveAll(dir)) })
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{}))(t)
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 3, Containers: 1}))(t)
	socket := filepath.Join(dir, "cri.sock")
	lis := testkit.Must(net.Listen("unix", socket))(t)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = rt.Serve(ctx, lis) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
		rt.Close()
	})
	return socket
}

// fill fills a pipe, so that no other write to it ends before a read.
func fill(t *testing.T, pipe *os.File) {
	// Not the descriptor itself, whose mode the program shares.
	path := fmt.Sprintf("/proc/self/fd/%d", pipe.Fd())
	again := testkit.Must(syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0))(t)
	defer func() { testkit.Check(t, syscall.Close(again)) }()
	for _, size := range []int{4096, 1} {
		var err error
		for err == nil {
			_, err = syscall.Write(again, make([]byte, size))
		}
		if !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
	}
}

// TestASignalEndsAnUnreadOutput: a program whose output is a full pipe that nobody reads ends at
// the first signal all the same, and names the output if it can.
func TestASignalEndsAnUnreadOutput(t *testing.T) {
	for name, c := range map[string]struct {
		args  string
		full  string // the output that is a full pipe
		from  string // the output that says when
		ready string // what that is: the pipe is full then at the latest
	}{
		"watch":        {"watch --endpoint SOCKET", "stdout", "stderr", "watching"},
		"watch, JSON":  {"watch --endpoint SOCKET -o json", "stdout", "stdout", `"type":"State"`},
		"watch, notes": {"watch --endpoint SOCKET", "stderr", "stderr", "watching"},
		"proxy":        {"proxy --endpoint SOCKET --socket SOCKET.proxy", "stdout", "stderr", "disturbs for"},
		"proxy, notes": {"proxy --endpoint SOCKET --socket SOCKET.proxy", "stderr", "stderr", "disturbs for"},
		"run":          {"run -v --pods 3 --compare=false", "stdout", "stderr", "changing pods"},
		"run, notes":   {"run -v --pods 3 --compare=false", "stderr", "stderr", "changing pods"},
		"run, JSON":    {"run -v --pods 3 -o json", "stdout", "stderr", "changing pods"},
		"stress":       {"stress -v", "stdout", "stderr", "containers/s"},
		"the default":  {"-v --pods 3 --compare=false", "stdout", "stderr", "changing pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(strings.ReplaceAll(c.args, "SOCKET", onSocket(t)))
			read, write, err := os.Pipe()
			testkit.Check(t, err)
			defer read.Close()
			var other output
			program := exec.CommandContext(t.Context(), "pleg-bench", args...)
			program.Stdout, program.Stderr = write, &other
			if c.full == "stderr" {
				program.Stdout, program.Stderr = &other, write
			}
			if c.from != c.full {
				fill(t, write)
			}
			testkit.Check(t, program.Start())
			hung := time.AfterFunc(endsWithin, func() { _ = program.Process.Kill() })
			defer hung.Stop()
			if c.from == c.full {
				said := ""
				for part := make([]byte, 1000); !strings.Contains(said, c.ready); {
					n, err := read.Read(part)
					testkit.Check(t, err)
					said += string(part[:n])
				}
				fill(t, write)
			} else {
				for limit := time.Now().Add(endsWithin); !strings.Contains(other.String(), c.ready); time.Sleep(5 * time.Millisecond) {
					if time.Now().After(limit) {
						t.Fatalf("it does not say %q: %s", c.ready, other.String())
					}
				}
			}
			testkit.Check(t, errors.Join(write.Close(), program.Process.Signal(syscall.SIGTERM)))
			err = program.Wait()
			if status := program.ProcessState.ExitCode(); status != cli.ExitInterrupted {
				t.Errorf("status %d (%v), want %d: %s", status, err, cli.ExitInterrupted, other.String())
			}
			if c.full == "stdout" {
				testkit.Says(t, "standard error", other.String(), "write /dev/stdout: nobody reads the output", "send it to a file", "interrupted (terminated)")
			}
		})
	}
}
