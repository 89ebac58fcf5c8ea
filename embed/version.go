// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Metrics that a [Service] reports of Version; what follows the slash is a reason.
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

// versionMaxAge is for how long an answer is good: as the kubelet does for the API's. While somebody
// is asking again, it is for as long again for everybody else: the syncs of many pods come
// together.
const versionMaxAge = time.Minute

// connection is what the service knows of the connection that the stream of events is on.
type connection struct {
	number  uint64 // grows whenever a stream is established or ends
	streams int    // that are established: the runtime is at the other end of a connection now

	version    *runtimeapi.VersionResponse // the answer, immutable, that was given over connection number
	api        string                      // the version of the API that was asked for
	asked      time.Time
	refreshing bool // somebody is asking again, because the answer is too old
}

// established notes that a stream is on a connection (by 1), or has ended (by -1). What was
// answered before that may have come from another runtime than the one that answers now.
func (c *connection) established(by int) {
	c.number++
	c.streams += by
	c.version, c.refreshing = nil, false
}

// cached returns the answer that the runtime would give, or why the caller has to ask it.
func (c *connection) cached(api string, trusted bool, now time.Time) (*runtimeapi.VersionResponse, string) {
	switch {
	case !trusted || c.streams == 0:
		return nil, reasonUntrusted
	case c.version == nil || c.api != api:
		return nil, reasonUnasked
	case now.Sub(c.asked) >= versionMaxAge && (!c.refreshing || now.Sub(c.asked) >= 2*versionMaxAge):
		c.refreshing = true
		return nil, reasonStale
	}
	return c.version, ""
}

// Version returns the runtime's version: from memory, if the runtime was asked within the last
// minute (two, while somebody is asking again) over the connection that the generator's stream of
// events is on. A kubelet without an API
// server asks once for every sync of a pod. It is nobody's check of whether the runtime is alive,
// which is Status.
func (s *Service) Version(ctx context.Context, api string) (*runtimeapi.VersionResponse, error) {
	s.mu.Lock()
	trusted := s.trusted
	s.mu.Unlock()
	trust := trusted != nil && trusted() // it takes a lock of its own
	s.mu.Lock()
	began := time.Now()
	answer, reason := s.connection.cached(api, trust, began)
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
