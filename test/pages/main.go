// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pages makes the pages of pleg-bench and looks at them in a real browser.
//
//	go run ./test/pages [-out DIR] [-chromium PATH] [-v]
//
// It runs pleg-bench on fake runtimes (some 30 s), opens each report.html from its file in a
// headless Chromium that may reach nothing else, at 375 and 1400 pixels, light and dark, and fails
// if a page is wider than its window, a chart is not drawn, text can hardly be told from its
// ground, anything is written to the console as an error, or anything but the file itself is asked
// for. -out keeps the pictures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// bound is how long all may take.
const bound = 10 * time.Minute

func main() {
	out := flag.String("out", "", "folder for the pages and their pictures (default: none is kept)")
	chromium := flag.String("chromium", "chromium", "the browser")
	verbose := flag.Bool("v", false, "print what pleg-bench prints")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if err := run(ctx, *out, *chromium, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, chromium string, verbose bool) (err error) {
	if _, err := exec.LookPath(chromium); err != nil {
		return fmt.Errorf("no browser: %w; on Debian: apt-get install chromium", err)
	}
	tmp, err := os.MkdirTemp("", "pages")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	pictures := out != ""
	if !pictures {
		out = filepath.Join(tmp, "out")
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	list, err := makePages(ctx, tmp, out, verbose)
	if err != nil {
		return err
	}
	b := browser{chromium, filepath.Join(tmp, "profile")}
	var errs []error
	for _, p := range list {
		for theme := range themes {
			if err := b.look(ctx, p, theme, pictures); err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", p.name, theme, err))
				continue
			}
			fmt.Printf("ok  %-10s %s\n", p.name, theme)
		}
	}
	return errors.Join(errs...)
}
