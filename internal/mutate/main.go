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
	run := flag.String("run", "", "only the mutations whose name, or file, contains this")
	skip := flag.Int("skip", 0, "leave out that many, to go on where a run was stopped")
	scripts := flag.Bool("scripts", false, "only play the scripts that name a mutation against it: each must convict it")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "mutate: what is %q? It takes flags only; -help explains them\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := work(ctx, *run, *skip, func(w *workshop, chosen []mutation) (int, error) {
		if *scripts {
			return w.playScripts(ctx, chosen)
		}
		return w.tryAll(ctx, chosen, *seeds, *skip)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

const usage = `mutate breaks pleg, cache and embed/ledger on purpose, one way at a time, and says which tests notice.

  go run ./internal/mutate                       all of them: half an hour
  go run ./internal/mutate -run 'acks: '         those about own calls
  go run ./internal/mutate -skip 45              all but the first 45, which were tried before
  go run ./internal/mutate -scripts              whether each script still convicts what it names: half a minute
  go run ./internal/mutate -scripts -run waits   likewise, for the mutations of such a name

It exits with 1 if a mutation survives, or a script does not bite, and with 2 if it could not find out.
`

// allMutations returns all of them, in the order in which they are tried.
func allMutations() []mutation { return slices.Concat(ledgerMutations, mutations) }

// work chooses mutations by a part of their name or file, skips some, and hands them to do, with a
// place to build them in.
func work(ctx context.Context, run string, skip int, do func(*workshop, []mutation) (int, error)) (int, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var chosen []mutation
	for _, m := range allMutations() {
		if strings.Contains(m.name, run) || strings.Contains(m.file, run) {
			chosen = append(chosen, m)
		}
	}
	if skip < 0 || skip >= len(chosen) {
		return 0, fmt.Errorf("-skip %d of the %d mutations whose name or file contains %q leaves none", skip, len(chosen), run)
	}
	w, err := newWorkshop(root, dir)
	if err != nil {
		return 0, err
	}
	return do(w, chosen[skip:])
}

// tryAll applies the mutations in turn and returns the number of survivors. Skipped is the number
// of mutations left out before these.
func (w *workshop) tryAll(ctx context.Context, chosen []mutation, seeds, skipped int) (survived int, err error) {
	var failed []error // of the failed attempts: the others are tried
	start := time.Now()
	for i, m := range chosen {
		began := time.Now()
		by, err := w.try(ctx, m, seeds)
		if ctx.Err() != nil {
			return survived, fmt.Errorf("stopped after %d mutations, of which %d survived: go on with -skip %d", i, survived, skipped+i)
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

// stages are the tests that may notice a mutation, the simulation first, and then the cheapest. The
// mutations of the ledger answer to its own search.
func (m mutation) stages(seeds int) []stage {
	if strings.HasPrefix(m.file, ledgerDir) {
		return []stage{{"the search", ledgerDir, []string{"-test.run=^TestSearch$", "-seeds=" + strconv.Itoa(10*seeds)}}}
	}
	simulate := func(name, run string, args ...string) stage {
		return stage{name, "internal/simulate", append(args, "-test.run=^"+run+"$", "-hung=20s", "-reduce=false")}
	}
	first := min(seeds, firstSeeds)
	stages := []stage{
		simulate("the simulation", "TestSimulate", "-seeds="+strconv.Itoa(first)),
		simulate("a script", "TestScripts"),
		simulate("a test of bounds", "(TestCutStream.*|TestLyingStreams.*)"),
		simulate("the wall clock's test", "TestClockStepsChangeNothing"),
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
	if strings.Contains(out, "test timed out after") {
		return " (timed out)" // a hang, or a slow machine: look
	}
	return ""
}
