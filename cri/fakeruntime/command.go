// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"strings"
)

// program is a command as known before its start.
type program struct {
	life       Life
	pause      bool // waits for SIGTERM and ends well then
	ignoreTerm bool
	missing    bool // cannot be started
}

// idle is the program of a container made by the direct methods.
var idle = &program{}

// missingCommand is the program missing from every image, for clients that want a failing start.
const missingCommand = "/does/not/exist"

// runAhead works out the program of a command. It knows
//
//	sleep D [CODE]    for D (a Go duration, seconds, or infinity), then exits with CODE or 0
//	exit N            at once, with code N
//	true, false       at once, with code 0 or 1
//	echo              at once; nothing keeps the output
//	sh -c SCRIPT      the commands above, joined by ; && or newlines (also bash)
//
// The name of the program can have a path. Any other command or script runs until stopped; pause
// then ends with code 0, and /does/not/exist cannot be started at all. A known command with
// senseless arguments is an error.
func runAhead(argv []string) (*program, error) {
	p := &program{}
	if len(argv) == 0 {
		return p, nil
	}
	p.missing = argv[0] == missingCommand
	p.pause = programName(argv[0]) == "pause" || len(argv) > 1 && argv[1] == "pause"
	if len(argv) > 1 && (argv[1] == "sleep" || argv[1] == "exit") && programName(argv[0]) != "echo" {
		argv = argv[1:] // a tool image whose entry point takes the command as arguments
	}
	var err error
	if name := programName(argv[0]); (name == "sh" || name == "bash") && len(argv) > 2 && argv[1] == "-c" {
		p.life, err = lifeOfScript(argv[2])
	} else {
		p.life, err = lifeOfCommand(argv)
	}
	return p, err
}

func programName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// lifeOfCommand returns the life of a single command.
func lifeOfCommand(argv []string) (life Life, err error) {
	switch programName(argv[0]) {
	case "true", ":", "echo":
		return After(0, 0), nil
	case "false":
		return After(0, 1), nil
	case "exit":
		life.Ends = true
		if len(argv) > 1 {
			life.ExitCode, err = parseExitCode(argv[1])
		}
	case "sleep":
		if len(argv) < 2 || len(argv) > 3 {
			return life, fmt.Errorf("%q: write sleep DURATION [EXIT-CODE]", strings.Join(argv, " "))
		}
		if life, err = parseLifetime(argv[1]); err == nil && len(argv) == 3 && life.Ends {
			life.ExitCode, err = parseExitCode(argv[2])
		}
	}
	return life, err
}

// separated sets the operators of a script off as words.
var separated = strings.NewReplacer("&&", " && ", ";", " ; ", "\n", " ; ")

// lifeOfScript returns the life of a script. A script with any other syntax runs until stopped.
func lifeOfScript(script string) (sum Life, err error) {
	if strings.ContainsAny(strings.ReplaceAll(script, "&&", ""), "&|<>(){}*?#~!$`\\\"'") {
		return Life{}, nil
	}
	sum.Ends = true
	var argv []string
	failed := false // before &&
	for _, word := range append(strings.Fields(separated.Replace(script)), ";") {
		if word != ";" && word != "&&" {
			argv = append(argv, word)
			continue
		}
		if len(argv) > 0 && !failed {
			step, err := lifeOfCommand(argv)
			if err != nil {
				return Life{}, fmt.Errorf("in the script %q: %w", script, err)
			}
			sum.For, sum.ExitCode = sum.For+step.For, step.ExitCode
			if !step.Ends || sum.For > maxLife {
				return Life{}, nil
			}
			if argv[0] == "exit" {
				return sum, nil
			}
		}
		argv, failed = nil, word == "&&" && sum.ExitCode != 0
	}
	return sum, nil
}
