// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Goroutines returns how many goroutines the kubelet has, by the function that each began in.
func (k *Kubelet) Goroutines(ctx context.Context) (map[string]int, error) {
	body, err := k.fetch(ctx, k.secure+"/debug/pprof/goroutine?debug=1")
	if err != nil {
		return nil, err
	}
	return entries(string(body))
}

// entries reads a goroutine profile in its text form: groups of lines, each begun by "COUNT @ ADDRESSES" and ended by an empty line, with one line for each
// function, the one that the goroutine began in last. WaitGroup.Go is none that anything begins in.
func entries(profile string) (map[string]int, error) {
	counts := make(map[string]int)
	for group := range strings.SplitSeq(profile, "\n\n") {
		number, _, ok := strings.Cut(strings.TrimSpace(dropHead(group)), " @ ")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("standalone: goroutine profile: %q is not a number", number)
		}
		entry := "unknown"
		for line := range strings.Lines(group) {
			// #	0x1d2e3f	package.function+0x1f	file.go:12
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) < 3 || fields[0] != "#" {
				continue
			}
			if name, _, _ := strings.Cut(strings.TrimSpace(fields[2]), "+0x"); !strings.HasPrefix(name, "sync.(*WaitGroup).Go") {
				entry = name
			}
		}
		counts[entry] += n
	}
	return counts, nil
}

// dropHead drops the profile's first line, which the first group begins with.
func dropHead(group string) string {
	if rest, ok := strings.CutPrefix(group, "goroutine profile:"); ok {
		_, group, _ = strings.Cut(rest, "\n")
	}
	return group
}

// RSS is the kubelet's resident memory in bytes.
func (k *Kubelet) RSS() (int64, error) {
	path := "/proc/" + strconv.Itoa(k.cmd.Process.Pid) + "/status"
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("standalone: %s has no VmRSS", path)
}
