// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// FindRoot returns the root of this repository: the nearest directory at or above dir with a go.mod
// of this module. Nested modules are skipped.
func FindRoot(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("components: %w", err)
	}
	for at := start; ; at = filepath.Dir(at) {
		if moduleOf(filepath.Join(at, "go.mod")) == Module {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("components: %s is not inside a checkout of %s; run from the repository", start, Module)
		}
	}
}

// moduleOf returns the module path in a go.mod, or "".
func moduleOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "module "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
