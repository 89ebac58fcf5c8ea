// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// TestCopiesCanBeRun starts copies while others are made, as nodes that start at the same time do.
func TestCopiesCanBeRun(t *testing.T) {
	dir := t.TempDir()
	var nodes sync.WaitGroup
	for i := range 20 {
		nodes.Go(func() {
			file := filepath.Join(dir, strconv.Itoa(i))
			if err := copyProgram(file); err != nil {
				t.Error(err)
			} else if out, err := exec.Command(file, "-test.run=^$").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	nodes.Wait()
}
