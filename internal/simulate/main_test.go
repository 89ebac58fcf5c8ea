// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"fmt"
	"maps"
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
	hungFlag  = flag.Duration("hung", 5*time.Minute, "real time after which a history counts as hung")
	faultFlag = flag.String(
		"faults",
		"",
		"begin the histories of the second tier with these faults in turn, separated by commas, in place of all",
	)
	reduceOn  = flag.Bool("reduce", true, "reduce a history that fails to a short one")
	kindsFlag = flag.String(
		"kinds",
		"",
		"weave these kinds, separated by commas, or all, into every history, not into their share of the histories",
	)
	forFlag = flag.Duration("for", 0, "stop the search after this time, however many seeds are left")
)

// TestMain collects garbage at five times the live heap, nearly all of which a history leaves: a
// quarter less CPU.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// inBubble runs a history in a bubble of its own.
func inBubble(t *testing.T, h History, opts Options) (r *Result) {
	t.Helper()
	// A goroutine that spins stops virtual time; only a clock outside of the bubble notices.
	watchdog := time.AfterFunc(
		*hungFlag,
		func() { panic(fmt.Sprintf("time stands still in this history:\n%s", h)) },
	)
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

// search runs the histories of up to n seeds, reports the first failure, reduced, and returns the
// number of histories.
func search(t *testing.T, from uint64, n int, generate func(uint64) History) (histories int) {
	t.Helper()
	// The limit is for a leaking generator.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	began := time.Now()
	excused, uses := make(map[string]int), make(map[string]int)
	for i := range n {
		seed := from + uint64(i)
		h := generate(seed)
		r := inBubble(t, h, Options{})
		histories++
		for why, times := range r.Excused {
			excused[why]++
			uses[why] += times
		}
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
	t.Logf(
		"%d histories in %v, %.0f a second",
		histories,
		d.Round(time.Millisecond),
		float64(histories)/d.Seconds(),
	)
	for _, why := range slices.Sorted(maps.Keys(excused)) {
		t.Logf("%s has excused in %d histories, %d times", why, excused[why], uses[why])
	}
	return histories
}

// TestSimulate is the search of the first tier: go test ./internal/simulate -run TestSimulate$ -v
// -seeds 200000.
func TestSimulate(t *testing.T) {
	named := namedKinds(t)
	search(t, *fromFlag, *seedsFlag, func(seed uint64) History { return Generate(seed, named...) })
}

// namedKinds returns the kinds of -kinds.
func namedKinds(t *testing.T) []string {
	t.Helper()
	all, _ := KindNames()
	switch *kindsFlag {
	case "":
		return nil
	case "all":
		return all
	}
	names := strings.Split(*kindsFlag, ",")
	for _, name := range names {
		if !slices.Contains(all, name) {
			t.Fatalf(
				"-kinds %s: no kind is called %q: write %s, or all",
				*kindsFlag,
				name,
				strings.Join(all, ", "),
			)
		}
	}
	return names
}

// TestSimulateFake is the search of the second tier, through gRPC, the real client and the fake
// runtime. Enough histories have every fault in force under every profile.
func TestSimulateFake(t *testing.T) {
	first := firstFaults(t)
	visited := make(map[string]bool)
	named := namedKinds(t)
	n := search(t, *fromFlag, *fakeFlag, func(seed uint64) History {
		h := GenerateFake(seed, first, named...)
		for _, line := range h {
			if faults, ok := strings.CutPrefix(line, "fault "); ok {
				for f := range strings.FieldsSeq(faults) {
					name, _, _ := strings.Cut(f, "=")
					visited[name+" under "+profileOf(h)] = true
				}
			}
		}
		return h
	})
	if *faultFlag != "" {
		return
	}
	var missing []string
	pairs := 0
	for _, f := range mainFaults() {
		for _, p := range fakeruntime.ProfileNames() {
			if pairs++; !visited[f.Name+" under "+p] {
				missing = append(missing, f.Name+" under "+p)
			}
		}
	}
	if t.Logf("%d of %d pairs of fault and profile visited", pairs-len(missing), pairs); n >= pairs && len(missing) > 0 {
		t.Errorf("not visited: %s", strings.Join(missing, ", "))
	}
}

// profileOf returns the profile of a history.
func profileOf(h History) (name string) {
	for _, line := range h {
		if after, ok := strings.CutPrefix(line, "config profile "); ok {
			name = after
		}
	}
	return name
}

// firstFaults returns the first faults of histories of the second tier: those of -faults, or all.
func firstFaults(t *testing.T) []fakeruntime.Fault {
	t.Helper()
	if *faultFlag == "" {
		return mainFaults()
	}
	all := fakeruntime.FaultList()
	names := strings.Split(*faultFlag, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(f fakeruntime.Fault) bool { return f.Name == name }) {
			t.Fatalf(
				"-faults %s: no fault is called %q; pleg-bench fake --list-faults explains all",
				*faultFlag,
				name,
			)
		}
	}
	return slices.DeleteFunc(all, func(f fakeruntime.Fault) bool { return !slices.Contains(names, f.Name) })
}
