// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	seeds := flag.Int("seeds", 6000, "histories of the first tier for each mutation")
	run := flag.String("run", "", "only the mutations whose name, or file, contains this, such as 'acks: '")
	scripts := flag.Bool(
		"scripts",
		false,
		"only play the scripts that name a mutation against it: each must convict it",
	)
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "mutate: what is %q? It takes flags only; -help explains them\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := work(ctx, *run, func(w *workshop, chosen []mutation) (int, error) {
		if *scripts {
			return w.playScripts(ctx, chosen)
		}
		return w.tryAll(ctx, chosen, *seeds)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// work chooses mutations by a part of their name or file, and hands them to do, with a place to
// build them in.
func work(ctx context.Context, run string, do func(*workshop, []mutation) (int, error)) (int, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	chosen := slices.DeleteFunc(
		allMutations(),
		func(m mutation) bool { return !strings.Contains(m.name, run) && !strings.Contains(m.file, run) },
	)
	if len(chosen) == 0 {
		return 0, fmt.Errorf("-run %s: no mutation has such a name or file", run)
	}
	w, err := newWorkshop(root, dir)
	if err != nil {
		return 0, err
	}
	return do(w, chosen)
}

// tryAll applies the mutations in turn and returns the number of survivors.
func (w *workshop) tryAll(ctx context.Context, chosen []mutation, seeds int) (survived int, err error) {
	var failed []error // of the failed attempts: the others are tried
	start := time.Now()
	for i, m := range chosen {
		began := time.Now()
		by, err := w.try(ctx, m, seeds)
		if ctx.Err() != nil {
			return survived, fmt.Errorf("stopped after %d mutations, of which %d survived", i, survived)
		}
		verdict := "caught by " + by
		switch {
		case err != nil:
			verdict = "NOT TRIED"
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
		case by == "":
			verdict = "SURVIVED"
			survived++
		}
		fmt.Printf("%-56s %-34s %v\n", m.name, verdict, time.Since(began).Round(time.Second))
	}
	fmt.Printf("%d mutations, %d caught, %d survived, in %v\n",
		len(chosen), len(chosen)-survived-len(failed), survived, time.Since(start).Round(time.Second))
	return survived, errors.Join(failed...)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/evented-pleg/evented-pleg").Output()
	if err != nil {
		return "", fmt.Errorf("run it within the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// A stage is tests that may notice a mutation: a package, and the arguments of its test binary.
type stage struct {
	name, pkg string
	args      []string
}

// firstSeeds is how many histories are searched before anything else: most mutations need no more.
const firstSeeds = 500

// stages are the tests that may notice a mutation, the simulation first, and then the cheapest.
// The mutations of the ledger answer to its own search and then to the rules that it sees broken
// too rarely, those of a client, fake, service, proxy, recorder, reporter or metric to the tests of
// their packages.
func (m mutation) stages(seeds int) []stage {
	if strings.HasPrefix(m.file, ledgerDir) {
		return []stage{
			{"the search", ledgerDir, []string{"-test.run=^TestSearch$", "-seeds=" + strconv.Itoa(10*seeds)}},
			{"a rule", ledgerDir, []string{"-test.skip=^TestSearch$"}},
		}
	}
	const skip = "-test.skip=^TestBesideClientGo$"
	switch {
	case strings.HasPrefix(m.file, "events/"):
		args := []string{skip, "-events.seeds=150", "-rapid.checks=3000", "-rapid.nofailfile"}
		return []stage{{"the package tests", "events", args}}
	case strings.HasPrefix(m.file, "exits/"):
		return []stage{{"the package tests", "exits", []string{skip}}}
	}
	for _, pkg := range []string{"cri/fakeruntime", "metrics"} {
		if strings.HasPrefix(m.file, pkg+"/") {
			return []stage{{"the package tests", pkg, nil}}
		}
	}
	// In these a mutation may wait for ever.
	for _, pkg := range []string{"cri", "embed", "internal/criproxy/disturb", "internal/criproxy"} {
		if strings.HasPrefix(m.file, pkg+"/") {
			return []stage{{"the package tests", pkg, []string{"-test.timeout=1m"}}}
		}
	}
	simulate := func(name, run string, args ...string) stage {
		return stage{
			name,
			"internal/simulate",
			append(args, "-test.run=^"+run+"$", "-hung=20s", "-reduce=false"),
		}
	}
	first := min(seeds, firstSeeds)
	stages := []stage{
		simulate("the simulation", "TestSimulate", "-seeds="+strconv.Itoa(first)),
		simulate("a script", "TestScripts"),
		simulate("a test of bounds", "(TestCutStream.*|TestLyingStreams.*)"),
		simulate("the wall clock's test", "TestClockStepsChangeNothing", "-clock-seeds=300"),
		{"the package tests", "pleg", []string{"-test.skip=^TestProve$"}},
		{"the package tests", "cache", nil},
		{"the package tests", "internal/cachemodel", nil},
	}
	if rest := seeds - first; rest > 0 {
		from := "-from=" + strconv.Itoa(first+1)
		stages = append(stages, simulate("the simulation", "TestSimulate", from, "-seeds="+strconv.Itoa(rest)))
	}
	return append(stages, stage{"the fixpoint", "pleg", []string{"-test.run=^TestProve$"}})
}

// limit is how long a stage may take.
const limit = "5m"

// try runs the stages with the mutation in place and returns the first stage that notices.
func (w *workshop) try(ctx context.Context, m mutation, seeds int) (by string, err error) {
	for _, s := range m.stages(seeds) {
		out, noticed, err := w.notices(ctx, m, s)
		if err != nil {
			return "", err
		}
		if noticed {
			return s.name + reason(out), nil
		}
	}
	return "", nil
}

// Violations as the search of all states, and the simulation, print them.
var (
	inScope = regexp.MustCompile(`: scope (\S+): ([^:\n]+)`)
	ofSeed  = regexp.MustCompile(`: seed (\d+), at [^:]+: ([^:]+)`)
)

// reason is the kind of violation in the output of the tests.
func reason(out string) string {
	if m := inScope.FindStringSubmatch(out); m != nil {
		return fmt.Sprintf(" (%s, scope %s)", m[2], m[1])
	}
	if m := ofSeed.FindStringSubmatch(out); m != nil {
		return fmt.Sprintf(" (%s, seed %s)", m[2], m[1])
	}
	if strings.Contains(out, "time stands still") {
		return " (hang)"
	}
	// A test that has failed convicts: what hangs after it (an Example cannot be kept from running) is
	// no doubt.
	if strings.Contains(out, "test timed out after") && !strings.Contains(out, "--- FAIL: ") {
		return " (timed out)" // a hang, or a slow machine: look
	}
	return ""
}
