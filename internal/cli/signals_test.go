// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// underHangups makes the test binary a program that ends at a signal, after some tidying.
const underHangups = "CLI_TEST_UNDER_HANGUPS"

func TestMain(m *testing.M) {
	if os.Getenv(underHangups) != "" {
		sameWish = time.Hour // on a busy machine the second signal may come late
		os.Exit(Execute(tidyAfterSignal(), nil, nil))
	}
	// A test under nohup has children with the default, as a signal that this process receives is
	// at its default again in its children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}

// tidyAfterSignal is a command that waits for a signal and takes a moment to end.
func tidyAfterSignal() *cobra.Command {
	root := &cobra.Command{
		Use: "tidy",
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("ready")
			<-cmd.Context().Done()
			fmt.Println("asked")
			<-time.After(20 * time.Millisecond)
			return context.Cause(cmd.Context())
		},
	}
	Prepare(root, "")
	return root
}

// TestASignalSentTwice: timeout(1) sends SIGTERM to its command and then to the group, as others
// that pass signals on do. That is one wish to end, after which there is time to tidy.
func TestASignalSentTwice(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), underHangups+"=1")
		said := testkit.Must(program.StdoutPipe())(t)
		testkit.Check(t, program.Start())
		for range 2 {
			if _, err := fmt.Fscanln(said, new(string)); err != nil {
				t.Errorf("it says nothing: %v", err)
			}
			testkit.Check(t, program.Process.Signal(s))
		}
		err := program.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != ExitInterrupted {
			t.Errorf("%v: %v, want exit status %d", s, err, ExitInterrupted)
		}
	}
}

// TestHangups sends hangups without a pause, as no shell does: at whichever moment one comes, the
// program ends as it has begun to.
func TestHangups(t *testing.T) {
	for range 30 {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), underHangups+"=1")
		said := testkit.Must(program.StdoutPipe())(t)
		testkit.Check(t, program.Start())
		if _, err := fmt.Fscanln(said, new(string)); err != nil {
			t.Errorf("it is not ready: %v", err)
		}
		silent := make(chan struct{})
		go func() {
			defer close(silent)
			for program.Process.Signal(syscall.SIGHUP) == nil {
			}
		}()
		err := program.Wait()
		<-silent
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != ExitInterrupted {
			t.Fatalf("%v, want exit status %d", err, ExitInterrupted)
		}
	}
}
