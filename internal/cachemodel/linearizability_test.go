// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cachemodel

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/evented-pleg/evented-pleg/cache"
)

var (
	seeds     = flag.Int("seeds", 1500, "random histories of each test")
	firstSeed = flag.Uint64("from", 0, "seed of the first random history")
)

// call is a caller's question to the cache, answer its outcome.
type call struct {
	kind string
	pod  int
	n    int
	at   int
}

type answer struct {
	ok, failed, gaveUp bool
	n                  int
}

// linear is the callers' model: every call happens at a moment between its beginning and its end.
var linear = porcupine.Model{
	Init: func() any { return model{} },
	Step: func(state, input, output any) (bool, any) {
		m, c, a := state.(model), input.(call), output.(answer)
		switch c.kind {
		case "set":
			return m.set(c.pod, c.n, false, c.at) == a.ok, m
		case "fail":
			return m.set(c.pod, 0, true, c.at) == a.ok, m
		case "delete":
			return m.delete(c.pod, c.at) == a.ok, m
		case "observe":
			m.observe(c.pod, c.at)
			return true, m
		case "advance":
			m.advance(c.at)
			return true, m
		}
		e := m.pods[c.pod]
		if a.n != e.n {
			return false, m
		}
		if c.kind == "newer" && !a.gaveUp && m.asOf(c.pod) <= c.at {
			return false, m
		}
		return a.gaveUp || a.failed == e.failed, m
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// TestLinearizable runs four callers on a cache at the same time, some of them waiting in
// GetNewerThan, and checks that the model accepts some order of their observations. A seed draws
// the calls; their order is the machine's.
func TestLinearizable(t *testing.T) {
	const callers, calls = 4, 8
	for n := range uint64(*seeds) {
		seed := *firstSeed + n
		c := cache.New(func(cache.UID) *word { return &word{} })
		var mu sync.Mutex
		var ops []porcupine.Operation
		ctx, cancel := context.WithCancel(t.Context())
		var writers, readers sync.WaitGroup
		record := func(who int, in call, do func() answer) {
			begun := time.Since(started)
			out := do()
			ended := time.Since(started)
			mu.Lock()
			defer mu.Unlock()
			ops = append(
				ops,
				porcupine.Operation{
					ClientId: who,
					Input:    in,
					Call:     int64(begun),
					Output:   out,
					Return:   int64(ended),
				},
			)
		}
		for who := range callers {
			rng := rand.New(rand.NewPCG(seed, uint64(who)))
			if who < 2 {
				writers.Go(func() {
					for i := range calls {
						in := call{
							[]string{"set", "set", "fail", "delete", "observe", "advance", "get"}[rng.IntN(7)],
							rng.IntN(2),
							who*100 + i + 1,
							1 + rng.IntN(20),
						}
						record(who, in, func() answer { return perform(ctx, c, in) })
					}
				})
				continue
			}
			readers.Go(func() {
				for range calls {
					in := call{[]string{"get", "newer", "newer"}[rng.IntN(3)], rng.IntN(2), 0, 1 + rng.IntN(20)}
					record(who, in, func() answer { return perform(ctx, c, in) })
				}
			})
		}
		writers.Wait()
		cancel() // those who still wait give up
		readers.Wait()
		slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		if !porcupine.CheckOperations(linear, ops) {
			t.Fatalf("no order of these calls makes sense: %+v\n%s", ops, onceMore("TestLinearizable", seed))
		}
		if n := c.Waiting(); n != 0 {
			t.Fatalf("%d waiters are left\n%s", n, onceMore("TestLinearizable", seed))
		}
	}
}

// onceMore is the command that plays a seed alone.
func onceMore(test string, seed uint64) string {
	return fmt.Sprintf("once more: go test ./internal/cachemodel -run '^%s$' -args -seeds=1 -from=%d", test, seed)
}

// perform makes a call.
func perform(ctx context.Context, c *cache.Cache[word], in call) answer {
	uid, at := podName(in.pod), moment(in.at)
	switch in.kind {
	case "set":
		return answer{ok: c.Set(uid, &word{in.n}, nil, at)}
	case "fail":
		return answer{ok: c.Set(uid, nil, errRead, at)}
	case "delete":
		return answer{ok: c.Delete(uid, at)}
	case "observe":
		c.Observe(uid, at)
		return answer{}
	case "advance":
		c.Advance(at)
		return answer{}
	case "newer":
		s, err := c.GetNewerThan(ctx, uid, at)
		gaveUp := err != nil && err != errRead
		return answer{n: s.n, failed: err != nil, gaveUp: gaveUp}
	}
	s, err := c.Get(uid)
	return answer{n: s.n, failed: err != nil}
}
