// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// mostMetrics bounds the read metrics, in bytes.
const mostMetrics = 16 << 20

// ListRates returns a function for [Options.Metrics]. The function reads the first address with a
// runtime's metrics twice, some seconds apart.
func ListRates(addresses ...string) func(context.Context) (map[string]float64, string) {
	return func(ctx context.Context) (map[string]float64, string) {
		for _, address := range addresses {
			first, ok := scrape(ctx, address)
			if !ok || !hasLists(first) {
				continue
			}
			const between = 3 * time.Second
			if bench.Sleep(ctx, between) != nil {
				return nil, ""
			}
			second, ok := scrape(ctx, address)
			if !ok {
				continue
			}
			rates := make(map[string]float64)
			for name, n := range second {
				if method := listIn(name); method != "" {
					rates[method] += (n - first[name]) / between.Minutes()
				}
			}
			return rates, address
		}
		return nil, ""
	}
}

// hasLists reports whether metrics are those of a runtime: an examination has listed before.
func hasLists(metrics map[string]float64) bool {
	for name := range metrics {
		if listIn(name) != "" {
			return true
		}
	}
	return false
}

// listIn is the list counted by a metric of containerd or CRI-O, empty for none.
func listIn(metric string) string {
	if !strings.HasPrefix(metric, "grpc_server_handled_total{") &&
		!strings.HasPrefix(metric, "container_runtime_crio_operations_total{") {
		return ""
	}
	for _, method := range []string{"ListContainers", "ListPodSandbox", "StreamContainers", "StreamPodSandboxes"} {
		if strings.Contains(metric, `="`+method+`"`) {
			return method
		}
	}
	return ""
}

// scrape reads metrics within a second.
func scrape(ctx context.Context, address string) (map[string]float64, bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostMetrics))
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil, false
	}
	return bench.Scrape(text), true
}
