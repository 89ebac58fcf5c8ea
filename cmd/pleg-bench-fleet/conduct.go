// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

const (
	// mostLog bounds the log read of each pod, in bytes. A result has some kilobytes.
	mostLog = 1 << 20
	// podEvery is how often a pod is looked at.
	podEvery = 3 * time.Second
)

// conductor puts a load on nodes, some at a time. In its turn a node gets a pod with the load; the
// result is in the pod's log.
type conductor struct {
	api     coreclient.CoreV1Interface
	options *runOptions
	line    *cli.Line

	mu     sync.Mutex // owns the fields below
	report *LoadReport
	begun  int // turns
}

// run gives each node its turn, and enters the outcomes into the report. When ctx ends, so do the
// turns. A pod refused by the API server ends all.
func (c *conductor) run(ctx context.Context, nodes []string) error {
	defer c.line.Show("")
	turns, ctx := errgroup.WithContext(ctx)
	turns.SetLimit(c.options.atOnce)
	for _, node := range nodes {
		turns.Go(func() error {
			c.enter(func() { c.begun++ })
			result, reason, err := c.turn(ctx, node)
			c.enter(func() { c.report.add(node, result, reason) })
			return err
		})
	}
	return turns.Wait()
}

// enter changes what the mutex owns, and shows the progress.
func (c *conductor) enter(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	r := c.report
	c.line.Show(fmt.Sprintf("%d nodes have ended, %d at work, %d failed", r.Finished, c.begun-r.Finished, r.Finished-r.Passed))
}

// turn returns the result of the load on a node, or why there is none, and as an error why there
// can be none on any node.
func (c *conductor) turn(ctx context.Context, node string) (result *bench.Result, reason string, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx).Error(), nil
	}
	pod, err := c.api.Pods(c.options.namespace).Create(ctx, c.options.pod(node), meta.CreateOptions{})
	if kubeerrors.IsForbidden(err) || kubeerrors.IsInvalid(err) {
		return nil, err.Error(), fmt.Errorf("make a pod for %s: %w", node, err)
	}
	if err != nil {
		return nil, fmt.Sprintf("its pod could not be made: %v", err), nil
	}
	result, reason = c.follow(ctx, pod)
	ctx = context.WithoutCancel(ctx)
	away := ""
	if result == nil {
		away = c.away(ctx, node)
	}
	c.remove(ctx, pod, away != "")
	return result, away + reason, nil
}

// follow returns the result of a pod, or why there is none. A pod that takes too long has none.
func (c *conductor) follow(ctx context.Context, pod *core.Pod) (result *bench.Result, reason string) {
	var started time.Time
	for limit := time.Now().Add(startIn); time.Now().Before(limit) && bench.Sleep(ctx, podEvery) == nil; {
		now, err := c.api.Pods(pod.Namespace).Get(ctx, pod.Name, meta.GetOptions{})
		if kubeerrors.IsNotFound(err) {
			return nil, "its pod was removed before its end"
		} else if err != nil {
			continue // it is asked again
		}
		pod = now
		switch pod.Status.Phase {
		case core.PodSucceeded, core.PodFailed:
			return c.read(ctx, pod)
		case core.PodRunning:
			if started.IsZero() {
				started = time.Now()
				limit = started.Add(c.options.duration + aroundLoad)
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx).Error()
	case started.IsZero():
		return nil, fmt.Sprintf("its pod did not start within %v: %s", startIn, waiting(pod))
	}
	return nil, fmt.Sprintf("no result after %v", time.Since(started).Round(time.Second))
}

// waiting returns why the container of a pod does not run yet.
func waiting(pod *core.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			return s.State.Waiting.Reason + " " + s.State.Waiting.Message
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == core.PodScheduled && condition.Status == core.ConditionFalse {
			return condition.Reason + " " + condition.Message
		}
	}
	return cmp.Or(pod.Status.Reason, "no container yet")
}

// away names a kubelet that does not answer any more, for the begin of a reason.
func (c *conductor) away(ctx context.Context, node string) string {
	n, err := c.api.Nodes().Get(ctx, node, meta.GetOptions{})
	if err != nil {
		return ""
	}
	if ready, since := readiness(n); !ready {
		return "its kubelet stopped answering at " + since.Format(time.TimeOnly) + "; "
	}
	return ""
}

// read returns the result of an ended pod, from its log, or why there is none.
func (c *conductor) read(ctx context.Context, pod *core.Pod) (result *bench.Result, reason string) {
	var log []byte
	options := &core.PodLogOptions{TailLines: new(int64(10_000)), LimitBytes: new(int64(mostLog))}
	stream, err := c.api.Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err == nil {
		defer stream.Close()
		log, err = io.ReadAll(io.LimitReader(stream, mostLog))
	}
	result, last := findResult(log)
	switch {
	case result != nil:
		return result, ""
	case err != nil:
		return nil, fmt.Sprintf("the log of its ended pod could not be read: %v", err)
	}
	return nil, "no result: " + cmp.Or(pod.Status.Message, last, pod.Status.Reason, "its log is empty")
}

// findResult finds a run's result in a log, among lines of standard error, and the last other line.
func findResult(log []byte) (result *bench.Result, last string) {
	for len(log) > 0 {
		line, after, _ := bytes.Cut(log, []byte("\n"))
		if bytes.HasPrefix(line, []byte("{")) {
			found := new(bench.Result)
			decoder := json.NewDecoder(bytes.NewReader(log))
			if decoder.Decode(found) == nil && found.Schema == bench.Schema {
				result, log = found, log[decoder.InputOffset():]
				continue
			}
		}
		if text := string(bytes.TrimSpace(line)); text != "" {
			last = text[:min(len(text), 500)]
		}
		log = after
	}
	return result, last
}

// remove removes a pod and waits until it is gone, unless its kubelet is away. A pod that stays is
// reported.
func (c *conductor) remove(ctx context.Context, pod *core.Pod, away bool) {
	for limit := time.Now().Add(terminateIn + podEvery); ; _ = bench.Sleep(ctx, podEvery) {
		err := c.api.Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{})
		if kubeerrors.IsNotFound(err) {
			return
		}
		if away || time.Now().After(limit) {
			c.enter(func() {
				c.report.LeftBehind = append(c.report.LeftBehind, pod.Namespace+"/"+pod.Name+" on "+pod.Spec.NodeName)
			})
			return
		}
	}
}
