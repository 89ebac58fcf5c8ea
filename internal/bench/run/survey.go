// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// lookFor bounds the first list of a run.
const lookFor = 15 * time.Second

// Refused is why a run does not begin on a runtime: the runtime is in use.
type Refused struct {
	Endpoint string
	// Strangers are the names of the pods made by others.
	Strangers []string
}

// Error names the pods and the remedy.
func (r *Refused) Error() string {
	return fmt.Sprintf(
		"the runtime at %s holds %s that pleg-bench has not made (%s): a kubelet seems to use the runtime, "+
			"would take this load's pods for its own, remove them, and be disturbed by them. Use a runtime of its own "+
			"(`make containerd` starts one), stop the kubelet and remove its pods, or pass --beside-kubelet if you know that nobody is harmed",
		r.Endpoint,
		bench.Count(len(r.Strangers), "pod"),
		bench.Few(r.Strangers),
	)
}

// survey refuses a runtime in use by others, and removes the leftovers of loads with an ended
// process.
func (r *runner) survey(ctx context.Context) error {
	r.enter("looking at what the runtime holds")
	lookCtx, cancel := r.meter.WithTimeout(ctx, lookFor)
	defer cancel()
	found, err := load.Look(lookCtx, r.conn)
	if err != nil && standstill.Expired(lookCtx) {
		return fmt.Errorf("the runtime's first list did not end within %v: %w", lookFor, err)
	}
	if err != nil {
		return err
	}
	if len(found.Strangers) > 0 && !r.options.BesideKubelet {
		return &Refused{Endpoint: r.options.Endpoint, Strangers: found.Strangers}
	}
	ctx, cancelRemoval := r.meter.WithTimeout(ctx, cleanupFor)
	defer cancelRemoval()
	for _, left := range found.Runs {
		if left.Owner != load.OwnerEnded {
			r.tell(
				"the runtime holds %s of run %s, whose process %s: its load is measured too",
				bench.Count(left.Sandboxes, "pod"),
				left.RunID,
				left.Owner,
			)
			continue
		}
		r.tell("removing %s that run %s has left", bench.Count(left.Sandboxes, "pod"), left.RunID)
		if err := left.Remove(ctx, r.conn); err != nil {
			return fmt.Errorf("remove what run %s has left: %w", left.RunID, err)
		}
	}
	return nil
}

// tell writes a line for people.
func (r *runner) tell(format string, args ...any) {
	if r.options.Stderr != nil {
		fmt.Fprintf(r.options.Stderr, "pleg-bench: %s\n", printable.Text(fmt.Sprintf(format, args...)))
	}
}

// Images returns the images of the runtime in brackets, or nothing without an answer.
func Images(ctx context.Context, endpoint string) string {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	conn, err := load.Connect(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return ""
	}
	defer conn.Close()
	return load.Images(ctx, conn)
}

// CleanupOptions are those of a cleanup.
type CleanupOptions struct {
	Endpoint string
	// RunID, unless empty, is the only run to remove, whether or not its process lives.
	RunID string
	// All also removes the pods of runs with a living or invisible process.
	All bool
	// DryRun only tells.
	DryRun bool
	Out    io.Writer
}

// Cleanup removes the leftovers of runs on a runtime. It fails if something could not be removed.
func Cleanup(ctx context.Context, o CleanupOptions) error {
	client, err := cri.Dial(ctx, cri.Config{Endpoint: o.Endpoint}) // for its errors about the endpoint
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Version(ctx); err != nil {
		return err
	}
	conn, err := load.Connect(strings.TrimPrefix(o.Endpoint, "unix://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	found, err := load.Look(ctx, conn)
	if err != nil {
		return err
	}
	var errs []error
	seen := false
	for _, left := range found.Runs {
		if o.RunID != "" && left.RunID != o.RunID {
			continue
		}
		seen = true
		verb := "removed"
		switch {
		case o.RunID == "" && !o.All && left.Owner != load.OwnerEnded:
			verb = "left alone (--all or --run " + left.RunID + " removes them)"
		case o.DryRun:
			verb = "would be removed"
		default:
			if err := left.Remove(ctx, conn); err != nil {
				errs = append(errs, fmt.Errorf("run %s: %w", left.RunID, err))
				verb = "NOT all removed"
			}
		}
		fmt.Fprintf(
			o.Out,
			"run %s, whose process %s: %s: %s\n",
			left.RunID,
			left.Owner,
			bench.Count(left.Sandboxes, "pod"),
			verb,
		)
	}
	switch {
	case o.RunID != "" && !seen:
		errs = append(errs, fmt.Errorf("the runtime holds nothing of run %s", o.RunID))
	case !seen:
		fmt.Fprintln(o.Out, "nothing of pleg-bench is on the runtime")
	}
	return errors.Join(errs...)
}
