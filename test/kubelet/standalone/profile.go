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
	// Begins is the function that it began in, Creator the one that started it.
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

// origins reads stacks in the form in which Go prints them: one after the other with an empty line
// between, the function that the goroutine began in last, and below that who created it.
// WaitGroup.Go is none that anything begins in.
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

// CPUProfile returns where the kubelet's CPU goes during that time, as pprof reads it.
func (k *Kubelet) CPUProfile(ctx context.Context, d time.Duration) ([]byte, error) {
	url := k.secure + "/debug/pprof/profile?seconds=" + strconv.Itoa(int(d.Seconds()))
	return k.fetchWithin(ctx, url, d+30*time.Second)
}
