// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"strconv"
	"strings"
	"time"
)

// Commands for histories of many pods, and of work that takes time.

// maxEach is the most repetitions of a command.
const maxEach = 10_000

// each runs a command once for each number of a range, without letting anything happen in between.
func (w *world) each(args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	from, to, ok := strings.Cut(args[0], "..")
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if !ok || err1 != nil || err2 != nil || first < 0 || last-first >= maxEach {
		return errUsage
	}
	for i := first; i <= last; i++ {
		words := numbered(args[1:], i)
		var err error
		if words[0] == "expect" {
			err = w.expect(words[1:])
		} else {
			err = w.act(words[0], words[1:])
		}
		if err != nil && w.opts.Strict {
			return err
		}
	}
	return nil
}

// numbered returns the words of a command with a number for each $.
func numbered(words []string, n int) []string {
	return strings.Fields(strings.ReplaceAll(strings.Join(words, " "), "$", strconv.Itoa(n)))
}

// every runs a command a number of times, with the number of each, from 1 on, for each $, and lets
// time pass after each.
func (w *world) every(args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	d, err := one(args[:1])
	if err != nil || d <= 0 || d > time.Minute {
		return errUsage
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 1 || n > maxEach {
		return errUsage
	}
	for i := range n {
		words := numbered(args[2:], i+1)
		if err := w.act(words[0], words[1:]); err != nil && w.opts.Strict {
			return err
		}
		w.rest()
		if err := w.advance(d); err != nil {
			return err
		}
	}
	return nil
}

// served lets time pass until the cache has a status without an error of each pod, or of those
// whose UID begins with a prefix, which must be so within the given time.
func (w *world) served(args []string) error {
	of := ""
	if len(args) == 2 {
		of = args[1]
		args = args[:1]
	}
	bound, err := one(args)
	if err != nil {
		return err
	}
	if w.system == nil {
		return errStopped
	}
	begun := time.Now()
	for {
		w.rest()
		unserved := w.unserved(of)
		if unserved == 0 || w.oracle.result() != nil {
			return nil
		}
		if time.Since(begun) > bound {
			w.oracle.fail(
				"progress",
				"after %v %d pods of a runtime that answers have no status",
				time.Since(begun),
				unserved,
			)
			return nil
		}
		w.sleep(max(bound/64, time.Millisecond))
	}
}

// unserved returns the number of living pods without a status, or with an error, of those whose UID
// begins with a prefix.
func (w *world) unserved(of string) (n int) {
	for _, uid := range w.truth.UIDs() {
		live := len(w.truth.Live(uid)) > 0 && strings.HasPrefix(string(uid), of)
		items, err := w.store.Get(uid)
		if live && (err != nil || len(items) == 0) {
			n++
		}
	}
	return n
}

// reread lets the time pass after which the statuses of each pod must have been read again, pauses
// of the generator's loop apart, and checks their content.
func (w *world) reread() error {
	if w.system == nil {
		return errStopped
	}
	if w.settings.reread <= 0 {
		return nil
	}
	begun := time.Now()
	within := w.settings.reread + w.settings.reread/4 + 2*w.settings.base
	stood := w.boundary.standstills()
	left := func() time.Duration { return time.Until(begun.Add(within + w.boundary.standstills() - stood)) }
	for left() > 0 {
		w.sleep(left()/4 + time.Millisecond)
		w.rest()
		if w.oracle.result() != nil {
			return nil
		}
	}
	if !w.side.restless() { // another kind may have reads hang since all was at rest
		w.oracle.contentSettled(begun)
	}
	return nil
}

// unfailed checks that an answering runtime is not accused.
func (w *world) unfailed() {
	if w.system == nil {
		return
	}
	s := w.system.Stats()
	w.boundary.mu.Lock()
	warnings := w.boundary.warnings
	most := w.boundary.most
	w.boundary.mu.Unlock()
	if s.InspectionErrors+s.RelistErrors+warnings > 0 {
		w.oracle.fail(
			"accused",
			"%d reads and %d lists of a runtime that answers have failed, and %d warnings were recorded",
			s.InspectionErrors,
			s.RelistErrors,
			warnings,
		)
	}
	if most > 2*w.settings.workers {
		w.oracle.fail(
			"herd",
			"%d reads at once of a runtime that answers, with %d workers",
			most,
			w.settings.workers,
		)
	}
}
