// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
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
// The goroutine in run owns everything. Calls of the API are made beside it, and hand what they
// return to it as a step.
type conductor struct {
	cluster
	options *runOptions
	// nodes are the names by completion index, turns their states.
	nodes  []string
	turns  []turn
	report *LoadReport
	line   *cli.Line
	// steps wait for the loop; calls are the goroutines that send them.
	steps chan func()
	calls sync.WaitGroup
	// seen: the Job has made a pod. failed is why the Job cannot work.
	seen   bool
	failed error
}

// state is how far a turn is.
type state int

const (
	gated   state = iota // the pod has no node yet
	placed               // the pod has the node, and does not run
	started              // the pod runs
	reading              // the log of the ended pod is being read
	done                 // the outcome is known
)

// turn is the work of a node.
type turn struct {
	state state
	// since is when the state began, limit how long it may last.
	since time.Time
	limit *time.Timer
	// pod is the name of the pod, waits why the pod does not run.
	pod, waits string
	// away is when the node's kubelet stopped answering.
	away time.Time
}

// outcome is the end of a turn: a result, or why there is none.
type outcome struct {
	result *bench.Result
	reason string
}

// run makes the Job and waits for its results. When ctx ends, so does the Job.
func (c *conductor) run(ctx context.Context, job *batch.Job) error {
	c.turns, c.steps = make([]turn, len(c.nodes)), make(chan func())
	job, err := c.batch.Jobs(job.Namespace).Create(ctx, job, meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the Job: %w", err)
	}
	c.report.Job = job.Namespace + "/" + job.Name
	whole, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer c.calls.Wait()
	defer stop()
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	pods := c.watch(whole, working, job)
	c.calls.Go(func() { c.follow(working, job) })
	for c.failed == nil && c.report.Finished < len(c.nodes) {
		select {
		case <-ctx.Done():
			c.endAll("interrupted")
		case step := <-c.steps:
			step()
		}
		c.progress()
	}
	cancel() // the calls whose outcome nobody waits for
	c.line.Show("removing the Job")
	defer c.line.Show("")
	return errors.Join(c.failed, c.remove(whole, job, pods))
}

// send hands a step to the loop.
func (c *conductor) send(ctx context.Context, step func()) {
	select {
	case c.steps <- step:
	case <-ctx.Done():
	}
}

// call calls the API beside the loop, and next in the loop.
func call[T any](ctx context.Context, c *conductor, api func(context.Context) T, next func(T)) {
	c.calls.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, callIn)
		defer cancel()
		answer := api(bounded)
		c.send(ctx, func() { next(answer) })
	})
}

// watch observes the Job's pods until the end of whole, and returns them.
func (c *conductor) watch(whole, working context.Context, job *batch.Job) cache.Store {
	pods := c.core.Pods(job.Namespace)
	selector := batch.JobNameLabel + "=" + job.Name
	send := func(o any, gone bool) {
		if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unknown.Obj
		}
		if pod, ok := o.(*core.Pod); ok {
			c.send(whole, func() { c.observe(working, pod, gone) })
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
	c.calls.Go(func() { informer.RunWithContext(whole) })
	return store
}

// wait reports whether the time passed before the end of ctx.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// follow looks at the Job until its end, and ends the turns without an outcome settleIn later.
func (c *conductor) follow(ctx context.Context, job *batch.Job) {
	for began := time.Now(); wait(ctx, jobEvery); {
		if why := c.jobEnd(ctx, job); why != "" {
			wait(ctx, settleIn)
			c.send(ctx, func() { c.endAll(why) })
			return
		}
		if time.Since(began) >= podsIn {
			c.send(ctx, func() {
				if !c.seen {
					call(ctx, c, func(ctx context.Context) string { return c.lastWarning(ctx, job) }, func(why string) {
						c.failed = fmt.Errorf("the Job %s makes no pods: %s", c.report.Job, why)
					})
				}
			})
		}
	}
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

// lastWarning returns the Job's last warning.
func (c *conductor) lastWarning(ctx context.Context, job *batch.Job) string {
	events, err := c.core.Events(job.Namespace).List(ctx, meta.ListOptions{FieldSelector: "involvedObject.name=" + job.Name + ",type=Warning"})
	if err != nil || len(events.Items) == 0 {
		return "see its events"
	}
	last := events.Items[len(events.Items)-1]
	return last.Reason + ": " + last.Message
}

// observe acts on a state of a pod.
func (c *conductor) observe(ctx context.Context, pod *core.Pod, gone bool) {
	index, err := strconv.Atoi(pod.Annotations[batch.JobCompletionIndexAnnotation])
	if err != nil || index < 0 || index >= len(c.turns) {
		return
	}
	c.seen = true
	t := &c.turns[index]
	if t.state >= reading {
		return
	}
	t.pod, t.waits = pod.Name, waiting(pod)
	switch {
	case pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed:
		t.state = reading
		call(ctx, c, func(ctx context.Context) outcome { return c.read(ctx, pod) }, func(o outcome) { c.end(index, o) })
	case gone:
		c.end(index, outcome{reason: "its pod was removed before its end"})
	case len(pod.Spec.SchedulingGates) > 0 && t.state == gated:
		c.enter(ctx, index, placed, startIn)
		call(ctx, c, func(ctx context.Context) error { return c.place(ctx, index, pod) }, func(err error) {
			if err != nil {
				c.end(index, outcome{reason: fmt.Sprintf("its pod could not be given the node: %v", err)})
			}
		})
	case pod.Status.Phase == core.PodRunning:
		if t.state != started {
			c.enter(ctx, index, started, c.options.duration+aroundLoad)
		}
		// The container runs, and the pod is not ready: the controller of nodes has lost the kubelet.
		if t.away.IsZero() && t.waits == "" && !podReady(pod) {
			call(ctx, c, func(ctx context.Context) time.Time { return c.away(ctx, index) }, func(since time.Time) {
				if since.IsZero() || !t.away.IsZero() || t.state != started {
					return // it answers, or this is known
				}
				t.away = since
				t.limit.Reset(time.Until(t.since.Add(c.options.duration + returnIn)))
			})
		}
	}
}

// enter changes the state of a turn, which ends if the state lasts longer than the limit.
func (c *conductor) enter(ctx context.Context, index int, s state, limit time.Duration) {
	t := &c.turns[index]
	if t.limit != nil {
		t.limit.Stop()
	}
	t.state, t.since = s, time.Now()
	t.limit = time.AfterFunc(limit, func() {
		c.send(ctx, func() {
			if t.state == s {
				c.overdue(ctx, index)
			}
		})
	})
}

// overdue ends a turn that takes too long, and removes its pod, so that the next one starts.
func (c *conductor) overdue(ctx context.Context, index int) {
	t := &c.turns[index]
	reason := fmt.Sprintf("no result after %v", time.Since(t.since).Round(time.Second))
	if t.state == placed {
		reason = fmt.Sprintf("its pod did not start within %v: %s", startIn, t.waits)
	}
	call(ctx, c, func(ctx context.Context) time.Time { return c.away(ctx, index) }, func(since time.Time) {
		if t.state >= reading {
			return
		}
		if t.away.IsZero() && t.state == started {
			t.away = since
		}
		c.end(index, outcome{reason: reason})
		call(ctx, c, func(ctx context.Context) error {
			return c.core.Pods(c.options.namespace).Delete(ctx, t.pod, meta.DeleteOptions{})
		}, func(error) {}) // or the Job's removal does
	})
}

// waiting returns why a container does not run yet; empty while running.
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

// away returns since when a node is not ready; zero if the node is, or cannot be read.
func (c *conductor) away(ctx context.Context, index int) time.Time {
	n, err := c.core.Nodes().Get(ctx, c.nodes[index], meta.GetOptions{})
	if err != nil {
		return time.Time{}
	}
	if ready, since := readiness(n); !ready {
		return since
	}
	return time.Time{}
}

// place gives a gated pod its node.
func (c *conductor) place(ctx context.Context, index int, pod *core.Pod) error {
	requirement := core.NodeSelectorRequirement{Key: meta.ObjectNameField, Operator: core.NodeSelectorOpIn, Values: []string{c.nodes[index]}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"schedulingGates": nil,
		"affinity": core.Affinity{NodeAffinity: &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{
			NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{requirement}}},
		}}},
	}})
	if err == nil {
		_, err = c.core.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, meta.PatchOptions{})
	}
	return err
}

// read returns the outcome of an ended pod, from its log.
func (c *conductor) read(ctx context.Context, pod *core.Pod) outcome {
	var log []byte
	stream, err := c.core.Pods(pod.Namespace).GetLogs(pod.Name, &core.PodLogOptions{TailLines: new(int64(10_000)), LimitBytes: new(int64(mostLog))}).Stream(ctx)
	if err == nil {
		defer stream.Close()
		log, err = io.ReadAll(io.LimitReader(stream, mostLog))
	}
	result, last := findResult(log)
	switch {
	case result != nil:
		return outcome{result: result}
	case err != nil:
		return outcome{reason: fmt.Sprintf("the log of its ended pod could not be read: %v", err)}
	}
	return outcome{reason: "no result: " + cmp.Or(pod.Status.Message, last, pod.Status.Reason, "its log is empty")}
}

// findResult finds a run's result in a log, among lines of standard error, and the
// last other line.
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

// end enters the outcome of a turn, the first one only.
func (c *conductor) end(index int, o outcome) {
	t := &c.turns[index]
	if t.state == done {
		return
	}
	t.state = done
	note := ""
	if !t.away.IsZero() {
		note = "its kubelet stopped answering at " + t.away.Format(time.TimeOnly)
	}
	c.report.add(c.nodes[index], o, note)
}

// endAll ends every turn without an outcome.
func (c *conductor) endAll(reason string) {
	for index := range c.turns {
		c.end(index, outcome{reason: reason})
	}
}

// remove removes the Job and waits for the end of its pods. Those that stay are reported.
func (c *conductor) remove(ctx context.Context, job *batch.Job, pods cache.Store) error {
	bounded, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	err := c.batch.Jobs(job.Namespace).Delete(bounded, job.Name, meta.DeleteOptions{PropagationPolicy: new(meta.DeletePropagationBackground)})
	if err != nil && !kubeerrors.IsNotFound(err) {
		return fmt.Errorf("remove the Job %s, which Kubernetes removes %v after its end: %w", c.report.Job, keepFor, err)
	}
	stuck := make(map[string]bool) // nodes without a kubelet, on which no pod ends
	for index, t := range c.turns {
		stuck[c.nodes[index]] = !t.away.IsZero()
	}
	limit := time.After(terminateIn + settleIn)
	for {
		c.report.LeftBehind = []string{}
		ends := false
		for _, o := range pods.List() {
			pod := o.(*core.Pod)
			c.report.LeftBehind = append(c.report.LeftBehind, pod.Name+" on "+pod.Spec.NodeName)
			ends = ends || !stuck[pod.Spec.NodeName]
		}
		if !ends {
			return nil
		}
		select {
		case <-c.steps: // a pod has changed
		case <-limit:
			return nil
		}
	}
}

// progress shows the progress on a terminal.
func (c *conductor) progress() {
	working := 0
	for _, t := range c.turns {
		if t.state != gated && t.state != done {
			working++
		}
	}
	c.line.Show(fmt.Sprintf("%d of %d nodes have ended, %d at work, %d failed", c.report.Finished, len(c.nodes), working, c.report.Finished-c.report.Passed))
}
