// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeproc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Report is the control server's answer.
type Report struct {
	// Changes are those of the history from the requested number on; Next is the number of the next
	// change.
	Changes []bench.Change `json:"changes"`
	Next    uint64         `json:"next"`
	// Dropped is the number of requested changes that the history no longer has.
	Dropped uint64 `json:"dropped"`
	// Stats are the runtime's counters.
	Stats fakeruntime.Stats `json:"stats"`
	// CPUSeconds is the process's CPU time, Now a bench.Stamp of the report.
	CPUSeconds float64 `json:"cpuSeconds"`
	Now        int64   `json:"now"`
}

type control struct{ rt *fakeruntime.Runtime }

func (c control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", c.report)
	mux.HandleFunc("POST /restart", c.restart)
	mux.HandleFunc("POST /faults", c.faults)
	return mux
}

// states maps the runtime's states to those of a run. Other states mean nothing.
var states = map[fakeruntime.State]bench.State{
	fakeruntime.StateCreated:  bench.Created,
	fakeruntime.StateRunning:  bench.Running,
	fakeruntime.StateReady:    bench.Running,
	fakeruntime.StateExited:   bench.Exited,
	fakeruntime.StateNotReady: bench.Exited,
	fakeruntime.StateUnknown:  bench.Unknown,
	fakeruntime.StateRemoved:  bench.Removed,
}

func (c control) report(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.FormValue("since"), 10, 64)
	if err != nil {
		http.Error(w, "since must be a number", http.StatusBadRequest)
		return
	}
	history, next := c.rt.History(since)
	report := Report{Next: next, Stats: c.rt.Stats(), CPUSeconds: bench.OwnUsage().CPUSeconds, Now: bench.Now(), Changes: make([]bench.Change, 0, len(history))}
	report.Dropped = next - since - uint64(len(history))
	for _, h := range history {
		ch := bench.Change{Pod: h.PodUID, ID: h.ContainerID, State: states[h.New], At: bench.Stamp(h.Time), Told: h.Event == fakeruntime.Emitted}
		if h.ContainerID == "" {
			ch.ID, ch.Sandbox = h.SandboxID, true
		}
		report.Changes = append(report.Changes, ch)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report)
}

func (c control) restart(w http.ResponseWriter, r *http.Request) {
	down, err := time.ParseDuration(r.FormValue("down"))
	if err != nil {
		http.Error(w, "down must be a duration", http.StatusBadRequest)
		return
	}
	initializing, err := time.ParseDuration(r.FormValue("initializing"))
	if err != nil {
		http.Error(w, "initializing must be a duration", http.StatusBadRequest)
		return
	}
	c.rt.Restart(down, initializing)
}

func (c control) faults(w http.ResponseWriter, r *http.Request) {
	var f fakeruntime.Faults
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := c.rt.SetFaults(f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// Control is the client of a fake runtime's control server.
type Control struct{ client http.Client }

// NewControl returns a client of the control server on the socket, without making a call.
func NewControl(path string) *Control {
	return &Control{client: http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}},
	}}
}

// Close closes idle connections.
func (c *Control) Close() { c.client.CloseIdleConnections() }

// Report asks for the changes from since on, and the counters.
func (c *Control) Report(ctx context.Context, since uint64) (Report, error) {
	body, err := c.do(ctx, http.MethodGet, "/report?since="+strconv.FormatUint(since, 10), nil)
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return Report{}, fmt.Errorf("fake: control report: %w", err)
	}
	return r, nil
}

// Restart restarts the runtime in place: down, then initializing, for the given times.
func (c *Control) Restart(ctx context.Context, down, initializing time.Duration) error {
	q := url.Values{"down": {down.String()}, "initializing": {initializing.String()}}
	_, err := c.do(ctx, http.MethodPost, "/restart?"+q.Encode(), nil)
	return err
}

// SetFaults replaces the faults in force.
func (c *Control) SetFaults(ctx context.Context, f fakeruntime.Faults) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("fake: control faults: %w", err)
	}
	_, err = c.do(ctx, http.MethodPost, "/faults", body)
	return err
}

func (c *Control) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://fake"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("fake: control: %w", err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fake: control: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	if err != nil {
		return nil, fmt.Errorf("fake: control %s: %w", path, err)
	}
	return answer, nil
}
