// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance compares the fake runtime with the real runtimes: by a script of CRI calls,
// and the runtime's answers and events as text.
//
// # Model
//
// [Record] runs the script on any CRI runtime and returns a [Transcript]: for each step the outcome
// of every call, every event with the phases in its payload, in the order of arrival, and the lists
// and statuses afterwards. IDs, times and messages are left out: the rest is reliable for clients,
// and the same each time.
//
// The transcripts of the real runtimes are in testdata, a file for each runtime of package
// runtimes. A scenario of the node e2e tests records them anew on the real runtimes and fails after
// a change. A test of this package runs the script on the fake runtime with each profile, and fails
// on any difference outside the table testdata/differences.txt.
//
// # Concurrency
//
// Record drives a runtime from a goroutine, and reads its stream on another.
package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// A Step is an action of the script.
type Step struct {
	Name  string
	Lines []string
}

// A Transcript is a runtime's behaviour at each step.
type Transcript []Step

// String is the transcript as text, as in testdata.
func (t Transcript) String() string {
	var out strings.Builder
	for _, s := range t {
		fmt.Fprintf(&out, "# %s\n", s.Name)
		for _, line := range s.Lines {
			fmt.Fprintf(&out, "%s\n", line)
		}
	}
	return out.String()
}

// Parse reads the form of String.
func Parse(text string) (Transcript, error) {
	var t Transcript
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		name, isStep := strings.CutPrefix(line, "# ")
		switch {
		case isStep:
			t = append(t, Step{Name: name})
		case len(t) == 0:
			return nil, fmt.Errorf("conformance: the line %q is before the first step", line)
		default:
			last := &t[len(t)-1]
			last.Lines = append(last.Lines, line)
		}
	}
	return t, nil
}

// limit ends a hung script.
const limit = 10 * time.Minute

// A recording is Record at work. A single goroutine owns it.
type recording struct {
	*crikit.Client
	ctx context.Context
	// traits: without NewestFirst the containers of a payload are told by name; with RemovalRaces
	// such a payload's removed container, without LateStops the lateness of a STOPPED is left out.
	traits runtimes.Traits
	quiet  time.Duration
	seen   int // events of earlier steps
	// removes is the name of a container removed while running.
	removes string
	names   map[string]string // by ID
	steps   Transcript

	mu  sync.Mutex // owns raw
	raw []*runtimeapi.ContainerEventResponse
}

// heard adds an event.
func (r *recording) heard(e *runtimeapi.ContainerEventResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, e)
}

// events returns the events so far.
func (r *recording) events() []*runtimeapi.ContainerEventResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.raw)
}

// Record runs the script on a runtime with these traits. A step is over when the stream is silent
// for the time quiet, after a long step for half as long as the step took. Record leaves nothing on
// the runtime in any case, unless the runtime does not let go.
func Record(
	ctx context.Context,
	client *crikit.Client,
	traits runtimes.Traits,
	quiet time.Duration,
) (Transcript, error) {
	r := &recording{
		Client: client,
		ctx:    ctx,
		traits: traits,
		quiet:  quiet,
		names:  map[string]string{},
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the script did not end within %v", limit))
	defer cancel()
	r.ctx = ctx
	defer client.Follow(ctx, r.heard)()
	defer func() { _ = client.RemoveAll(context.WithoutCancel(ctx)) }()
	if err := r.settle(time.Now()); err != nil { // a subscription cannot be seen
		return nil, err
	}
	for _, s := range script() {
		r.steps = append(r.steps, Step{Name: s.name})
		began := time.Now()
		s.run(r)
		if err := r.settle(began); err != nil {
			return r.steps, fmt.Errorf("conformance: in the step %q: %w", s.name, err)
		}
		r.removes = s.removes
		r.tellEvents(s.anyOrder)
		if err := r.tellLists(); err != nil {
			return r.steps, err
		}
	}
	return r.steps, ctx.Err()
}

// settle waits until the stream is quiet after a step that began at the given time. Events of slow
// calls are slow too.
func (r *recording) settle(began time.Time) error {
	quiet := max(r.quiet, time.Since(began)/2)
	for count := -1; count != len(r.events()); {
		count = len(r.events())
		select {
		case <-time.After(quiet):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
	return nil
}

func (r *recording) line(format string, args ...any) {
	last := &r.steps[len(r.steps)-1]
	last.Lines = append(last.Lines, fmt.Sprintf(format, args...))
}

// called tells the outcome of a call.
func (r *recording) called(what string, err error) {
	r.line("%s: %v", what, crikit.Code(err))
}

// name gives an ID a name, unless already named: then the runtime has answered with an existing
// item.
func (r *recording) name(id, name string) {
	switch old, known := r.names[id]; {
	case id == "":
	case known:
		r.line("%s is %s", name, old)
	default:
		r.names[id] = name
	}
}

func (r *recording) nameOf(id string) string {
	if name := r.names[id]; name != "" {
		return name
	}
	return "stranger"
}

// lag is the delay from which an event counts as later than its container's end.
const lag = 5 * time.Millisecond

// tellEvents tells the events since the step before. Where the order of several containers is the
// runtime's mood, the events are sorted, and the payloads left out.
func (r *recording) tellEvents(anyOrder bool) {
	events := r.events()
	var lines []string
	for _, e := range events[r.seen:] {
		kind := strings.TrimSuffix(strings.TrimPrefix(e.ContainerEventType.String(), "CONTAINER_"), "_EVENT")
		var line strings.Builder
		fmt.Fprintf(&line, "event %s %s", kind, r.nameOf(e.ContainerId))
		racing := r.traits.RemovalRaces && kind == "STOPPED" && r.removes != "" &&
			r.nameOf(e.ContainerId) == r.removes
		switch {
		case racing:
			line.WriteString(" {beside the removal}")
		case !anyOrder:
			line.WriteString(" {" + r.payload(e) + "}")
		}
		for _, s := range e.ContainersStatuses {
			if s.Id == e.ContainerId && kind == "STOPPED" && !racing {
				fmt.Fprintf(&line, " exit code %d %s", s.ExitCode, s.Reason)
				if r.traits.LateStops && s.FinishedAt > 0 && time.Duration(e.CreatedAt-s.FinishedAt) >= lag {
					line.WriteString(", after finished_at")
				}
			}
		}
		if e.CreatedAt <= 0 {
			line.WriteString(", without a stamp")
		}
		lines = append(lines, line.String())
	}
	r.seen = len(events)
	if anyOrder {
		slices.Sort(lines)
	}
	for _, line := range lines {
		r.line("%s", line)
	}
}

// payload is the sandbox's phase and those of the containers.
func (r *recording) payload(e *runtimeapi.ContainerEventResponse) string {
	words := []string{"no sandbox"}
	if s := e.PodSandboxStatus; s != nil {
		words[0] = r.nameOf(s.Id) + "=" + strings.TrimPrefix(s.State.String(), "SANDBOX_")
		if s.CreatedAt <= 0 {
			words[0] += " made before 1970"
		}
	}
	for _, s := range e.ContainersStatuses {
		words = append(words, r.nameOf(s.Id)+"="+strings.TrimPrefix(s.State.String(), "CONTAINER_"))
	}
	if !r.traits.NewestFirst {
		slices.Sort(words[1:])
	}
	return strings.Join(words, " ")
}

// tellLists writes the lists' content, by name.
func (r *recording) tellLists() error {
	selector := map[string]string{load.LabelPodNamespace: r.Namespace}
	sandboxes, err := r.ListPodSandbox(
		r.ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}},
	)
	if err != nil {
		return fmt.Errorf("conformance: list sandboxes: %w", err)
	}
	containers, err := r.ListContainers(
		r.ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: selector}},
	)
	if err != nil {
		return fmt.Errorf("conformance: list containers: %w", err)
	}
	var words []string
	for _, s := range sandboxes.Items {
		words = append(words, r.nameOf(s.Id)+"="+strings.TrimPrefix(s.State.String(), "SANDBOX_"))
	}
	for _, c := range containers.Containers {
		words = append(words, r.nameOf(c.Id)+"="+strings.TrimPrefix(c.State.String(), "CONTAINER_"))
	}
	slices.Sort(words)
	r.line("lists: %s", strings.Join(words, " "))
	return nil
}
