// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// absent matches what installed files must not cite as if it were in their tree.
var absent = regexp.MustCompile(`docs/\S|\bADRs?\b|\.ci/\w|\binternal/(?:simulate|testkit)\b`)

// TestInstalledFilesStandAlone: what is installed needs nothing, and cites nothing, that only this
// repository has.
func TestInstalledFilesStandAlone(t *testing.T) {
	t.Run("compile", compileAlone)
	for _, minor := range minors {
		t.Run("cite "+minor, func(t *testing.T) {
			files, err := sources(minor, []byte(licence))
			check(t, err)
			for name, file := range files {
				for _, cited := range absent.FindAllString(string(file.text), -1) {
					t.Errorf("%s cites %q, which the tree lacks", name, cited)
				}
			}
		})
	}
}

// compileAlone compiles each installed package, with its tests, without the files
// that stay behind: a test that uses one of those would fail to build in the tree. The adapter
// itself needs a tree.
func compileAlone(t *testing.T) {
	for _, p := range packages {
		if p.to == "" {
			continue
		}
		for _, form := range []struct{ name, without string }{
			{"whole", ""},
			{"generator alone", p.lists + " " + p.resting},
		} {
			if form.name != "whole" && p.lists+p.resting == "" {
				continue // the same files
			}
			t.Run(p.from.path+" "+form.name, func(t *testing.T) {
				dir, err := filepath.Abs(filepath.Join("../..", p.from.path))
				check(t, err)
				files, err := filepath.Glob(filepath.Join(dir, "*.go"))
				check(t, err)
				left := make(map[string]string) // an empty replacement deletes a file
				for _, file := range files {
					base := filepath.Base(file)
					if p.stays(base) || matches(form.without, base) {
						left[file] = ""
					}
				}
				overlay := filepath.Join(t.TempDir(), "overlay.json")
				text, err := json.Marshal(map[string]any{"Replace": left})
				check(t, err)
				check(t, os.WriteFile(overlay, text, 0o600))
				cmd := exec.Command("go", "vet", "-overlay", overlay, ".")
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("go vet, without %v: %v\n%s", left, err, out)
				}
			})
		}
	}
}
