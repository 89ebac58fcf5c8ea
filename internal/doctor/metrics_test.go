// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestListRates: the rates are those of the first address with a runtime's metrics. Another
// program at such an address, as a Prometheus at CRI-O's port 9090, is no runtime without lists.
func TestListRates(t *testing.T) {
	t.Parallel()
	serve := func(metric string) string {
		var n atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %d\n", metric, 10+n.Add(3))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	other := serve(`prometheus_http_requests_total{code="200"}`)
	crio := serve(`container_runtime_crio_operations_total{operation="ListContainers"}`)
	rates, address := ListRates(other)(t.Context())
	if rates != nil || address != "" {
		t.Errorf("metrics of no runtime: rates %v at %q", rates, address)
	}
	rates, address = ListRates(other, crio)(t.Context())
	if rates["ListContainers"] != 60 || address != crio {
		t.Errorf("rates %v at %q, want 60 at %q", rates, address, crio)
	}
}
