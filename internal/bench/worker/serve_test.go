// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/gob"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// serveRuntime serves a fake runtime on a unix socket.
func serveRuntime(t *testing.T) (*fakeruntime.Runtime, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := fakeruntime.New(fakeruntime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cri")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		rt.Close()
		_ = os.RemoveAll(dir)
	})
	return rt, path
}

// dialogue is a worker in this process and its answers so far.
type dialogue struct {
	t          *testing.T
	orders     *gob.Encoder
	answers    *gob.Decoder
	deliveries []bench.Delivery
}

func converse(t *testing.T) *dialogue {
	t.Helper()
	orderR, orderW := io.Pipe()
	answerR, answerW := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(context.Background(), orderR, answerW)
		answerW.Close()
	}()
	t.Cleanup(func() {
		orderW.Close()
		_, _ = io.Copy(io.Discard, answerR)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &dialogue{t: t, orders: gob.NewEncoder(orderW), answers: gob.NewDecoder(answerR)}
}

func (d *dialogue) order(o order) {
	d.t.Helper()
	if err := d.orders.Encode(o); err != nil {
		d.t.Fatal(err)
	}
}

// await reads answers until a wanted answer.
func (d *dialogue) await(wanted func(answer) bool) answer {
	d.t.Helper()
	for {
		var a answer
		if err := d.answers.Decode(&a); err != nil {
			d.t.Fatalf("the worker ended: %v", err)
		}
		d.deliveries = append(d.deliveries, a.Deliveries...)
		if wanted(a) {
			return a
		}
		if a.Failed != "" {
			d.t.Fatal(a.Failed)
		}
	}
}

func TestServe(t *testing.T) {
	for _, mode := range []string{Evented, Generic} {
		t.Run(mode, func(t *testing.T) {
			rt, path := serveRuntime(t)
			d := converse(t)
			d.order(order{Config: &Config{Endpoint: path, Mode: mode, Seed: 1, Tail: true, MetricsAddr: "127.0.0.1:0"}})
			hello := d.await(func(a answer) bool { return a.Hello != nil }).Hello
			if hello.RuntimeName != "containerd" {
				t.Errorf("hello from %q", hello.RuntimeName)
			}

			sandboxID, err := rt.AddPod(fakeruntime.PodSpec{UID: "p"})
			if err != nil {
				t.Fatal(err)
			}
			id, err := rt.AddContainer(sandboxID, fakeruntime.ContainerSpec{})
			if err != nil {
				t.Fatal(err)
			}
			if err := rt.Start(id); err != nil {
				t.Fatal(err)
			}
			d.await(func(answer) bool {
				for _, e := range d.deliveries {
					if e.ID == id && e.State == bench.Running && e.Pod == "p" && e.At > 0 {
						return true
					}
				}
				return false
			})

			// A pod worker knows of a container unknown to the runtime: its read must count as stale.
			d.order(order{Facts: []load.Fact{{Pod: "p", ID: id, State: bench.Running}, {Pod: "p", ID: "nobody", State: bench.Running}}})
			rate := 200.0
			d.order(order{Probe: &rate})
			report := d.await(func(a answer) bool {
				if a.Progress != nil {
					d.order(order{Report: true})
				}
				return a.Report != nil && len(a.Report.Waits) > 0
			}).Report
			if report.StaleReads != 1 || len(report.Complaints) != 1 || !strings.Contains(report.Complaints[0], "nobody") {
				t.Errorf("%d stale reads %q, want the one of a container that is not there", report.StaleReads, report.Complaints)
			}
			if report.Calls["ListContainers"]+report.Calls["StreamContainers"] == 0 || report.Usage.MaxRSS == 0 {
				t.Errorf("calls %v, usage %+v", report.Calls, report.Usage)
			}

			d.order(order{Snapshot: true})
			snapshot := d.await(func(a answer) bool { return a.Snapshot != nil }).Snapshot
			if len(snapshot.Pods) != 1 || len(snapshot.Pods[0].Items) != 2 {
				t.Errorf("snapshot %+v, want one pod with a sandbox and a container", snapshot.Pods)
			}

			resp, err := http.Get("http://" + hello.MetricsAddr + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			if err != nil || !strings.Contains(string(body), "kube_pod_missed_events") || !strings.Contains(string(body), `kubelet_running_containers{container_state="running"} 1`) {
				t.Errorf("metrics (%v):\n%s", err, body)
			}
		})
	}
}

func TestServeFails(t *testing.T) {
	_, path := serveRuntime(t)
	for want, config := range map[string]Config{
		"there is no socket": {Endpoint: path + "x", Mode: Evented},
		"mode":               {Endpoint: path, Mode: "psychic"},
		"cannot serve":       {Endpoint: path, Mode: Generic, MetricsAddr: "not an address"},
		"RelistBase":         {Endpoint: path, Mode: Generic, RelistBase: -1},
	} {
		d := converse(t)
		d.order(order{Config: &config})
		var a answer
		if err := d.answers.Decode(&a); err != nil || !strings.Contains(a.Failed, want) {
			t.Errorf("answer %+v (%v), want a failure that says %q", a, err, want)
		}
	}
}
