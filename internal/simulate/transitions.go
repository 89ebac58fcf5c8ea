// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// move is one of the stream machine, as Stats shows it: what happens within one instant is one move.
type move [2]pleg.StreamState

func (m move) String() string { return m[0].String() + "→" + m[1].String() }

// transition is a move while a fault was in force under a profile.
type transition struct {
	fault, profile string
	move           move
}

// noFault stands for the moves while no fault was in force.
const noFault = "(none)"

// faultLasts is how long a fault counts as in force after it has struck.
const faultLasts = time.Second

// inForce sets the faults that are in force until the next call, beside those that strike.
func (c *Coverage) inForce(faults []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing = faults
}

// moved notes a move of the stream machine, and the faults in force.
func (c *Coverage) moved(m move, profile string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Transitions == nil {
		c.Transitions = make(map[transition]int)
	}
	any := false
	note := func(fault string) {
		c.Transitions[transition{fault, profile, m}]++
		any = true
	}
	for _, f := range c.standing {
		note(f)
	}
	now := time.Now()
	for f, at := range c.struck {
		if now.Sub(at) <= faultLasts && !slices.Contains(c.standing, f) {
			note(f)
		}
	}
	if !any {
		note(noFault)
	}
}

// reportTransitions writes the table of faults × moves, and what was never visited. The caller holds the mutex.
func (c *Coverage) reportTransitions(b *strings.Builder, profiles []string) {
	moves := slices.SortedFunc(maps.Keys(c.Moves), func(a, b move) int { return int(a[0])*16 + int(a[1]) - int(b[0])*16 - int(b[1]) })
	names := map[string]bool{noFault: true}
	for k := range c.Pairs {
		names[k[0]] = true
	}
	faults := slices.Sorted(maps.Keys(names))
	counts := make(map[[2]string]int) // by fault and move
	for k, n := range c.Transitions {
		counts[[2]string{k.fault, k.move.String()}] += n
	}
	fmt.Fprintf(b, "%-18s", "fault × move")
	for _, m := range moves {
		fmt.Fprintf(b, " %*s", max(10, len([]rune(m.String()))), m)
	}
	b.WriteString("\n")
	never := 0
	for _, f := range faults {
		fmt.Fprintf(b, "%-18s", f)
		for _, m := range moves {
			n := counts[[2]string{f, m.String()}]
			if n == 0 {
				never++
			}
			fmt.Fprintf(b, " %*d", max(10, len([]rune(m.String()))), n)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "%d of %d pairs of fault and move visited; of fault, profile and move %d of %d\n",
		len(faults)*len(moves)-never, len(faults)*len(moves), len(c.Transitions), len(faults)*len(moves)*len(profiles))
	for _, m := range moves {
		var missing []string
		for _, f := range faults {
			if counts[[2]string{f, m.String()}] == 0 {
				missing = append(missing, f)
			}
		}
		if len(missing) > 0 {
			fmt.Fprintf(b, "never visited: %v under %s\n", m, strings.Join(missing, ", "))
		}
	}
}
