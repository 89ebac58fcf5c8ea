// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Metrics of [Service.Version]; the slash is followed by a reason.
const (
	MetricVersionsServed    = "versions_served"
	MetricVersionsForwarded = "versions_forwarded/"
)

// Reasons to ask the runtime for its version.
const (
	reasonUntrusted = "untrusted" // no stream is on a connection, or the generator says so
	reasonUnasked   = "unasked"   // not over this connection, or not for this version of the API
	reasonStale     = "stale"     // the last answer is too old
)

// versionMaxAge is how long an answer is valid, the same as for the kubelet's answer on the API's
// version. During a refresh by some caller, the answer stays valid for all others up to the age
// limit of answers from memory: the syncs of many pods come together.
const versionMaxAge = time.Minute

// connection is the connection of the event stream, as known by the service.
type connection struct {
	number  uint64 // grows whenever a stream is established or ends
	streams int    // established streams; above 0, the runtime is at the other end of a connection

	version    *runtimeapi.VersionResponse // the answer, immutable, over connection number
	api        string                      // the version of the API in the request
	asked      time.Time
	refreshing bool // a refresh of a too old answer is under way
}

// established notes a stream on a connection (by 1), or its end (by -1). Earlier answers may be
// from another runtime than the present.
func (c *connection) established(by int) {
	c.number++
	c.streams += by
	c.version, c.refreshing = nil, false
}

// cached returns the answer that the runtime would give, or the reason to ask the runtime.
func (c *connection) cached(api string, trusted bool, now time.Time, maxAge time.Duration) (*runtimeapi.VersionResponse, string) {
	switch {
	case !trusted || c.streams == 0:
		return nil, reasonUntrusted
	case c.version == nil || c.api != api:
		return nil, reasonUnasked
	case now.Sub(c.asked) >= min(versionMaxAge, maxAge) && (!c.refreshing || now.Sub(c.asked) >= maxAge):
		c.refreshing = true
		return nil, reasonStale
	}
	return c.version, ""
}

// Version returns the runtime's version: from memory, if the runtime was asked within the last
// minute (up to the age limit, during a refresh) over the connection of the generator's event
// stream. A kubelet without an API server asks once for every sync of a pod. Version is nobody's
// health check of the runtime; Status is.
func (s *Service) Version(ctx context.Context, api string) (*runtimeapi.VersionResponse, error) {
	s.mu.Lock()
	trusted := s.trusted
	s.mu.Unlock()
	trust := trusted != nil && trusted() // takes a lock of its own
	s.mu.Lock()
	began := time.Now()
	answer, reason := s.connection.cached(api, trust, began, s.maxAge)
	at := s.connection.number
	s.mu.Unlock()
	if reason == "" {
		s.count(MetricVersionsServed, 1)
		return answer, nil
	}
	s.count(MetricVersionsForwarded+reason, 1)
	answer, err := s.RuntimeService.Version(ctx, api)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := &s.connection; c.number == at {
		c.refreshing = false
		if err == nil {
			c.version, c.api, c.asked = answer, api, began
		}
	}
	return answer, err
}
