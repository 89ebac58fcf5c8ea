// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

var (
	seedsFlag = flag.Int("seeds", 300, "number of histories of the first tier")
	fakeFlag  = flag.Int("fake-seeds", 24, "number of histories of the second tier")
	fromFlag  = flag.Uint64("from", 1, "first seed")
	hungFlag  = flag.Duration("hung", time.Minute, "real time after which a history counts as hung")
	faultFlag = flag.String("faults", "", "begin the histories of the second tier with these faults in turn, separated by commas, in place of all")
	reduceOn  = flag.Bool("reduce", true, "reduce a history that fails to a short one")
	forFlag   = flag.Duration("for", 0, "stop the search after this time, however many seeds are left")
)

// inBubble runs a history in a bubble of its own.
func inBubble(t *testing.T, h History, opts Options) (r *Result) {
	t.Helper()
	// A goroutine that spins stops virtual time; only a clock outside of the bubble notices.
	watchdog := time.AfterFunc(*hungFlag, func() { panic(fmt.Sprintf("time stands still in this history:\n%s", h)) })
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) { r = Run(h, opts) })
	return r
}

// reduce shrinks a failing history and saves the result for a replay.
func reduce(t *testing.T, seed uint64, h History, opts Options, v *Violation) (History, string) {
	t.Helper()
	small := Shrink(h, func(h History) bool {
		r := inBubble(t, h, opts)
		return r.Violation != nil && r.Violation.Kind == v.Kind
	})
	name := filepath.Join(t.ArtifactDir(), fmt.Sprintf("seed%d.txtar", seed))
	text := fmt.Sprintf("# seed %d: %v\n%s", seed, inBubble(t, small, opts).Violation, small)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
	return small, name
}

// search runs the histories of many seeds and reports the first failure, reduced.
func search(t *testing.T, from uint64, n int, generate func(uint64) History, cover *Coverage) {
	t.Helper()
	// Nearly all of the heap is left by the last histories: collecting less often saves a sixth of
	// the time, and takes some tens of megabytes. The limit is for a leaking generator.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	began := time.Now()
	for i := range n {
		seed := from + uint64(i)
		h := generate(seed)
		r := inBubble(t, h, Options{})
		cover.Add(seed, &r.Coverage)
		if r.Violation != nil {
			if !*reduceOn {
				t.Fatalf("seed %d, %v", seed, r.Violation)
			}
			small, name := reduce(t, seed, h, Options{}, r.Violation)
			t.Fatalf("seed %d, %v\nreduced to, and saved as %s:\n%s", seed, r.Violation, name, small)
		}
		if *forFlag > 0 && time.Since(began) > *forFlag {
			break
		}
	}
	d := time.Since(began)
	t.Logf("%d histories in %v, %.0f a second", cover.Histories, d.Round(time.Millisecond), float64(cover.Histories)/d.Seconds())
}

func profileNames() []string {
	var names []string
	for _, p := range toyProfiles {
		names = append(names, p.name)
	}
	return names
}

// TestSimulate is the search of the first tier: go test ./internal/simulate -run TestSimulate$ -v
// -seeds 200000.
func TestSimulate(t *testing.T) {
	var cover Coverage
	search(t, *fromFlag, *seedsFlag, Generate, &cover)
	t.Logf("\n%s", cover.Report(profileNames()))
}

// TestSimulateFake is the search of the second tier, through gRPC, the real client and the fake
// runtime.
func TestSimulateFake(t *testing.T) {
	var cover Coverage
	first := firstFaults(t)
	search(t, *fromFlag, *fakeFlag, func(seed uint64) History { return GenerateFake(seed, first) }, &cover)
	if *faultFlag == "" {
		checkPairs(t, &cover)
	}
	t.Logf("\n%s", cover.Report(fakeruntime.ProfileNames()))
}

// firstFaults returns the first faults of histories of the second tier: those of -faults, or all.
func firstFaults(t *testing.T) []fakeruntime.Fault {
	t.Helper()
	all := mainFaults()
	if *faultFlag == "" {
		return all
	}
	names := strings.Split(*faultFlag, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(f fakeruntime.Fault) bool { return f.Name == name }) {
			t.Fatalf("-faults %s: no fault is called %q; pleg-bench fake --list-faults explains all", *faultFlag, name)
		}
	}
	return slices.DeleteFunc(all, func(f fakeruntime.Fault) bool { return !slices.Contains(names, f.Name) })
}

// checkPairs checks that a search of enough histories has had every fault in force under every
// profile.
func checkPairs(t *testing.T, cover *Coverage) {
	t.Helper()
	pairs, missing := 0, 0
	for _, f := range fakeruntime.FaultList() {
		for _, p := range fakeruntime.ProfileNames() {
			if f.Example == "" {
				continue // tunes another fault
			}
			pairs++
			if cover.Pairs[[2]string{f.Name, p}] == 0 {
				missing++
			}
		}
	}
	if cover.Histories >= pairs && missing > 0 {
		t.Errorf("%d of %d pairs of fault and profile were not visited", missing, pairs)
	}
	t.Logf("%d of %d pairs of fault and profile visited", pairs-missing, pairs)
}
