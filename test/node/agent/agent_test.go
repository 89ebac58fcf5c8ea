// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

func TestMain(m *testing.M) {
	// A daemon of component-base's metrics lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

const patience = 30 * time.Second

// start runs a fake runtime with an agent, and returns a client of each.
func start(t *testing.T, change func(*Config)) (*crikit.Client, *Client) {
	t.Helper()
	kit := crikit.OnFake(t, "containerd-2", 1)
	config := Config{Endpoint: kit.Endpoint, Truth: kit.Endpoint, Namespace: kit.Namespace, WorkerPeriod: 20 * time.Millisecond}
	if change != nil {
		change(&config)
	}
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ours, its := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := a.Run(ctx, its); err != nil {
			t.Errorf("the agent: %v", err)
		}
	})
	client := NewClient(ours)
	t.Cleanup(func() {
		if violations, err := client.Violations(context.Background()); err != nil || len(violations) > 0 {
			t.Errorf("violations %q, %v", violations, err)
		}
		client.Close()
		cancel()
		all.Wait()
	})
	return kit, client
}

func eventually(t *testing.T, holds func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// converge waits until the agent's cache equals the runtime.
func converge(t *testing.T, kit *crikit.Client, client *Client) {
	t.Helper()
	eventually(t, func() error {
		truth, err := kit.Truth(t.Context())
		if err != nil {
			return err
		}
		held, err := client.Cache(t.Context())
		if err != nil {
			return err
		}
		if _, lines := bench.Compare(held, truth, 10); len(lines) > 0 {
			return fmt.Errorf("differences: %q", lines)
		}
		return nil
	})
}

func TestAgentFollowsTheRuntime(t *testing.T) {
	for _, generic := range []bool{false, true} {
		t.Run(fmt.Sprintf("generic=%v", generic), func(t *testing.T) {
			kit, client := start(t, func(c *Config) { c.Generic, c.RelistBase = generic, 20*time.Millisecond })
			ctx := t.Context()
			pod, err := kit.RunPod(ctx, "uid", "pod", 0)
			if err != nil {
				t.Fatal(err)
			}
			id, err := kit.CreateAndStart(ctx, pod, crikit.Spec{Name: "c", Args: []string{"sleep", "1h"}})
			if err != nil {
				t.Fatal(err)
			}
			converge(t, kit, client)
			newer, err := client.Newer(ctx, "uid")
			if err != nil || newer.Err != "" || bench.Find([]bench.Pod{newer.Pod}, "uid", id).State != bench.Running {
				t.Errorf("newer %+v, %v", newer, err)
			}
			if err := kit.Stop(ctx, id, 0); err != nil {
				t.Fatal(err)
			}
			converge(t, kit, client)
			if err := kit.RemoveAll(ctx); err != nil {
				t.Fatal(err)
			}
			converge(t, kit, client)
			eventually(t, func() error {
				events, err := client.Events(ctx)
				if err != nil {
					return err
				}
				told := map[string]int{}
				for _, e := range events {
					if e.ID == id {
						told[string(e.Type)]++
					}
				}
				if told["ContainerDied"] != 1 || told["ContainerRemoved"] != 1 {
					return fmt.Errorf("told %v", told)
				}
				return nil
			})
			eventually(t, func() error {
				stats, err := client.Stats(ctx)
				if err == nil && (stats.Workers.Checked == 0 || stats.Workers.Workers != 0) {
					err = fmt.Errorf("workers %+v: want some answers compared, and no worker for a pod that is gone", stats.Workers)
				}
				return err
			})
			stats, err := client.Stats(ctx)
			if err != nil || (stats.State == pleg.StreamIdle.String()) != generic {
				t.Errorf("state %s, %v, with generic %v", stats.State, err, generic)
			}
			metrics, err := client.Metrics(ctx)
			if err != nil || (metrics["kubelet_evented_pleg_connection_latency_seconds_count"] > 0) == generic {
				t.Errorf("metrics %v, %v", metrics, err)
			}
			if err := client.Health(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{}, {Endpoint: "unix:///x", Truth: "unix:///x"}, {Endpoint: "unix:///x", Config: pleg.Config[cri.PodStatus]{RelistBase: -1}}, {Endpoint: "tcp://x"}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) was not refused", c)
		}
	}
}
