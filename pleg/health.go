// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotRunning is what Health reports before Run and after it.
var ErrNotRunning = errors.New("pleg: not running")

// snapshot is what the loop publishes for other goroutines.
type snapshot struct {
	running  bool
	stats    Stats
	finished instant // when the last successful list was applied, or the start
	listErr  error   // of the last list
}

// Health returns nil while the generator does its work, and otherwise why it does not: it is not
// running, or no list of the runtime has finished for RelistThreshold longer than the present
// period. A stream that is down is not a failure, since polling stands in for it, and neither is a
// Watch that is not read: nothing here depends on how full it is. Safe for concurrent use.
func (g *Generator[S]) Health() error {
	g.mu.Lock()
	s := g.snapshot
	g.mu.Unlock()
	if !s.running {
		return ErrNotRunning
	}
	late := g.clock.now().sub(s.finished)
	if late <= sum(s.stats.RelistPeriod, g.cfg.RelistThreshold) {
		return nil
	}
	if s.listErr != nil {
		return fmt.Errorf("pleg: no list of the runtime has succeeded for %v, threshold %v: %w", late.Round(time.Second), g.cfg.RelistThreshold, s.listErr)
	}
	return fmt.Errorf("pleg: no list of the runtime has finished for %v, threshold %v: is the runtime answering?", late.Round(time.Second), g.cfg.RelistThreshold)
}
