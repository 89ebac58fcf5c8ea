// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Origin says where a goroutine comes from.
type Origin struct {
	// Begins is its first function, Creator the function that started it.
	Begins, Creator string
}

// Goroutines returns how many goroutines the kubelet has, by origin.
func (k *Kubelet) Goroutines(ctx context.Context) (map[Origin]int, error) {
	body, err := k.fetch(ctx, k.secure+"/debug/pprof/goroutine?debug=2")
	if err != nil {
		return nil, err
	}
	return origins(string(body))
}

// origins reads stacks in Go's printed form: separated by empty lines, the goroutine's first
// function last, and below its creator. WaitGroup.Go counts as neither.
func origins(stacks string) (map[Origin]int, error) {
	counts := make(map[Origin]int)
	for stack := range strings.SplitSeq(strings.TrimSpace(stacks), "\n\n") {
		if !strings.HasPrefix(stack, "goroutine ") {
			return nil, fmt.Errorf("standalone: %.40q is not the stack of a goroutine", stack)
		}
		var o Origin
		for line := range strings.Lines(stack) {
			line = strings.TrimRight(line, "\n")
			creator, ok := strings.CutPrefix(line, "created by ")
			switch {
			case ok:
				o.Creator, _, _ = strings.Cut(creator, " in goroutine ")
			case strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "goroutine "), strings.HasPrefix(line, "sync.(*WaitGroup).Go"):
			default:
				o.Begins = line[:max(0, strings.LastIndexByte(line, '('))]
			}
		}
		counts[o]++
	}
	return counts, nil
}

// CPUProfile returns the kubelet's CPU profile during the time, in pprof's form.
func (k *Kubelet) CPUProfile(ctx context.Context, d time.Duration) ([]byte, error) {
	url := k.secure + "/debug/pprof/profile?seconds=" + strconv.Itoa(int(d.Seconds()))
	return k.fetchWithin(ctx, url, d+30*time.Second)
}
