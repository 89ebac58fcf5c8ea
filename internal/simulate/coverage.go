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

	"github.com/evented-pleg/evented-pleg/pleg"
)

// move is a move of the stream machine, by Stats: the moves within an instant count as a single
// move.
type move [2]pleg.StreamState

func (m move) String() string { return m[0].String() + "→" + m[1].String() }

// Coverage is the part of the state space visited by a search. The zero value is ready.
type Coverage struct {
	mu        sync.Mutex
	Histories int
	Looks     int               // of the oracle
	Believed  int               // times that reads were believed again after lies
	Events    int               // told by Watch
	Virtual   time.Duration     // elapsed time
	Pairs     map[[2]string]int // fault × profile
	Moves     map[move]int      // of the stream machine, by Stats
	Slowest   time.Duration     // from the last disturbance of a history to agreement
	SlowestOf uint64            // its seed
	Prompt    promptness        // of the claims of true changes
	PromptOf  uint64            // the seed of the slowest
}

// fault notes a fault that has struck under a profile.
func (c *Coverage) fault(name, profile string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Pairs == nil {
		c.Pairs = make(map[[2]string]int)
	}
	c.Pairs[[2]string{name, profile}]++
}

// harvest takes the oracle's observations.
func (o *oracle) harvest(c *Coverage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.Histories, c.Looks, c.Events, c.Moves, c.Slowest, c.Virtual = 1, o.looks, o.events, o.moves, o.slowest, time.Since(o.begun)
	c.Prompt, c.Believed = o.promptest, o.believed
}

// Add adds another coverage.
func (c *Coverage) Add(seed uint64, d *Coverage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Histories += d.Histories
	c.Looks += d.Looks
	c.Events += d.Events
	c.Believed += d.Believed
	c.Virtual += d.Virtual
	if c.Pairs == nil {
		c.Pairs = make(map[[2]string]int)
	}
	if c.Moves == nil {
		c.Moves = make(map[move]int)
	}
	for k, n := range d.Pairs {
		c.Pairs[k] += n
	}
	for k, n := range d.Moves {
		c.Moves[k] += n
	}
	c.Prompt.kept += d.Prompt.kept
	c.Prompt.instants += d.Prompt.instants
	if d.Prompt.slowest > c.Prompt.slowest {
		c.Prompt.slowest, c.PromptOf = d.Prompt.slowest, seed
	}
	if d.Slowest > c.Slowest {
		c.Slowest, c.SlowestOf = d.Slowest, seed
	}
}

// Report writes the coverage as text: the table of faults × profiles, the moves of the stream
// machine, and the slowest agreement.
func (c *Coverage) Report(profiles []string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories, %v of virtual time, %d looks of the oracle, %d events\n", c.Histories, c.Virtual.Round(time.Second), c.Looks, c.Events)
	fmt.Fprintf(&b, "slowest agreement after the last disturbance: %v (seed %d)\n", c.Slowest, c.SlowestOf)
	fmt.Fprintf(&b, "claims that had to be shown soon: %d, the slowest after %v (seed %d); payloads that had to be believed at once: %d\n",
		c.Prompt.kept, c.Prompt.slowest, c.PromptOf, c.Prompt.instants)
	if c.Believed > 0 {
		fmt.Fprintf(&b, "reads that lied were believed again %d times\n", c.Believed)
	}
	b.WriteString("moves of the stream machine:")
	moves := slices.SortedFunc(maps.Keys(c.Moves), func(a, b move) int {
		return int(a[0])*16 + int(a[1]) - int(b[0])*16 - int(b[1])
	})
	for _, m := range moves {
		fmt.Fprintf(&b, " %v %d", m, c.Moves[m])
	}
	b.WriteString("\n")
	faults := map[string]bool{}
	for k := range c.Pairs {
		faults[k[0]] = true
	}
	fmt.Fprintf(&b, "%-18s", "fault × profile")
	for _, p := range profiles {
		fmt.Fprintf(&b, " %14s", p)
	}
	b.WriteString("\n")
	for _, f := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, "%-18s", f)
		for _, p := range profiles {
			fmt.Fprintf(&b, " %14d", c.Pairs[[2]string{f, p}])
		}
		b.WriteString("\n")
	}
	return b.String()
}
