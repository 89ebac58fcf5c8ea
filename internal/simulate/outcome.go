// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Outcome is the effect of a history, in comparable parts: the events of each pod, the reads of
// each pod and the lists with their times, and at the end the cache and the statistics. Its mutex
// owns everything.
type Outcome struct {
	mu    sync.Mutex
	begun time.Time
	parts map[string]*strings.Builder
}

// add appends a line, with its time, to a part, or does nothing without an outcome.
func (o *Outcome) add(part, format string, args ...any) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.parts[part]
	if b == nil {
		b = &strings.Builder{}
		o.parts[part] = b
	}
	fmt.Fprintf(b, "%v ", time.Since(o.begun))
	fmt.Fprintf(b, format, args...)
	b.WriteByte('\n')
}

// heard records an event but for its stamp, which is the runtime's wall clock.
func (o *Outcome) heard(e pleg.Event) {
	if o != nil {
		o.add(
			"events of "+string(e.Pod),
			"%s %s %v %v seen %v",
			e.Type,
			e.ID,
			e.Kind,
			e.Cause,
			e.Seen.Sub(o.begun),
		)
	}
}

// read records the beginning of a read.
func (o *Outcome) read(what string, uid cache.UID) { o.add("reads "+string(uid), "%s", what) }

// finish records the cache and the statistics, except for claims stamped before the stream was
// opened, which depend on wall clocks.
func (o *Outcome) finish(w *world) {
	if o == nil || w.side == nil {
		return
	}
	for _, uid := range w.store.UIDs() {
		items, err := w.store.Get(uid)
		o.add("cache of "+string(uid), "%v, error %v, as of %v", items, err, w.store.AsOf(uid).Sub(o.begun))
	}
	o.add("global time", "%v", w.store.Global().Sub(o.begun))
	if w.system != nil {
		s := w.system.Stats()
		s.ReplayedClaims = 0 // stamps distinguish replays
		o.add("statistics", "%+v", s)
	}
}

// Parts returns the names of the parts, sorted.
func (o *Outcome) Parts() []string { return slices.Sorted(maps.Keys(o.parts)) }

// Part returns the record of a part.
func (o *Outcome) Part(name string) string {
	if b := o.parts[name]; b != nil {
		return b.String()
	}
	return ""
}
