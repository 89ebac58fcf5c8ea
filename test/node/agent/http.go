// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	basemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/view"
)

// A Newer is the answer of GetNewerThan asked for the present moment.
type Newer struct {
	Pod  view.Pod      `json:"pod"`
	Took time.Duration `json:"took"` // nanoseconds
	Err  string        `json:"err,omitempty"`
}

func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathCache, func(w http.ResponseWriter, _ *http.Request) { answer(w, a.view()) })
	mux.HandleFunc("GET "+PathStats, func(w http.ResponseWriter, _ *http.Request) { answer(w, a.stats()) })
	mux.HandleFunc("GET "+PathViolations, func(w http.ResponseWriter, _ *http.Request) {
		violations, _, _ := a.observer.said()
		answer(w, violations)
	})
	mux.HandleFunc("GET "+PathEvents, func(w http.ResponseWriter, r *http.Request) {
		since, err := strconv.Atoi(r.FormValue("since"))
		if err != nil {
			refuse(w, "since", err)
			return
		}
		answer(w, a.observer.since(since))
	})
	mux.HandleFunc("GET "+PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		if err := a.generator.Health(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET "+PathNewer, func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		status, err := a.cache.GetNewerThan(r.Context(), cache.UID(r.FormValue("pod")), began)
		newer := Newer{Pod: viewOf(status), Took: time.Since(began)}
		if err != nil {
			newer.Err = err.Error()
		}
		answer(w, newer)
	})
	mux.HandleFunc("POST "+PathClock, func(w http.ResponseWriter, r *http.Request) {
		step, err := time.ParseDuration(r.FormValue("step"))
		if err != nil {
			refuse(w, "step", err)
			return
		}
		a.step.Store(int64(step))
	})
	mux.HandleFunc("POST "+PathConsumer, func(w http.ResponseWriter, r *http.Request) {
		read, err := strconv.ParseBool(r.FormValue("read"))
		if err != nil {
			refuse(w, "read", err)
			return
		}
		a.consumer.turn(read)
	})
	mux.HandleFunc("POST "+PathWorkers, func(http.ResponseWriter, *http.Request) { a.workers.reset() })
	mux.Handle("GET "+PathMetrics, basemetrics.HandlerFor(a.registry, basemetrics.HandlerOpts{}))
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, name string, err error) {
	http.Error(w, fmt.Sprintf("%s: %v", name, err), http.StatusBadRequest)
}

func (a *Agent) stats() Stats {
	g := a.generator.Stats()
	_, violations, events := a.observer.said()
	return Stats{
		Generator: g, State: g.State.String(), Calls: a.client.Stats().Calls, Workers: a.workers.snapshot(),
		Events: events, Violations: violations, Goroutines: runtime.NumGoroutine(),
	}
}

// view is the cache in the form that tests compare.
func (a *Agent) view() view.Node {
	node := view.Node{}
	for _, uid := range a.cache.UIDs() {
		status, _ := a.cache.Get(uid)
		if a.config.Namespace != "" && status.Namespace() != a.config.Namespace {
			continue
		}
		node[string(uid)] = viewOf(status)
	}
	return node
}

func viewOf(status *cri.PodStatus) view.Pod {
	pod := view.Pod{Sandboxes: map[string]string{}, Containers: map[string]view.Container{}}
	for _, s := range status.Sandboxes() {
		pod.Sandboxes[s.ID] = sandboxStates[s.Phase]
	}
	for _, c := range status.Containers() {
		shown := view.Container{Name: c.Name, State: containerStates[c.Phase]}
		if c.Phase == pleg.PhaseExited {
			shown.ExitCode, shown.Reason = c.ExitCode, c.Reason
		}
		pod.Containers[c.ID] = shown
	}
	return pod
}

var sandboxStates = map[pleg.Phase]string{
	pleg.PhaseRunning: "SANDBOX_READY",
	pleg.PhaseExited:  "SANDBOX_NOTREADY",
}

var containerStates = map[pleg.Phase]string{
	pleg.PhaseUnknown: "CONTAINER_UNKNOWN",
	pleg.PhaseCreated: "CONTAINER_CREATED",
	pleg.PhaseRunning: "CONTAINER_RUNNING",
	pleg.PhaseExited:  "CONTAINER_EXITED",
}
