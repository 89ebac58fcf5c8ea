// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command workload is the only program in the image of the node e2e tests. It serves as the pause
// container and as every container's process, so the image needs no base, no shell and no registry.
//
//	workload pause             wait for a signal, reap what is orphaned to it
//	workload sleep D [code]    wait D (a Go duration) or for SIGUSR1, exit with code or 0;
//	                           143 at SIGTERM
//	workload exit N            exit with N at once
//	workload fails N CODE FILE exit with CODE at the first N runs, counted in FILE, then with 0
//	workload eat N [usr1]      touch N MiB, at once or at SIGUSR1, then wait; a lower limit makes the
//	                           kernel kill it
//
// Under the name nmeter it prints the time of day in ms, as busybox's nmeter -d0 %3t, which
// Debian's busybox lacks.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(64)
	}
}

func run(args []string) error {
	if filepath.Base(os.Args[0]) == "nmeter" {
		fmt.Println(time.Now().UTC().Format("15:04:05.000"))
		return nil
	}
	if len(args) == 0 {
		args = []string{"pause"}
	}
	verb := args[0]
	rest := args[1:]
	switch {
	case verb == "pause" && len(rest) == 0:
		pause()
	case verb == "sleep" && (len(rest) == 1 || len(rest) == 2):
		return sleep(rest)
	case verb == "exit" && len(rest) == 1:
		code, err := strconv.Atoi(rest[0])
		if err != nil {
			return fmt.Errorf("exit: %q is not a number", rest[0])
		}
		os.Exit(code)
	case verb == "fails" && len(rest) == 3:
		return fails(rest[0], rest[1], rest[2])
	case verb == "eat" && len(rest) == 1:
		return eat(rest[0])
	case verb == "eat" && len(rest) == 2 && rest[1] == "usr1":
		start := make(chan os.Signal, 1)
		signal.Notify(start, syscall.SIGUSR1)
		<-start
		return eat(rest[0])
	default:
		return fmt.Errorf(
			"unknown arguments %q; want pause | sleep D [code] | exit N | fails N CODE FILE | eat N [usr1]",
			args,
		)
	}
	return nil
}

func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func sleep(args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return fmt.Errorf("sleep: %w", err)
	}
	code := 0
	if len(args) == 2 {
		if code, err = strconv.Atoi(args[1]); err != nil {
			return fmt.Errorf("sleep: the exit code %q is not a number", args[1])
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	select {
	case <-time.After(d):
	case s := <-signals:
		if s != syscall.SIGUSR1 {
			code = 143
		}
	}
	os.Exit(code)
	return nil
}

// fails exits with the code at the first runs, which a file in a volume of the pod counts by its
// length.
func fails(times, code, file string) error {
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil {
		return fmt.Errorf("fails: the number of runs %q is not a number", times)
	}
	status, err := strconv.Atoi(code)
	if err != nil {
		return fmt.Errorf("fails: the exit code %q is not a number", code)
	}
	runs, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("fails: %w", err)
	}
	defer runs.Close()
	before, err := runs.Stat()
	if err != nil {
		return fmt.Errorf("fails: %w", err)
	}
	if before.Size() >= n {
		return nil
	}
	if _, err := runs.WriteString("x"); err != nil {
		return fmt.Errorf("fails: %w", err)
	}
	os.Exit(status)
	return nil
}

// eat touches every page, because memory that is only reserved is not charged.
func eat(arg string) error {
	mib, err := strconv.Atoi(arg)
	if err != nil {
		return fmt.Errorf("eat: %q is not a number of MiB", arg)
	}
	var held [][]byte
	for range mib {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	pause()
	fmt.Fprintln(os.Stderr, len(held))
	return nil
}
