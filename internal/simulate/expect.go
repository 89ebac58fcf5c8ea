// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// expect checks, in strict mode:
//
//	expect events [p1 ContainerStarted c1, …]   events since the last such line, in order
//	expect cache p1 [s1=Running c1=Exited] [error]
//	expect content p1 [s1=0 c1=2]               versions of the content in the cache
//	expect state Connected
//	expect period 1s
//	expect health ok, expect health bad
//	expect waiter w1 blocked|done|cancelled|error
//	expect stat Missed 1                        a field of Stats; NAME<N and NAME>N compare
//	expect lists<12                             lists of everything so far; also pods, statuses, the
//	                                            most reads at once, and warnings
func (w *world) expect(args []string) error {
	w.rest()
	if len(args) == 0 {
		return errUsage
	}
	what := args[0]
	rest := args[1:]
	if what == "events" {
		return w.expectEvents(strings.Join(rest, " "))
	}
	if what == "cache" {
		return w.expectCache(rest)
	}
	if what == "content" {
		return w.expectContent(rest)
	}
	if what == "waiter" {
		return w.expectWaiter(rest)
	}
	if w.system == nil {
		return errStopped
	}
	switch what {
	case "state":
		return same("state", w.system.Stats().State.String(), strings.Join(rest, " "))
	case "period":
		return same("period", w.system.Stats().RelistPeriod.String(), strings.Join(rest, " "))
	case "health":
		got := "ok"
		if w.system.Health() != nil {
			got = "bad"
		}
		return same("health", got, strings.Join(rest, " "))
	}
	return w.expectNumber(args)
}

func same(name, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %s", name, got)
	}
	return nil
}

func (w *world) expectEvents(want string) error {
	w.toldMu.Lock()
	told := w.told
	w.told = nil
	w.toldMu.Unlock()
	got := strings.Join(told, ", ")
	w.trace = append(w.trace, "expect events "+got)
	if got != strings.TrimSpace(want) && !w.opts.Update {
		return fmt.Errorf("it told: %s", got)
	}
	return nil
}

func (w *world) expectCache(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	items, err := w.store.Get(cache.UID(args[0]))
	var got []string
	for _, it := range items {
		got = append(got, w.side.name(it.ID)+"="+it.Phase.String())
	}
	slices.Sort(got)
	if err != nil {
		got = append(got, "error")
	}
	want := slices.Clone(args[1:])
	slices.SortFunc(want, func(a, b string) int {
		if (a == "error") != (b == "error") {
			return map[bool]int{true: 1, false: -1}[a == "error"]
		}
		return strings.Compare(a, b)
	})
	w.trace = append(w.trace, "expect cache "+strings.Join(append([]string{args[0]}, got...), " "))
	if !slices.Equal(got, want) && !w.opts.Update {
		return fmt.Errorf("the cache shows %s", strings.Join(got, " "))
	}
	return nil
}

// expectContent compares the content of a status in the cache.
func (w *world) expectContent(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	var got []string
	for _, f := range w.store.Fields(cache.UID(args[0])) {
		got = append(got, w.side.name(f.ID)+"="+f.Text)
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(args[1:]))
	if !slices.Equal(got, want) {
		return fmt.Errorf("the cache shows the content %s", strings.Join(got, " "))
	}
	return nil
}

func (w *world) expectWaiter(args []string) error {
	if len(args) != 2 || w.byName[args[0]] == nil {
		return errUsage
	}
	x := w.byName[args[0]]
	x.mu.Lock()
	defer x.mu.Unlock()
	got := "done"
	switch {
	case !x.done:
		got = "blocked"
	case x.err != nil && strings.Contains(x.err.Error(), "no newer read"):
		got = "cancelled"
	case x.err != nil:
		got = "error"
	}
	return same("the waiter", got, args[1])
}

// expectNumber compares a number: NAME N, NAME<N or NAME>N.
func (w *world) expectNumber(args []string) error {
	text := strings.Join(args, " ")
	text = strings.TrimPrefix(text, "stat ")
	i := strings.IndexAny(text, " <>")
	if i < 0 {
		return errUsage
	}
	name := text[:i]
	op := text[i]
	want, err := strconv.Atoi(strings.TrimSpace(text[i+1:]))
	if err != nil {
		return errUsage
	}
	got, ok := w.number(name)
	if !ok {
		return errUsage
	}
	if op == ' ' && got != want || op == '<' && got >= want || op == '>' && got <= want {
		return fmt.Errorf("%s is %d", name, got)
	}
	return nil
}

// number returns a count of calls, a field of Stats or an age in seconds by its name.
func (w *world) number(name string) (int, bool) {
	w.boundary.mu.Lock()
	lists := w.boundary.lists
	reads := w.boundary.podReads
	statuses := w.boundary.statuses
	most := w.boundary.most
	warnings := w.boundary.warnings
	w.boundary.mu.Unlock()
	s := w.system.Stats()
	n, ok := map[string]int{
		"lists":         lists,
		"pods":          reads - statuses,
		"statuses":      statuses,
		"most":          most,
		"warnings":      warnings,
		"Running":       s.ContainersBy[pleg.PhaseRunning],
		"Exited":        s.ContainersBy[pleg.PhaseExited],
		"Discarded":     s.DiscardedClaims,
		"LastRelistAge": int(time.Since(s.LastRelist).Seconds()),
		"GlobalAge":     int(time.Since(s.GlobalTime).Seconds()),
	}[name]
	if field := reflect.ValueOf(s).FieldByName(name); field.IsValid() && field.CanInt() {
		return int(field.Int()), true
	}
	return n, ok
}
