// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Life is how a container ends by itself: after For, counted from its start, with ExitCode, if
// Ends. Through the CRI it comes from the annotations [AnnotationLifetime] and
// [AnnotationExitCode], or else from the command (see [ParseCommand]).
type Life struct {
	Ends     bool
	For      time.Duration
	ExitCode int32
}

// Annotations of a container that is created through the CRI. A lifetime is a Go duration, or a
// number of seconds.
const (
	AnnotationLifetime = "fakeruntime.evented-pleg.io/lifetime"
	AnnotationExitCode = "fakeruntime.evented-pleg.io/exit-code"
)

// After is a Life that ends.
func After(d time.Duration, exitCode int32) Life { return Life{true, d, exitCode} }

// maxLife bounds lifetimes, so that they can be added to any time.
const maxLife = 100 * 365 * 24 * time.Hour

func (l Life) validate() error {
	if l.For < 0 || l.For > maxLife {
		return fmt.Errorf("lifetime %v: use 0 to %v", l.For, maxLife)
	}
	if l.ExitCode < 0 || l.ExitCode > 255 {
		return fmt.Errorf("exit code %d: use 0 to 255", l.ExitCode)
	}
	return nil
}

// ParseCommand finds out how long a command lives and how it ends. It knows
//
//	sleep D [CODE]    for D (a Go duration, seconds, or infinity), then exits with CODE or 0
//	exit N            at once, with code N
//	true, false       at once, with code 0 or 1
//	sh -c SCRIPT      a SCRIPT of these, separated by ; && or newlines (also bash, any path)
//
// The name of the program can have a path. Any other command runs until it is stopped; pause then
// ends with code 0, and /does/not/exist cannot be started at all. A known one with arguments that
// make no sense is an error.
func ParseCommand(argv []string) (Life, error) {
	if len(argv) == 0 {
		return Life{}, nil
	}
	switch program(argv[0]) {
	case "sh", "bash":
		if len(argv) >= 3 && argv[1] == "-c" {
			return parseScript(argv[2])
		}
		return Life{}, nil
	case "sleep", "exit", "true", "false":
		life, _, err := parseStep(argv)
		if err == nil && life.ExitCode < 0 {
			life.ExitCode = 0
		}
		return life, err
	}
	// A tool image whose entry point takes one of these as its arguments.
	if len(argv) > 1 {
		switch argv[1] {
		case "sleep", "exit":
			return ParseCommand(argv[1:])
		}
	}
	return Life{}, nil
}

func program(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// missingCommand is the one program that no image has; a client that wants to see a start fail runs
// it.
const missingCommand = "/does/not/exist"

func isMissing(argv []string) bool { return len(argv) > 0 && argv[0] == missingCommand }

// isPause says whether a command is one that waits for SIGTERM and ends well then.
func isPause(argv []string) bool {
	return len(argv) > 0 && (program(argv[0]) == "pause" || len(argv) > 1 && argv[1] == "pause")
}

// parseScript runs the statements of a script, as far as they can be known.
func parseScript(script string) (Life, error) {
	total := Life{Ends: true}
	statements := strings.FieldsFunc(strings.ReplaceAll(script, "&&", ";"), func(r rune) bool { return r == ';' || r == '\n' })
	for _, s := range statements {
		argv := strings.Fields(s)
		if len(argv) == 0 {
			continue
		}
		step, exits, err := parseStep(argv)
		if err != nil {
			return Life{}, fmt.Errorf("in the script %q: %w", script, err)
		}
		if !step.Ends {
			return Life{}, nil
		}
		if total.For += step.For; total.For > maxLife {
			return Life{}, nil
		}
		total.ExitCode = step.ExitCode
		if exits {
			break
		}
	}
	return total, nil
}

// parseStep is one command. exits says that nothing runs after it.
func parseStep(argv []string) (life Life, exits bool, err error) {
	name, args := program(argv[0]), argv[1:]
	switch name {
	case "true", ":":
		return Life{Ends: true}, false, nil
	case "false":
		return Life{Ends: true, ExitCode: 1}, false, nil
	case "exit":
		life.Ends = true
		if len(args) > 0 {
			life.ExitCode, err = parseExitCode(args[0])
		}
		return life, true, err
	case "sleep":
		if len(args) == 0 || len(args) > 2 {
			return Life{}, false, fmt.Errorf("%q: write sleep DURATION [EXIT-CODE]", strings.Join(argv, " "))
		}
		life, err = parseLifetime(args[0])
		if err == nil && len(args) == 2 {
			life.ExitCode, err = parseExitCode(args[1])
		}
		return life, false, err
	}
	return Life{}, false, nil
}

// parseLifetime reads a duration; infinity does not end.
func parseLifetime(s string) (Life, error) {
	switch strings.ToLower(s) {
	case "inf", "infinity":
		return Life{}, nil
	}
	var d time.Duration
	if sec, err := strconv.ParseFloat(s, 64); err == nil {
		if !(sec >= 0 && sec <= maxLife.Seconds()) {
			return Life{}, fmt.Errorf("lifetime %q: use 0 to %v", s, maxLife)
		}
		d = time.Duration(math.Round(sec * float64(time.Second)))
	} else if d, err = time.ParseDuration(s); err != nil {
		return Life{}, fmt.Errorf("lifetime %q is neither a number of seconds nor a duration such as 1m30s", s)
	}
	life := Life{Ends: true, For: d}
	return life, life.validate()
}

func parseExitCode(s string) (int32, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("exit code %q: use a number from 0 to 255", s)
	}
	return int32(n), nil
}

// lifeOf is the life of a container made through the CRI.
func lifeOf(annotations map[string]string, argv []string) (Life, error) {
	life, err := ParseCommand(argv)
	if s, ok := annotations[AnnotationLifetime]; ok {
		if life, err = parseLifetime(s); err != nil {
			return Life{}, fmt.Errorf("annotation %s: %w", AnnotationLifetime, err)
		}
	} else if err != nil {
		return Life{}, fmt.Errorf("command: %w", err)
	}
	if s, ok := annotations[AnnotationExitCode]; ok {
		if life.ExitCode, err = parseExitCode(s); err != nil {
			return Life{}, fmt.Errorf("annotation %s: %w", AnnotationExitCode, err)
		}
	}
	return life, nil
}
