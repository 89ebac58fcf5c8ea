// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// byHand are the targets of tests that no tier of CI makes.
var byHand = []string{
	"test-critest", // the stage critest runs the same test
	"test-stored",  // figures for docs/agent.md
	"test-value",   // hours, for the figures of docs/performance.md
}

// TestEveryTargetOfTestsIsAStage wants each test-… of the Makefile in a stage of CI: a test that
// nothing runs rots.
func TestEveryTargetOfTestsIsAStage(t *testing.T) {
	targets := regexp.MustCompile(`(?m)^(test-[a-z-]+):.* ##`).FindAllSubmatch(read(t, root+"/Makefile"), -1)
	var made []string
	for _, match := range regexp.MustCompile(`\btest-[a-z-]+`).FindAll(read(t, root+"/.ci/stages"), -1) {
		made = append(made, string(match))
	}
	for _, match := range targets {
		name := string(match[1])
		if slices.Contains(made, name) == slices.Contains(byHand, name) {
			t.Errorf("make %s: want a stage of .ci/stages, or a reason in byHand, and not both", name)
		}
	}
	if len(targets) < 10 {
		t.Errorf("%d targets of tests found: is the test in its place?", len(targets))
	}
}

// TestNoPipeIsLeftEarly wants no reader in a pipe of a script with pipefail that goes at its first
// match: what still writes into the pipe dies of SIGPIPE then, now and then, and the whole counts
// as failed, or under a ! as right. A here-string of $(...) has no such race.
func TestNoPipeIsLeftEarly(t *testing.T) {
	early := regexp.MustCompile(`(?m)^\s*[^#\s].*[^|]\|\s*(grep -[a-zA-Z]*[qm]|head\b).*$`)
	scripts := 0
	for _, folder := range []string{".ci", "test", "tools", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) == ".go" {
				return err
			}
			text := read(t, path)
			if !bytes.Contains(text, []byte("pipefail")) { // also one that others source
				return nil
			}
			scripts++
			for _, line := range early.FindAll(text, -1) {
				t.Errorf("%s: %s", path, line)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if scripts < 10 {
		t.Errorf("%d scripts with pipefail found: is the test in its place?", scripts)
	}
}

var (
	seedsFlag = regexp.MustCompile(`flag\.\w+\(\s*"([\w.-]*seeds)",\s*(\d+)`)
	fewSeeds  = regexp.MustCompile(`for seed := range (uint64\()?\d+`)
)

// fixedSeeds are the files with random histories of fixed seeds, and no flag for more.
var fixedSeeds = []string{
	"cri/fuzzwire_test.go",             // the fuzzer goes on from them (.ci/fuzz)
	"cri/update_test.go",               // each plays a life on each profile; cri's fuzz targets play more statuses
	"embed/life_test.go",               // bounds of costs, which one runtime of a thousand misses by a little
	"internal/simulate/bounds_test.go", // TestSimulate cuts streams as well
	"pleg/generator_test.go",           // TestSimulate plays one generator of the two
	"pleg/limiter_test.go",             // orders of pods that come together, of a table of loads
}

// TestMoreSeedsArePlayed wants a stage of CI that plays more random histories than go test does of
// each test that has a flag for their number: the default is what a developer can wait for, and
// nobody ever plays the others by hand.
func TestMoreSeedsArePlayed(t *testing.T) {
	stages := slices.Concat(read(t, root+"/.ci/stages"), read(t, root+"/.ci/seeds"))
	found := 0
	eachFile(t, func(path string) {
		name := strings.TrimPrefix(path, root+"/")
		if !strings.HasSuffix(name, "_test.go") || filepath.Dir(name) == "internal/archtest" {
			return
		}
		text := read(t, path)
		flags := seedsFlag.FindAllSubmatch(text, -1)
		if bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			flags = append(flags, [][]byte{nil, []byte("rapid.checks"), []byte("100")})
		}
		for _, match := range flags {
			found++
			if usual, err := strconv.Atoi(string(match[2])); err != nil || most(stages, filepath.Dir(name), string(match[1])) <= usual {
				t.Errorf("%s: -%s is %s, and no line of .ci/stages or .ci/seeds plays more of ./%s", name, match[1], match[2], filepath.Dir(name))
			}
		}
		if fewSeeds.Match(text) != slices.Contains(fixedSeeds, name) {
			t.Errorf("%s: want a flag for the number of random histories, or a reason in fixedSeeds, and not both", name)
		}
	})
	if found < 6 {
		t.Errorf("%d flags for the number of random histories found: is the test in its place?", found)
	}
}

// most returns the largest value that a line of the stages gives to a flag of a package's tests.
func most(stages []byte, folder, name string) (value int) {
	line := regexp.MustCompile(`(?m)^.* \./` + regexp.QuoteMeta(folder) + ` .* -` + regexp.QuoteMeta(name) + `=(\d+)`)
	for _, match := range line.FindAllSubmatch(stages, -1) {
		if n, err := strconv.Atoi(string(match[1])); err == nil {
			value = max(value, n)
		}
	}
	return value
}

// TestUnplayedSeedsAreFound tries the expressions of TestMoreSeedsArePlayed.
func TestUnplayedSeedsAreFound(t *testing.T) {
	const stages = "stage x go test ./exits -run X -args -seeds=150\nplay ./exits '^Y$' -more.seeds=20 -seeds=30\n"
	for _, tt := range []struct {
		folder, flag string
		want         int
	}{{"exits", "seeds", 150}, {"exits", "more.seeds", 20}, {"events", "seeds", 0}, {"exits", "other", 0}} {
		if got := most([]byte(stages), tt.folder, tt.flag); got != tt.want {
			t.Errorf("-%s of %s: %d, want %d", tt.flag, tt.folder, got, tt.want)
		}
	}
	for text, want := range map[string]bool{
		"for seed := range uint64(20) {":  true,
		"for seed := range 20 {":          true,
		"for n := range uint64(*seeds) {": false,
		"for i := range 20 {":             false,
	} {
		if fewSeeds.MatchString(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}
