// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/picture"
)

// checkPlot finds out before the run that a picture cannot be written after it.
func checkPlot(path string) error {
	if path == "" {
		return nil
	}
	if filepath.Ext(path) != ".svg" {
		return fmt.Errorf("--plot %s: only .svg pictures can be written", path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("--plot %s: there is no directory %s", path, filepath.Dir(path))
	}
	return nil
}

func writePlot(path string, result *bench.Result) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	if err := errors.Join(picture.Latency(f, result), f.Close()); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}
