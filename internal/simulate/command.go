// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

var (
	errUsage   = errors.New("that is not how the command is written")
	errNotHere = errors.New("this runtime has no such command")
	errStopped = errors.New("nothing runs: start it first")
)

// do runs a command. These are all commands but those of the runtime, its stream and its reads, in
// toyside.go and fakeside.go.
//
//	start, stop                          a generator over the cache
//	advance 5s                           time passes
//	calm                                 every fault ends
//	settle                               time passes until all is at rest and must agree
//	empty                                everything is removed, comes to rest, and is forgotten
//	served 44s [p]                       time passes until each pod, whose UID begins with p, has a
//	                                     status, within 44s
//	unfailed                             no read has failed, and nobody was warned, since the start
//	reread                               time passes until each pod must have been read again
//	each 1..500 CMD                      CMD once for each number, which replaces each $
//	every 1s 30 CMD                      CMD so often, likewise from 1 on, and time passes after each
//	wait p1 [ago=5s] [limit=2s] [wall] [phases] [as=w1]
//	                                     somebody waits in GetNewerThan, or GetPhasesNewerThan
//	keep p1 10s                          likewise, again and again 5 ms after an answer
//	cancel w1                            and gives up
//	worker p1                            a pod worker that keeps one container of the pod running
//	relist [p1], reinspect p1            requests
//	watch stall, watch resume            the reader of Watch
//	within 3 CMD                         CMD runs between two steps of the loop, the third from now
//	expect …                             see expect.go
//	agent, runtime, stream, claim, reads, clock, fault …   what happens at the runtime
func (w *world) do(verb string, args []string) error {
	switch verb {
	case "start":
		if err := w.start(); err != nil {
			return err
		}
	case "stop":
		if w.system == nil {
			return errStopped
		}
		w.stopSystem()
	case "advance":
		d, err := one(args)
		if err != nil {
			return err
		}
		return w.advance(d)
	case "calm":
		w.within.drop()
		w.side.calm(w)
		if w.boundary != nil {
			w.boundary.disturb(time.Now())
		}
	case "settle":
		return w.settle()
	case "served":
		return w.served(args)
	case "unfailed":
		w.unfailed()
	case "reread":
		return w.reread()
	case "each":
		if err := w.each(args); err != nil {
			return err
		}
	case "every":
		return w.every(args)
	case "empty":
		return w.empty()
	case "within":
		return w.doWithin(args)
	case "expect":
		return w.expect(args)
	default:
		if err := w.act(verb, args); err != nil {
			return err
		}
	}
	w.rest()
	return nil
}

// act runs a command without duration, and does not wait for its effects.
func (w *world) act(verb string, args []string) error {
	switch verb {
	case "wait":
		return w.doWait(args)
	case "keep":
		if len(args) != 2 {
			return errUsage
		}
		d, err := one(args[1:])
		if err != nil || d > 10*time.Minute {
			return errUsage
		}
		w.keepWaiting(cache.UID(args[0]), d)
	case "cancel":
		if len(args) != 1 || w.byName[args[0]] == nil {
			return errUsage
		}
		w.byName[args[0]].cancel()
	case "worker":
		if len(args) != 1 {
			return errUsage
		}
		w.work(cache.UID(args[0]))
	case "relist", "reinspect":
		return w.doRequest(verb, args)
	case "watch":
		if w.system == nil {
			return errStopped
		}
		if len(args) != 1 || args[0] != "stall" && args[0] != "resume" {
			return errUsage
		}
		w.reader.stall(args[0] == "stall")
	default:
		return w.side.command(w, verb, args)
	}
	return nil
}

// advance lets time pass, in steps so that the oracle looks now and then even if nothing happens.
func (w *world) advance(d time.Duration) error {
	if d < 0 || d > 100*time.Hour {
		return errUsage
	}
	step := max(d/16, time.Second)
	for until := time.Now().Add(d); time.Now().Before(until); {
		w.nap(min(time.Until(until), step))
		w.rest()
		if w.oracle.result() != nil {
			return nil
		}
		if w.system != nil {
			w.oracle.settled(!w.reader.stalled())
		}
	}
	return nil
}

// pause lets time pass while the loop stands within a turn, as when the agent gets no processor, or
// a callback of the agent blocks. Elsewhere the loop would run on, under the excuses of a pause.
func (w *world) pause(args []string) error {
	d, err := one(args)
	if err != nil || d <= 0 || d > time.Hour {
		return errUsage
	}
	w.oracle.pauses(d)
	w.upset(time.Now().Add(d))
	w.boundary.pauses(d)
	time.Sleep(d)
	w.oracle.lookStanding(d)
	w.oracle.resumes(d)
	w.upset(time.Now().Add(w.settings.doubt())) // what was told meanwhile may be old, and is in doubt
	w.boundary.resumes()
	return nil
}

// doWithin takes a command for a step within a turn.
func (w *world) doWithin(args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 {
		return errUsage
	}
	switch args[1] {
	case "agent", "wait", "cancel", "runtime", "claim", "relist", "reinspect", "pause":
		w.within.add(n, args[1:])
		return nil
	}
	return errUsage
}

func (w *world) doRequest(verb string, args []string) error {
	if w.system == nil {
		return errStopped
	}
	switch {
	case verb == "relist" && len(args) == 0:
		w.boundary.relist()
		w.system.RequestRelist("")
	case len(args) != 1:
		return errUsage
	case verb == "relist":
		w.truth.Mention(cache.UID(args[0]))
		w.boundary.wanted(cache.UID(args[0]), time.Now())
		w.system.RequestRelist(cache.UID(args[0]))
	default:
		w.truth.Mention(cache.UID(args[0]))
		w.boundary.reinspected(cache.UID(args[0]))
		w.system.RequestReinspect(cache.UID(args[0]))
	}
	return nil
}

func (w *world) doWait(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	var asks wish
	as := ""
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		var err error
		switch key {
		case "ago":
			asks.ago, err = time.ParseDuration(value)
		case "limit":
			asks.limit, err = time.ParseDuration(value)
		case "wall":
			asks.wall = true
		case "phases":
			asks.phases = true
		case "as":
			as = value
		default:
			err = errUsage
		}
		if err != nil {
			return err
		}
	}
	x := w.wait(cache.UID(args[0]), asks)
	if as != "" {
		w.byName[as] = x
	}
	return nil
}

func one(args []string) (time.Duration, error) {
	if len(args) != 1 {
		return 0, errUsage
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUsage, err)
	}
	return d, nil
}
