// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// program is the outcome of a command run ahead of time: its end, and its output over time.
type program struct {
	life  Life
	lines []line

	pause      bool // waits for SIGTERM and ends well then
	ignoreTerm bool
	missing    bool // cannot be started
}

// line is something printed.
type line struct {
	at   time.Duration // after the start
	text string
}

// missingCommand is missing from every image, for clients in need of a failing start.
const missingCommand = "/does/not/exist"

// runAhead runs a command ahead of time. The known commands are
//
//	sleep D [CODE]    for D (a Go duration, seconds, or infinity), then exits with CODE or 0
//	exit N            at once, with code N
//	true, false       at once, with code 0 or 1
//	echo              prints
//	sh -c SCRIPT      a SCRIPT of these, separated by semicolons (also bash, any path)
//
// The name of the program can have a path. Any other command or script runs until stopped; pause
// then ends with code 0, and /does/not/exist cannot be started at all. Senseless arguments of a
// known command are an error.
func runAhead(argv []string) (*program, error) {
	p := &program{}
	if len(argv) == 0 {
		return p, nil
	}
	name := programName(argv[0])
	p.missing = argv[0] == missingCommand
	p.pause = name == "pause" || len(argv) > 1 && argv[1] == "pause"
	commands := [][]string{argv}
	switch {
	case name == "sh" || name == "bash":
		if len(argv) < 3 || argv[1] != "-c" || strings.ContainsAny(argv[2], "'\"`$\\|&<>(){}*?#~!") {
			return p, nil
		}
		commands = nil
		for _, command := range strings.FieldsFunc(argv[2], func(r rune) bool { return r == ';' || r == '\n' }) {
			commands = append(commands, strings.Fields(command))
		}
	case len(argv) > 1 && (argv[1] == "sleep" || argv[1] == "exit") && name != "echo":
		commands[0] = argv[1:] // a tool image with an entry point that takes these as arguments
	}
	life := After(0, 0)
	for _, command := range commands {
		if len(command) == 0 {
			continue
		}
		over, err := p.run(command, &life)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q: %w", strings.Join(command, " "), err)
		case !life.Ends || life.For > maxLife:
			return p, nil
		case over:
			p.life = life
			return p, nil
		}
	}
	p.life = life
	return p, nil
}

func programName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// run runs a command at the end of the life so far, which does not end if the command does not.
func (p *program) run(argv []string, life *Life) (over bool, err error) {
	args := argv[1:]
	life.ExitCode = 0
	switch programName(argv[0]) {
	case "true":
	case "false":
		life.ExitCode = 1
	case "exit":
		if len(args) > 0 {
			life.ExitCode, err = parseExitCode(args[0])
		}
		return true, err
	case "sleep":
		if len(args) < 1 || len(args) > 2 {
			return false, fmt.Errorf("write sleep DURATION [EXIT-CODE]")
		}
		slept, err := parseLifetime(args[0])
		if err == nil && len(args) == 2 {
			life.ExitCode, err = parseExitCode(args[1])
		}
		life.Ends, life.For = slept.Ends, life.For+slept.For
		return false, err
	case "echo":
		p.lines = append(p.lines, line{life.For, strings.Join(args, " ") + "\n"})
	default:
		life.Ends = false
	}
	return false, nil
}

// output returns all that the program prints.
func (p *program) output() (text string) {
	for _, l := range p.lines {
		text += l.text
	}
	return text
}

// programOf returns the program of a container made through the CRI. Annotations of the container
// come before those of its pod.
func programOf(cfg *runtimeapi.ContainerConfig, pod map[string]string) (*program, error) {
	annotation := func(key string) (string, bool) {
		s, ok := cfg.GetAnnotations()[key]
		if !ok {
			s, ok = pod[key]
		}
		return s, ok
	}
	lifetime, limited := annotation(AnnotationLifetime)
	p, err := runAhead(slices.Concat(cfg.GetCommand(), cfg.GetArgs()))
	switch {
	case err != nil && !limited:
		return nil, fmt.Errorf("command: %w", err)
	case err != nil:
		p = &program{}
	}
	if limited {
		if p.life, err = parseLifetime(lifetime); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationLifetime, err)
		}
	}
	if s, ok := annotation(AnnotationExitCode); ok {
		if p.life.ExitCode, err = parseExitCode(s); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationExitCode, err)
		}
	}
	ignore, _ := annotation(AnnotationIgnoreTerm)
	p.ignoreTerm = ignore == "true"
	return p, nil
}
