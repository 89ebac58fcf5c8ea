// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// TestSomebodyElseWrites: the cache is the generator's alone while it runs. If somebody writes to it all
// the same, as of a time that is still to come, the generator neither takes its own refused write for
// made nor asks the runtime without end: once that time has passed the cache is right again.
func TestSomebodyElseWrites(t *testing.T) {
	for name, write := range map[string]func(c *cache.Cache[status], at time.Time){
		"a status":     func(c *cache.Cache[status], at time.Time) { c.Set("p", &status{UID: "p"}, nil, at) },
		"an error":     func(c *cache.Cache[status], at time.Time) { c.Set("p", nil, errWild, at) },
		"that it left": func(c *cache.Cache[status], at time.Time) { c.Delete("p", at) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(c *Config[status], toy *toyRuntime) {
				c.Metrics = noMetrics{} // the core's idea of the cache is wrong for a while, of necessity
				toy.set("p", Container, "c", PhaseRunning)
			}, func(b *bed) {
				time.Sleep(5 * time.Second)
				b.shows("p")
				write(b.cache, time.Now().Add(3*time.Second))
				before := b.gen.Stats().Inspections
				b.toy.set("p", Container, "c", PhaseExited)
				time.Sleep(2 * time.Second)
				if n := b.gen.Stats().Inspections - before; n > 20 {
					b.t.Errorf("%d reads of a pod whose status cannot be stored yet", n)
				}
				time.Sleep(3 * time.Second)
				b.shows("p")
				b.want("p ContainerDied c", "p ContainerStarted c")
			})
		})
	}
}
