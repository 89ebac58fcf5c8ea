// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"time"

	"google.golang.org/grpc/backoff"
)

// quickBackoff makes a client find a restarted runtime within a fraction of a
// second, where grpc's default could wait for two minutes.
var quickBackoff = backoff.Config{
	BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.1, MaxDelay: 200 * time.Millisecond,
}
