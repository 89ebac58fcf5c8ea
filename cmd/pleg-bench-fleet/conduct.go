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
	"sync/atomic"
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
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// mostLog bounds the log read of each pod, in bytes. A result has some kilobytes.
const mostLog = 1 << 20

// Moments of a conductor.
const (
	callIn = 20 * time.Second
	// podEvery is how often the observed state of a pod is looked at, jobEvery how often the Job is
	// read; settleIn is how long after its end pods may report.
	podEvery = time.Second
	jobEvery = 5 * time.Second
	settleIn = 10 * time.Second
	// podsIn is when a Job without any pod has failed.
	podsIn = 20 * time.Second
)

// conductor runs a Job: it gives each pod its node, reads the results, and removes the Job.
//
// Each pod has a goroutine, which plays the turn of its node and hands the outcome to the goroutine
// in run.
type conductor struct {
	cluster
	options *runOptions
	// nodes are the names by completion index, ended those with an outcome, away those without a
	// kubelet. The goroutine in run owns ended, away and the report.
	nodes  []string
	ended  []bool
	away   map[string]bool
	report *LoadReport
	line   *cli.Line

	pods     cache.Store // the Job's pods, as observed
	outcomes chan outcome
	work     sync.WaitGroup
	begun    atomic.Int32 // turns
}

// outcome is the end of a turn: a result, or the reason for none. away is the time since which the
// kubelet does not answer, and zero if the kubelet answers.
type outcome struct {
	index  int
	result *bench.Result
	reason string
	away   time.Time
}

// run makes the Job and waits for its results. When ctx ends, so does the Job.
func (c *conductor) run(ctx context.Context, job *batch.Job) error {
	job, err := c.batch.Jobs(job.Namespace).Create(ctx, job, meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the Job: %w", err)
	}
	c.report.Job = job.Namespace + "/" + job.Name
	c.ended = make([]bool, len(c.nodes))
	c.outcomes = make(chan outcome)
	c.away = make(map[string]bool)
	whole, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer c.work.Wait()
	defer stop()
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	c.observe(whole, working, job)
	jobEnd := make(chan string, 1)
	noPods := make(chan error, 1)
	c.work.Go(func() {
		if why, err := c.follow(working, job); err != nil {
			noPods <- err
		} else {
			jobEnd <- why
		}
	})
	var failed error
	for failed == nil && c.report.Finished < len(c.nodes) {
		select {
		case <-ctx.Done():
			c.endAll("interrupted")
		case why := <-jobEnd:
			c.endAll(why)
		case failed = <-noPods:
		case o := <-c.outcomes:
			c.end(o)
		case <-time.After(time.Second):
		}
		ended := c.report.Finished
		atWork := max(0, int(c.begun.Load())-ended)
		bad := ended - c.report.Passed
		c.line.Show(fmt.Sprintf("%d of %d nodes have ended, %d at work, %d failed", ended, len(c.nodes), atWork, bad))
	}
	cancel() // the turns whose outcome nobody waits for
	c.line.Show("removing the Job")
	defer c.line.Show("")
	return errors.Join(failed, c.remove(whole, job))
}

// end enters the outcome of a turn, and ignores all but the turn's first.
func (c *conductor) end(o outcome) {
	if c.ended[o.index] {
		return
	}
	c.ended[o.index] = true
	if !o.away.IsZero() {
		since := o.away.Format(time.TimeOnly)
		o.reason = "its kubelet stopped answering at " + since + "; " + o.reason
		c.away[c.nodes[o.index]] = true
	}
	c.report.add(c.nodes[o.index], o.result, printable.Text(o.reason))
}

// endAll ends every turn without an outcome.
func (c *conductor) endAll(reason string) {
	for index := range c.nodes {
		c.end(outcome{index: index, reason: reason})
	}
}

// observe observes the Job's pods until the end of whole, and begins the turns of new ones until
// the end of working.
func (c *conductor) observe(whole, working context.Context, job *batch.Job) {
	pods := c.core.Pods(job.Namespace)
	selector := batch.JobNameLabel + "=" + job.Name
	var informer cache.Controller
	c.pods, informer = cache.NewInformerWithOptions(cache.InformerOptions{
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
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			pod := o.(*core.Pod)
			index, err := strconv.Atoi(pod.Annotations[batch.JobCompletionIndexAnnotation])
			if err != nil || index < 0 || index >= len(c.nodes) {
				return
			}
			c.begun.Add(1)
			c.work.Go(func() {
				o := outcome{index: index}
				o.result, o.reason = c.turn(working, pod, c.nodes[index])
				if o.result == nil {
					o.away = c.unready(working, c.nodes[index])
				}
				select {
				case c.outcomes <- o:
				case <-working.Done():
				}
			})
		}},
	})
	c.work.Go(func() { informer.RunWithContext(whole) })
}

// bounded calls the API within callIn.
func bounded[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callIn)
	defer cancel()
	return call(ctx)
}

// follow looks at the Job until its end, and returns the reason of the end, settleIn later. A Job
// without pods is an error.
func (c *conductor) follow(ctx context.Context, job *batch.Job) (why string, err error) {
	for began := time.Now(); bench.Sleep(ctx, jobEvery) == nil; {
		now, err := bounded(ctx, func(ctx context.Context) (*batch.Job, error) {
			return c.batch.Jobs(job.Namespace).Get(ctx, job.Name, meta.GetOptions{})
		})
		if kubeerrors.IsNotFound(err) {
			why = "somebody removed the Job"
		} else if err == nil { // after an error, the next turn of the loop asks again
			why = ending(now)
		}
		if why != "" {
			_ = bench.Sleep(ctx, settleIn)
			return why, nil
		}
		if c.begun.Load() == 0 && time.Since(began) >= podsIn {
			return "", fmt.Errorf("the Job %s makes no pods: %s", c.report.Job, c.lastWarning(ctx, job))
		}
	}
	return "interrupted", nil
}

// ending returns why a Job ended; empty before.
func ending(job *batch.Job) string {
	for _, condition := range job.Status.Conditions {
		final := condition.Type == batch.JobFailed || condition.Type == batch.JobComplete
		if final && condition.Status == core.ConditionTrue {
			reason := cmp.Or(condition.Reason, string(condition.Type))
			return fmt.Sprintf("the Job ended: %s %s", reason, condition.Message)
		}
	}
	return ""
}

// lastWarning returns the Job's last warning.
func (c *conductor) lastWarning(ctx context.Context, job *batch.Job) string {
	warnings := meta.ListOptions{FieldSelector: "involvedObject.name=" + job.Name + ",type=Warning"}
	events, err := bounded(ctx, func(ctx context.Context) (*core.EventList, error) {
		return c.core.Events(job.Namespace).List(ctx, warnings)
	})
	if err != nil || len(events.Items) == 0 {
		return "see its events"
	}
	last := events.Items[len(events.Items)-1]
	return last.Reason + ": " + last.Message
}

// turn gives a pod its node, and returns the result of its run, or the reason for none. turn
// removes a pod over its time limit, so the next pod starts.
func (c *conductor) turn(ctx context.Context, pod *core.Pod, node string) (result *bench.Result, reason string) {
	if err := c.place(ctx, pod, node); err != nil {
		return nil, fmt.Sprintf("its pod could not be given the node: %v", err)
	}
	var started time.Time
	limit := time.Now().Add(startIn)
	for time.Now().Before(limit) && bench.Sleep(ctx, podEvery) == nil {
		o, there, _ := c.pods.Get(pod)
		if !there {
			return nil, "its pod was removed before its end"
		}
		if o == pod {
			continue // nothing has changed
		}
		pod = o.(*core.Pod)
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
	if started.IsZero() {
		reason = fmt.Sprintf("its pod did not start within %v: %s", startIn, waiting(pod))
	} else {
		reason = fmt.Sprintf("no result after %v", time.Since(started).Round(time.Second))
	}
	_, _ = bounded(ctx, func(ctx context.Context) (any, error) { // or the Job's removal does
		return nil, c.core.Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{})
	})
	return nil, reason
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

// unready returns the time since which a node is not ready; zero for a ready node.
func (c *conductor) unready(ctx context.Context, node string) time.Time {
	n, err := bounded(ctx, func(ctx context.Context) (*core.Node, error) {
		return c.core.Nodes().Get(ctx, node, meta.GetOptions{})
	})
	if err != nil {
		return time.Time{}
	}
	if ready, since := readiness(n); !ready {
		return since
	}
	return time.Time{}
}

// place gives a gated pod its node.
func (c *conductor) place(ctx context.Context, pod *core.Pod, node string) error {
	named := core.NodeSelectorRequirement{
		Key:      meta.ObjectNameField,
		Operator: core.NodeSelectorOpIn,
		Values:   []string{node},
	}
	only := &core.NodeSelector{
		NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{named}}},
	}
	affinity := &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: only}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"schedulingGates": nil,
		"affinity":        core.Affinity{NodeAffinity: affinity},
	}})
	if err != nil {
		return err
	}
	pods := c.core.Pods(pod.Namespace)
	_, err = bounded(ctx, func(ctx context.Context) (*core.Pod, error) {
		return pods.Patch(ctx, pod.Name, types.MergePatchType, patch, meta.PatchOptions{})
	})
	return err
}

// read returns the result of an ended pod, from its log, or why there is none.
func (c *conductor) read(ctx context.Context, pod *core.Pod) (result *bench.Result, reason string) {
	log, err := bounded(ctx, func(ctx context.Context) ([]byte, error) {
		options := &core.PodLogOptions{
			TailLines:  new(int64(10_000)),
			LimitBytes: new(int64(mostLog)),
		}
		stream, err := c.core.Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer stream.Close()
		return io.ReadAll(io.LimitReader(stream, mostLog))
	})
	result, last := findResult(log)
	switch {
	case result != nil:
		return result, ""
	case err != nil:
		return nil, fmt.Sprintf("the log of its ended pod could not be read: %v", err)
	}
	why := cmp.Or(pod.Status.Message, last, pod.Status.Reason, "its log is empty")
	return nil, "no result: " + why
}

// findResult finds a run's result in a log, among lines of standard error, and the last other line
// that tells something: a refused runtime is told before the line about help.
func findResult(log []byte) (result *bench.Result, last string) {
	for len(log) > 0 {
		line, after, _ := bytes.Cut(log, []byte("\n"))
		if bytes.HasPrefix(line, []byte("{")) {
			found := new(bench.Result)
			decoder := json.NewDecoder(bytes.NewReader(log))
			if decoder.Decode(found) == nil && found.Schema == bench.Schema {
				result = found
				log = log[decoder.InputOffset():]
				continue
			}
		}
		if text := string(bytes.TrimSpace(line)); text != "" && text != cli.SeeHelp("pleg-bench run") {
			last = text[:min(len(text), 500)]
		}
		log = after
	}
	return result, last
}

// remove removes the Job and waits for the end of its pods, but of those on a node without a
// kubelet. Pods left are reported.
func (c *conductor) remove(ctx context.Context, job *batch.Job) error {
	withPods := meta.DeleteOptions{PropagationPolicy: new(meta.DeletePropagationBackground)}
	_, err := bounded(ctx, func(ctx context.Context) (any, error) {
		return nil, c.batch.Jobs(job.Namespace).Delete(ctx, job.Name, withPods)
	})
	if err != nil && !kubeerrors.IsNotFound(err) {
		return fmt.Errorf("remove the Job %s, which Kubernetes removes %v after its end: %w", c.report.Job, keepFor, err)
	}
	for limit := time.Now().Add(terminateIn + settleIn); ; _ = bench.Sleep(ctx, podEvery) {
		c.report.LeftBehind = []string{}
		ends := false
		for _, o := range c.pods.List() {
			pod := o.(*core.Pod)
			c.report.LeftBehind = append(c.report.LeftBehind, pod.Name+" on "+pod.Spec.NodeName)
			ends = ends || !c.away[pod.Spec.NodeName]
		}
		if !ends || time.Now().After(limit) {
			return nil
		}
	}
}
