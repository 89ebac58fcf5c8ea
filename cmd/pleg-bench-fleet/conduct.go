// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/term"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// mostLog bounds the log read of each pod, in bytes. A result has some kilobytes.
const mostLog = 1 << 20

// Moments of a conductor.
const (
	callIn = 20 * time.Second
	// jobEvery is how often the Job is looked at; settleIn how long after its end pods may report.
	jobEvery = 5 * time.Second
	settleIn = 10 * time.Second
	// returnIn is how long after its load a node without a kubelet may come back.
	returnIn = 30 * time.Second
	// podsIn is when a Job without any pod has failed.
	podsIn = 20 * time.Second
)

// conductor runs a Job: it gives each pod its node, reads the results, and removes the Job.
//
// The goroutine in run owns everything; calls of the API that may take long send an outcome.
type conductor struct {
	cluster
	options *runOptions
	// nodes are the names by completion index.
	nodes    []string
	report   *LoadReport
	stderr   io.Writer
	turns    map[int]*turn
	outcomes chan outcome
	calls    sync.WaitGroup
}

// turn is the work of one node.
type turn struct {
	pod             string
	placed, started time.Time
	// away is when the node's kubelet stopped answering.
	away time.Time
	// waiting is why the pod has not started.
	waiting string
	// reading: the log is being read. done: the outcome is known.
	reading, done bool
}

// outcome is the end of a turn: a result, or why there is none.
type outcome struct {
	index  int
	result *bench.Result
	reason string
}

// change is a state of a pod.
type change struct {
	pod  *core.Pod
	gone bool
}

// run makes the Job and waits for its results. When ctx ends, so does the Job.
func (c *conductor) run(ctx context.Context, job *batch.Job) (err error) {
	c.turns, c.outcomes = make(map[int]*turn), make(chan outcome)
	created, err := c.batch.Jobs(job.Namespace).Create(ctx, job, meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the Job: %w", err)
	}
	c.report.Job = created.Namespace + "/" + created.Name
	whole, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer c.calls.Wait()
	defer stop()
	changes, store := c.watch(whole, created)
	working, done := context.WithCancel(ctx)
	err = c.conduct(working, created, changes)
	done() // of the calls whose outcome nobody waits for
	c.progress("removing the Job")
	defer c.progress("")
	return errors.Join(err, c.remove(whole, created, changes, store))
}

// watch returns the changes of the Job's pods, and their present names.
func (c *conductor) watch(ctx context.Context, job *batch.Job) (<-chan change, cache.Store) {
	pods := c.core.Pods(job.Namespace)
	selector := batch.JobNameLabel + "=" + job.Name
	changes := make(chan change)
	send := func(o any, gone bool) {
		if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unknown.Obj
		}
		if pod, ok := o.(*core.Pod); ok {
			select {
			case changes <- change{pod, gone}:
			case <-ctx.Done():
			}
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
				options.LabelSelector = selector
				return pods.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options meta.ListOptions) (watch.Interface, error) {
				options.LabelSelector = selector
				return pods.Watch(ctx, options)
			},
		},
		ObjectType: &core.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { send(o, false) },
			UpdateFunc: func(_, o any) { send(o, false) },
			DeleteFunc: func(o any) { send(o, true) },
		},
	})
	c.calls.Go(func() { informer.RunWithContext(ctx) })
	return changes, store
}

// conduct returns when every node has an outcome, or ctx ends.
func (c *conductor) conduct(ctx context.Context, job *batch.Job, changes <-chan change) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	began := time.Now()
	looked := began
	var ended time.Time // the Job's end
	why := ""
	for c.report.Finished < len(c.nodes) {
		select {
		case <-ctx.Done():
			c.failOpen("interrupted")
		case change := <-changes:
			c.observe(ctx, change)
		case o := <-c.outcomes:
			c.end(o)
		case now := <-ticker.C:
			c.overdue(ctx, now)
			if len(c.turns) == 0 && now.Sub(began) > podsIn {
				return fmt.Errorf("the Job %s makes no pods: %s", c.report.Job, c.creationFailure(ctx, job))
			}
			if now.Sub(looked) >= jobEvery && ended.IsZero() {
				looked = now
				if why = c.jobEnd(ctx, job); why != "" {
					ended = now
				}
			}
			if !ended.IsZero() && now.Sub(ended) > settleIn {
				c.failOpen(why)
			}
		}
		c.tell()
	}
	return nil
}

// jobEnd returns why a Job has ended, whether well or not; empty while it runs.
func (c *conductor) jobEnd(ctx context.Context, job *batch.Job) string {
	ctx, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	now, err := c.batch.Jobs(job.Namespace).Get(ctx, job.Name, meta.GetOptions{})
	if kubeerrors.IsNotFound(err) {
		return "somebody removed the Job"
	}
	if err != nil {
		return "" // asked again
	}
	for _, condition := range now.Status.Conditions {
		if (condition.Type == batch.JobFailed || condition.Type == batch.JobComplete) && condition.Status == core.ConditionTrue {
			return fmt.Sprintf("the Job ended: %s %s", cmp.Or(condition.Reason, string(condition.Type)), condition.Message)
		}
	}
	return ""
}

// creationFailure returns the Job's last warning.
func (c *conductor) creationFailure(ctx context.Context, job *batch.Job) string {
	ctx, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	events, err := c.core.Events(job.Namespace).List(ctx, meta.ListOptions{FieldSelector: "involvedObject.name=" + job.Name + ",type=Warning"})
	if err != nil || len(events.Items) == 0 {
		return "see its events"
	}
	last := events.Items[len(events.Items)-1]
	return last.Reason + ": " + last.Message
}

// observe acts on a state of a pod.
func (c *conductor) observe(ctx context.Context, seen change) {
	pod := seen.pod
	index, err := strconv.Atoi(pod.Annotations[batch.JobCompletionIndexAnnotation])
	if err != nil || index < 0 || index >= len(c.nodes) {
		return
	}
	t := c.turns[index]
	if t == nil {
		t = new(turn)
		c.turns[index] = t
	}
	if t.done || t.reading {
		return
	}
	t.waiting = waiting(pod)
	switch {
	case pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed:
		t.reading = true
		c.calls.Go(func() { c.send(ctx, c.read(ctx, index, pod)) })
	case seen.gone:
		c.end(outcome{index: index, reason: "its pod was removed before its end"})
	case len(pod.Spec.SchedulingGates) > 0 && t.placed.IsZero():
		t.pod, t.placed = pod.Name, time.Now()
		c.calls.Go(func() { c.place(ctx, index, pod) })
	case pod.Status.Phase == core.PodRunning:
		if t.started.IsZero() {
			t.started = time.Now()
		}
		// Its containers run, and it is not ready: the controller of nodes has lost the kubelet.
		if t.away.IsZero() && t.waiting == "" && !podReady(pod) {
			t.away = c.away(ctx, c.nodes[index])
		}
	}
}

// send hands an outcome to the loop.
func (c *conductor) send(ctx context.Context, o outcome) {
	select {
	case c.outcomes <- o:
	case <-ctx.Done():
	}
}

// waiting returns why a container does not run yet, empty if it does.
func waiting(pod *core.Pod) string {
	if all := pod.Status.ContainerStatuses; len(all) > 0 { // the load's pods have one container
		state := all[0].State.Waiting
		if state == nil {
			return ""
		}
		return state.Reason + " " + state.Message
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == core.PodScheduled && condition.Status == core.ConditionFalse {
			return condition.Reason + " " + condition.Message
		}
	}
	return cmp.Or(pod.Status.Reason, "no container yet")
}

func podReady(pod *core.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == core.PodReady {
			return condition.Status == core.ConditionTrue
		}
	}
	return false
}

// away returns since when a node is not ready; zero if it is, or cannot be read.
func (c *conductor) away(ctx context.Context, node string) time.Time {
	ctx, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	n, err := c.core.Nodes().Get(ctx, node, meta.GetOptions{})
	if err != nil {
		return time.Time{}
	}
	if ready, since := readiness(n); !ready {
		return since
	}
	return time.Time{}
}

// place gives a gated pod its node.
func (c *conductor) place(ctx context.Context, index int, pod *core.Pod) {
	requirement := core.NodeSelectorRequirement{Key: meta.ObjectNameField, Operator: core.NodeSelectorOpIn, Values: []string{c.nodes[index]}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"schedulingGates": nil,
		"affinity": core.Affinity{NodeAffinity: &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{
			NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{requirement}}},
		}}},
	}})
	if err == nil {
		call, cancel := context.WithTimeout(ctx, callIn)
		defer cancel()
		_, err = c.core.Pods(pod.Namespace).Patch(call, pod.Name, types.MergePatchType, patch, meta.PatchOptions{})
	}
	if err != nil {
		c.send(ctx, outcome{index: index, reason: fmt.Sprintf("its pod could not be given the node: %v", err)})
	}
}

// read returns the outcome of an ended pod, from its log.
func (c *conductor) read(ctx context.Context, index int, pod *core.Pod) outcome {
	ctx, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	o := outcome{index: index}
	stream, err := c.core.Pods(pod.Namespace).GetLogs(pod.Name, &core.PodLogOptions{TailLines: new(int64(10_000)), LimitBytes: new(int64(mostLog))}).Stream(ctx)
	if err != nil {
		o.reason = fmt.Sprintf("the log of its ended pod could not be read: %v", err)
		return o
	}
	defer stream.Close()
	log, err := io.ReadAll(io.LimitReader(stream, mostLog))
	result, last := findResult(log)
	switch {
	case result != nil:
		o.result = result
	case err != nil:
		o.reason = fmt.Sprintf("the log of its ended pod could not be read: %v", err)
	default:
		o.reason = fmt.Sprintf("no result: %s", cmp.Or(pod.Status.Message, last, pod.Status.Reason, "its log is empty"))
	}
	return o
}

// findResult finds a run's result in a log, which mixes it with lines of standard error, and the
// last other line.
func findResult(log []byte) (result *bench.Result, last string) {
	for rest := log; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if bytes.HasPrefix(line, []byte("{")) {
			found := new(bench.Result)
			decoder := json.NewDecoder(bufio.NewReader(bytes.NewReader(rest)))
			if decoder.Decode(found) == nil && found.Schema == bench.Schema {
				result, rest = found, rest[decoder.InputOffset():]
				continue
			}
		}
		if text := string(bytes.TrimSpace(line)); text != "" {
			last = text[:min(len(text), 500)]
		}
		rest = after
	}
	return result, last
}

// end enters an outcome.
func (c *conductor) end(o outcome) {
	t := c.turns[o.index]
	if t.done {
		return
	}
	t.done = true
	note := ""
	if !t.away.IsZero() {
		note = "its kubelet stopped answering at " + t.away.Format(time.TimeOnly)
	}
	c.report.add(c.nodes[o.index], o, note)
}

// failOpen ends every turn without an outcome.
func (c *conductor) failOpen(reason string) {
	for index := range c.nodes {
		if c.turns[index] == nil {
			c.turns[index] = new(turn)
		}
		c.end(outcome{index: index, reason: reason})
	}
}

// overdue ends the turns that take too long, and removes their pods, so that the next ones start.
func (c *conductor) overdue(ctx context.Context, now time.Time) {
	for index, t := range c.turns {
		limit := c.options.duration + aroundLoad
		if !t.away.IsZero() {
			limit = c.options.duration + returnIn
		}
		reason := ""
		switch {
		case t.done || t.reading || t.placed.IsZero():
		case t.started.IsZero() && now.Sub(t.placed) > startIn:
			reason = fmt.Sprintf("its pod did not start within %v: %s", startIn, t.waiting)
		case !t.started.IsZero() && now.Sub(t.started) > limit:
			if t.away.IsZero() {
				t.away = c.away(ctx, c.nodes[index])
			}
			reason = fmt.Sprintf("no result after %v", limit)
		}
		if reason == "" {
			continue
		}
		c.end(outcome{index: index, reason: reason})
		namespace, pod := c.options.namespace, t.pod
		c.calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callIn)
			defer cancel()
			_ = c.core.Pods(namespace).Delete(ctx, pod, meta.DeleteOptions{}) // or the Job's removal does
		})
	}
}

// remove removes the Job and waits for the end of its pods. Those that stay are reported.
func (c *conductor) remove(ctx context.Context, job *batch.Job, changes <-chan change, store cache.Store) error {
	call, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	err := c.batch.Jobs(job.Namespace).Delete(call, job.Name, meta.DeleteOptions{PropagationPolicy: new(meta.DeletePropagationBackground)})
	if err != nil && !kubeerrors.IsNotFound(err) {
		return fmt.Errorf("remove the Job %s, which Kubernetes removes %v after its end: %w", c.report.Job, keepFor, err)
	}
	limit := time.NewTimer(terminateIn + settleIn)
	defer limit.Stop()
	stuck := make(map[string]bool) // nodes without a kubelet, on which no pod ends
	for index, t := range c.turns {
		stuck[c.nodes[index]] = !t.away.IsZero()
	}
	for {
		left := []string{}
		waiting := false
		for _, o := range store.List() {
			pod := o.(*core.Pod)
			left = append(left, pod.Name+" on "+pod.Spec.NodeName)
			waiting = waiting || !stuck[pod.Spec.NodeName]
		}
		if c.report.LeftBehind = left; !waiting {
			return nil
		}
		select {
		case <-changes:
		case <-limit.C:
			return nil
		}
	}
}

// tell shows the progress on a terminal.
func (c *conductor) tell() {
	working := 0
	for _, t := range c.turns {
		if !t.done && !t.placed.IsZero() {
			working++
		}
	}
	c.progress(fmt.Sprintf("%d of %d nodes have ended, %d at work, %d failed", c.report.Finished, len(c.nodes), working, c.report.Finished-c.report.Passed))
}

// progress shows a line on a terminal in place of the one before.
func (c *conductor) progress(line string) {
	if f, ok := c.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(f, "\r\x1b[K"+line)
	}
}
