// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// program is the outcome of a command run ahead of time: its end, and its output over time.
type program struct {
	life  Life
	lines []line
	// every is the duration of a loop's round; the lines from loop on come again each round.
	// 0: no loop prints.
	every time.Duration
	loop  int

	who        identity
	readonly   bool // its root cannot be written
	pause      bool // waits for SIGTERM and ends well then
	ignoreTerm bool
	missing    bool // cannot be started
}

// line is something printed.
type line struct {
	at     time.Duration // after the start
	stderr bool
	text   string
}

// missingCommand is missing from every image, for clients in need of a failing start.
const missingCommand = "/does/not/exist"

// runAhead runs a command ahead of time. The known commands are
//
//	sleep D [CODE]    for D (a Go duration, seconds, or infinity), then exits with CODE or 0
//	exit N            at once, with code N
//	true, false       at once, with code 0 or 1
//	echo, id          print; id has -u, -un, -g and -G
//	touch, [ -f F ]   make a file, unless the root is read-only, and look for a file
//	sh -c SCRIPT      a SCRIPT of these (also bash, any path): ; && || newlines, quotes, $(...),
//	                  >&2, and while true; do ...; done
//
// The name of the program can have a path. Any other command or script runs until stopped; pause
// then ends with code 0, and /does/not/exist cannot be started at all. Senseless arguments of a
// known command are an error.
func runAhead(argv []string, who identity, readonly bool) (*program, error) {
	p := &program{who: who, readonly: readonly}
	if len(argv) == 0 {
		return p, nil
	}
	p.missing = argv[0] == missingCommand
	p.pause = programName(argv[0]) == "pause" || len(argv) > 1 && argv[1] == "pause"
	if len(argv) > 1 && (argv[1] == "sleep" || argv[1] == "exit") && !isKnown(argv[0]) {
		argv = argv[1:] // a tool image with an entry point that takes these as arguments
	}
	sh := &shell{who: who, readonly: readonly, files: map[string]bool{}}
	if err := sh.run(argv, false); err != nil {
		return nil, err
	}
	p.life, p.lines, p.every, p.loop = Life{Ends: true, For: sh.now, ExitCode: sh.code}, sh.lines, sh.every, sh.loop
	if sh.endless {
		p.life = Life{}
	}
	return p, nil
}

// shell runs commands in a time of its own.
type shell struct {
	who      identity
	readonly bool
	files    map[string]bool
	depth    int // of substitutions and shells within each other

	now     time.Duration
	lines   []line
	code    int32
	ended   bool // exit was called
	endless bool // a command runs until stopped
	every   time.Duration
	loop    int
}

const (
	maxScript = 16 << 10
	maxDepth  = 16
	// loopPause is the duration of a round without a sleep.
	loopPause = 100 * time.Millisecond
)

// errForeign reports a script unknown to the shell, which then runs until stopped.
var errForeign = errors.New("unknown syntax")

func programName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

func isKnown(s string) bool {
	switch programName(s) {
	case "true", ":", "false", "exit", "sleep", "echo", "id", "touch", "[", "sh", "bash":
		return true
	}
	return false
}

// over reports whether no further command is run.
func (sh *shell) over() bool { return sh.ended || sh.endless }

// run runs a command.
func (sh *shell) run(argv []string, stderr bool) (err error) {
	args := argv[1:]
	sh.code = 0
	switch programName(argv[0]) {
	case "true", ":":
	case "false":
		sh.code = 1
	case "exit":
		sh.ended = true
		if len(args) > 0 {
			sh.code, err = parseExitCode(args[0])
		}
	case "sleep":
		err = sh.sleep(argv)
	case "echo":
		newline := "\n"
		if len(args) > 0 && args[0] == "-n" {
			newline, args = "", args[1:]
		}
		sh.print(strings.Join(args, " ")+newline, stderr)
	case "id":
		text, ok := sh.who.print(strings.Join(args, " "))
		if sh.endless = !ok; ok {
			sh.print(text+"\n", stderr)
		}
	case "touch":
		for _, file := range args {
			if sh.readonly {
				sh.print("touch: "+file+": Read-only file system\n", true)
				sh.code = 1
			}
			sh.files[file] = !sh.readonly
		}
	case "[":
		sh.endless = len(args) != 3 || args[0] != "-f" || args[2] != "]"
		if !sh.endless && !sh.files[args[1]] {
			sh.code = 1
		}
	case "sh", "bash":
		if len(args) < 2 || args[0] != "-c" {
			sh.endless = true
			return nil
		}
		if err = sh.script(args[1]); errors.Is(err, errForeign) {
			sh.endless, err = true, nil
		}
		sh.ended = false
	default:
		sh.endless = true
	}
	return err
}

func (sh *shell) sleep(argv []string) error {
	if len(argv) < 2 || len(argv) > 3 {
		return fmt.Errorf("%q: write sleep DURATION [EXIT-CODE]", strings.Join(argv, " "))
	}
	life, err := parseLifetime(argv[1])
	if err == nil && len(argv) == 3 {
		sh.code, err = parseExitCode(argv[2])
	}
	sh.now += life.For
	sh.endless = !life.Ends || sh.now > maxLife
	return err
}

// print adds text to the output; text without a newline is continued.
func (sh *shell) print(text string, stderr bool) {
	if n := len(sh.lines); n > 0 && sh.lines[n-1].stderr == stderr && !strings.HasSuffix(sh.lines[n-1].text, "\n") {
		sh.lines[n-1].text += text
		return
	}
	sh.lines = append(sh.lines, line{sh.now, stderr, text})
}

// output returns the text of standard output or standard error.
func output(lines []line, stderr bool) string {
	var b strings.Builder
	for _, l := range lines {
		if l.stderr == stderr {
			b.WriteString(l.text)
		}
	}
	return b.String()
}

// token is a word, or an operator.
type token struct {
	text     string
	operator bool
}

// script runs a script. Its error wraps errForeign if a part is not known.
func (sh *shell) script(text string) error {
	if sh.depth++; len(text) > maxScript || sh.depth > maxDepth {
		return errForeign
	}
	defer func() { sh.depth-- }()
	tokens, err := sh.tokens(text)
	if err == nil {
		err = (&statements{sh, tokens}).list(true, "")
	}
	if err != nil && !errors.Is(err, errForeign) {
		return fmt.Errorf("in the script %q: %w", text, err)
	}
	return err
}

// tokens splits a script. Substitutions are run at once, which makes no difference to id.
func (sh *shell) tokens(text string) (out []token, err error) {
	var word strings.Builder
	inWord, quoted := false, false
	operator := func(text string) {
		if inWord {
			out = append(out, token{text: word.String()})
			word.Reset()
			inWord = false
		}
		if text != "" {
			out = append(out, token{text, true})
		}
	}
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch c := text[i]; {
		case strings.HasPrefix(rest, "$("):
			inner, ok := parenthesized(rest[1:])
			if !ok {
				return nil, errForeign
			}
			sub := &shell{who: sh.who, readonly: sh.readonly, files: map[string]bool{}, depth: sh.depth}
			if err := sub.script(inner); err != nil {
				return nil, err
			}
			if sub.endless || sub.now > 0 {
				return nil, errForeign
			}
			word.WriteString(strings.TrimRight(output(sub.lines, false), "\n"))
			i, inWord = i+len(inner)+2, true
		case c == '"':
			quoted, inWord = !quoted, true
		case strings.IndexByte("$`\\", c) >= 0:
			return nil, errForeign
		case quoted:
			word.WriteByte(c)
		case c == '\'':
			end := strings.IndexByte(rest[1:], '\'')
			if end < 0 {
				return nil, errForeign
			}
			word.WriteString(rest[1 : 1+end])
			i, inWord = i+1+end, true
		case c == ' ' || c == '\t':
			operator("")
		case c == ';' || c == '\n':
			operator(";")
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
			operator(rest[:2])
			i++
		case strings.HasPrefix(rest, ">&2"):
			if word.String() == "1" {
				word.Reset()
				inWord = false
			}
			operator(">&2")
			i += 2
		case strings.IndexByte("|&<>(){}*?#~!", c) >= 0:
			return nil, errForeign
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quoted {
		return nil, errForeign
	}
	operator("")
	return out, nil
}

// parenthesized returns the text between its first byte, a parenthesis, and the matching
// parenthesis.
func parenthesized(text string) (inner string, ok bool) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[1:i], true
			}
		}
	}
	return "", false
}

// statements runs the rest of a script.
type statements struct {
	*shell
	left []token
}

func (s *statements) take(operator bool, texts ...string) bool {
	for _, text := range texts {
		if len(s.left) > 0 && s.left[0] == (token{text, operator}) {
			s.left = s.left[1:]
			return true
		}
	}
	return false
}

// list handles statements up to the word end, or to the end of the script. It runs them, or only
// passes over them.
func (s *statements) list(run bool, end string) error {
	for {
		for s.take(true, ";") {
		}
		switch {
		case end != "" && s.take(false, end):
			return nil
		case len(s.left) == 0 && end == "":
			return nil
		case len(s.left) == 0:
			return errForeign
		}
		for next := run; ; {
			if err := s.command(next); err != nil {
				return err
			}
			if s.take(true, "&&") {
				next = run && s.code == 0
			} else if s.take(true, "||") {
				next = run && s.code != 0
			} else {
				break
			}
		}
	}
}

// command handles a loop or a simple command.
func (s *statements) command(run bool) error {
	if s.take(false, "while") {
		if !s.take(false, "true", ":") || !s.take(true, ";") || !s.take(false, "do") {
			return errForeign
		}
		began, first := s.now, len(s.lines)
		if err := s.list(run, "done"); err != nil {
			return err
		}
		if run && !s.over() {
			s.endless = true
			if len(s.lines) > first {
				s.every, s.loop = max(s.now-began, loopPause), first
			}
		}
		return nil
	}
	var argv []string
	stderr := false
	for len(s.left) > 0 && (!s.left[0].operator || s.left[0].text == ">&2") {
		if s.left[0].operator {
			stderr = true
		} else {
			argv = append(argv, s.left[0].text)
		}
		s.left = s.left[1:]
	}
	if len(argv) == 0 {
		return errForeign
	}
	if !run || s.over() {
		return nil
	}
	return s.shell.run(argv, stderr)
}
