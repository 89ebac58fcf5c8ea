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
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// A Newer is the answer of GetNewerThan asked for the present moment.
type Newer struct {
	Pod  bench.Pod     `json:"pod"`
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
		uid := cache.UID(r.FormValue("pod"))
		status, err := a.cache.GetNewerThan(r.Context(), uid, began)
		newer := Newer{Pod: show(uid, status), Took: time.Since(began)}
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
func (a *Agent) view() []bench.Pod {
	pods := []bench.Pod{}
	for _, uid := range a.cache.UIDs() {
		status, _ := a.cache.Get(uid)
		if a.config.Namespace != "" && status.Namespace() != a.config.Namespace {
			continue
		}
		pods = append(pods, show(uid, status))
	}
	return pods
}

// show leaves out what crikit's Truth does: times and addresses, and of what has not exited all but its state.
func show(uid cache.UID, status *cri.PodStatus) bench.Pod {
	pod := worker.Show(uid, status, nil)
	pod.IPs = nil
	for i, item := range pod.Items {
		item.StartedAt, item.FinishedAt = 0, 0
		if item.State != bench.Exited {
			item.ExitCode, item.Reason = 0, ""
		}
		pod.Items[i] = item
	}
	return pod
}
