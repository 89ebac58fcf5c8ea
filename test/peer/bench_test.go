// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// TestMain makes this test binary the runtime on request.
func TestMain(m *testing.M) {
	if os.Getenv(agent.Serve) == "" {
		klog.LogToStderr(false) // a kubelet logs nothing here
		klog.SetOutput(io.Discard)
		os.Exit(m.Run())
	}
	if err := server.Serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var drivers = map[string]func() agent.Driver{
	agent.Ours:      newOurs,
	agent.Generated: func() agent.Driver { return &floor{decode: true} },
	agent.Floor:     func() agent.Driver { return &floor{} },
}

func BenchmarkPeer(b *testing.B) {
	for name, driver := range drivers {
		agent.Bench(b, name, driver)
	}
}

// TestRowsAreMeasured runs every row small: each reports its measures, and no driver loses a change
// for good.
func TestRowsAreMeasured(t *testing.T) {
	for name, value := range map[string]string{
		"test.benchtime": "1x", "shrink": "100", "idle": "50ms", "window": "500ms",
	} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	measures := map[string]string{ // by the beginning of a row's name, one that must be above 0
		"relist": "cpu-ns/op", "streaming": "allocs/op", "changed": "allocs/op", "intake": "cpu-ns/op",
		"first": "ns/op", "newer": "p50-ns", "latency": "p99-ns", "memory": "status-B/container",
		"idle": "ns/op", "churn": "changes/s",
	}
	for _, row := range agent.Rows() {
		for _, name := range row.Agents {
			driver := drivers[name]
			if driver == nil || strings.HasPrefix(row.Name, "churn/pods=1000/") {
				continue
			}
			t.Run(row.Name+"/"+name, func(t *testing.T) {
				kind, _, _ := strings.Cut(row.Name, "/")
				r := testing.Benchmark(func(b *testing.B) { row.Run(b, driver) })
				if r.N != 1 || r.Extra[measures[kind]] <= 0 || r.Extra["lost"] != 0 {
					t.Errorf("measured %v", r.Extra)
				}
			})
		}
	}
}

// TestItemsAreAsLongAsOnRealNodes checks that small items do not make the comparison cheap.
func TestItemsAreAsLongAsOnRealNodes(t *testing.T) {
	for name, pods := range map[string]int{"populated": 1, "made by the agent": 0} {
		r, err := agent.StartRuntime(agent.Config{Pods: pods, Containers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer r.End()
		c, err := newCalls(r.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.client.Close()
		if pods == 0 {
			if _, err := c.Make("churn-0001-0", "0001-0", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		sandboxes, err := c.client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		containers, err := c.client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for item, size := range map[string][2]int{
			"sandbox": {proto.Size(sandboxes), 1100}, "container": {proto.Size(containers), 1455},
		} {
			if got, want := size[0], size[1]; got < want*7/8 || got > want*9/8 {
				t.Errorf("%s: the %s takes %d bytes in a list, want about %d", name, item, got, want)
			}
		}
	}
}
