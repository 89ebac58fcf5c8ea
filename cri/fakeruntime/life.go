// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Life is how a container ends by itself: after For, counted from its start, with ExitCode, if
// Ends. Containers made through the CRI take their Life from the annotations [AnnotationLifetime]
// and [AnnotationExitCode], or else from their command.
type Life struct {
	Ends     bool
	For      time.Duration
	ExitCode int32
}

// Annotations of a container that is created through the CRI, or of its pod.
const (
	// AnnotationLifetime is the time until the natural end: a Go duration, or a number of seconds.
	AnnotationLifetime = "fakeruntime.evented-pleg.io/lifetime"
	// AnnotationExitCode is the exit code of the natural end.
	AnnotationExitCode = "fakeruntime.evented-pleg.io/exit-code"
	// AnnotationIgnoreTerm set to "true": the container survives until the timeout of StopContainer
	// is over.
	AnnotationIgnoreTerm = "fakeruntime.evented-pleg.io/ignore-term"
)

// After returns a Life with an end.
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
		life.Ends = slept.Ends
		life.For += slept.For
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

// startLog creates the log file of a starting container, and schedules its output. The client makes
// the directory, or there is no log.
func (rt *Runtime) startLog(c *container) error {
	if err := rt.writeLog(c, ""); err != nil {
		return err
	}
	for _, l := range c.program.lines {
		c.tasks = append(c.tasks, rt.sched.after(l.at, func() {
			if c.state == StateRunning {
				_ = rt.writeLog(c, l.text) // a failed write loses the line, as with a real runtime
			}
		}))
	}
	return nil
}

// writeLog appends a line, in the CRI's format, to the log file, which a rotation may have taken
// away. It refuses a path that could block a writer, such as a pipe.
func (rt *Runtime) writeLog(c *container, text string) error {
	if !filepath.IsAbs(c.logPath) {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(c.logPath)); err != nil {
		return nil
	}
	if info, err := os.Lstat(c.logPath); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("log file %s is not a regular file", c.logPath)
	}
	file, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer file.Close()
	if text != "" {
		_, err = fmt.Fprintf(
			file,
			"%s stdout F %s",
			time.Unix(0, rt.stamp()).UTC().Format(time.RFC3339Nano),
			text,
		)
	}
	return err
}
