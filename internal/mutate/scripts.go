// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
)

const (
	scriptsPkg  = "internal/simulate"
	scriptsGlob = scriptsPkg + "/testdata/*.txtar"
	// scriptsFile is the file of a script with the names of its mutations, a name a line.
	scriptsFile = "mutations"
)

// named returns the names of the scripts for each mutation, in order, by its name.
func named(root string) (map[string][]string, error) {
	paths, err := filepath.Glob(filepath.Join(root, scriptsGlob))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf(
			"%d scripts at %s: %v; run it within the repository",
			len(paths),
			scriptsGlob,
			err,
		)
	}
	known := map[string]bool{}
	for _, m := range allMutations() {
		known[m.name] = true
	}
	scripts := map[string][]string{}
	var wrong []error
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			return nil, err
		}
		script := strings.TrimSuffix(filepath.Base(path), ".txtar")
		for _, f := range a.Files {
			if f.Name != scriptsFile {
				continue
			}
			for name := range strings.Lines(string(f.Data)) {
				name = strings.TrimSpace(name)
				if !known[name] {
					wrong = append(
						wrong,
						fmt.Errorf(
							"script %s names the mutation %q, which there is not: name one of internal/mutate",
							script,
							name,
						),
					)
				} else if slices.Contains(scripts[name], script) {
					wrong = append(
						wrong,
						fmt.Errorf("script %s names the mutation %q twice: once will do", script, name),
					)
				} else {
					scripts[name] = append(scripts[name], script)
				}
			}
		}
	}
	return scripts, errors.Join(wrong...)
}

// playScripts plays, for each of the mutations, the scripts that name it, and returns the number of
// scripts that miss.
func (w *workshop) playScripts(ctx context.Context, chosen []mutation) (missed int, err error) {
	scripts, err := named(w.root)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	played := 0
	var blunt []string
	for _, m := range chosen {
		for _, script := range scripts[m.name] {
			verdict := "bites"
			bites, err := w.bites(ctx, m, script)
			if err != nil {
				return len(blunt), err
			}
			if !bites {
				verdict = "NO LONGER BITES"
				blunt = append(blunt, script)
			}
			fmt.Printf("%-56s %-15s %s\n", m.name, verdict, script)
			played++
		}
	}
	fmt.Printf("%d scripts played against the mutations that they name, %d do not bite %v, in %v\n",
		played, len(blunt), blunt, time.Since(start).Round(time.Second))
	return len(blunt), nil
}

// tries is how often a script may be played until it bites. One of the second tier has goroutines,
// which take an order of their own within an instant: hung-26 needs that five of eight calls be
// answered before the others, which holds two times in five.
const tries = 20

// bites tells whether a script convicts a mutation.
func (w *workshop) bites(ctx context.Context, m mutation, script string) (bool, error) {
	s := stage{name: "script " + script, pkg: scriptsPkg, args: []string{
		"-test.run=^TestScripts$/^" + regexp.QuoteMeta(script) + "$", "-hung=20s",
	}}
	for range tries {
		_, bites, err := w.notices(ctx, m, s)
		if bites || err != nil {
			return bites, err
		}
	}
	return false, nil
}
