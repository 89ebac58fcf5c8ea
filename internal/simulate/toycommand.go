// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func (t *toySide) stream(w *world, args []string) error {
	r := t.toy
	switch args[0] {
	case "cut":
		r.cutStreams(errVirtual)
	case "eof":
		r.cutStreams(io.EOF)
	case "stall":
		r.mu.Lock()
		r.stalled = true
		r.mu.Unlock()
	case "ok":
		r.mu.Lock()
		r.mode = r.profile.events
		r.stalled = false
		r.mu.Unlock()
	case "refuse", "unimplemented", "empty":
		r.mu.Lock()
		r.mode = map[string]streamMode{"refuse": streamRefuse, "unimplemented": streamUnimplemented, "empty": streamEOF}[args[0]]
		end := map[string]error{"refuse": errVirtual, "unimplemented": fmt.Errorf("unknown method: %w", pleg.ErrNoEvents), "empty": io.EOF}[args[0]]
		r.breakStreams(end)
		r.mu.Unlock()
	case "replay":
		n := 8
		if len(args) > 1 {
			n, _ = strconv.Atoi(args[1])
		}
		r.replay(n)
	default:
		return errUsage
	}
	return nil
}

var phases = map[string]pleg.Phase{
	"Unknown": pleg.PhaseUnknown,
	"Created": pleg.PhaseCreated,
	"Running": pleg.PhaseRunning,
	"Exited":  pleg.PhaseExited,
	"Removed": pleg.PhaseRemoved,
}

func (t *toySide) claim(w *world, args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	phase, ok := phases[args[2]]
	if !ok {
		return errUsage
	}
	c := pleg.Claim[Status]{
		Pod:  cache.UID(args[0]),
		Item: pleg.Item{ID: args[1], Kind: t.kind(args[1]), Phase: phase},
	}
	for _, a := range args[3:] {
		id, name, _ := strings.Cut(a, "=")
		p, ok := phases[name]
		if !ok {
			return errUsage
		}
		c.Payload = append(c.Payload, pleg.Item{ID: id, Kind: t.kind(id), Phase: p})
	}
	if c.Pod == "-" {
		c.Pod = ""
	}
	if items := c.Payload; len(items) > 0 {
		c.Status = advanced(c.Pod, items, make([]string, len(items)))
	}
	w.truth.Mention(c.Pod)
	owner, _ := w.truth.phaseOf(c.Item.ID)
	w.oracle.mood(time.Now(), c.Pod, owner)
	for _, it := range c.Payload {
		owner, _ := w.truth.phaseOf(it.ID)
		w.oracle.mood(time.Now(), owner)
	}
	t.toy.say(c)
	t.toy.upset(time.Now().Add(w.settings.grace + 50*time.Millisecond))
	return nil
}

// flood sends claims of invented IDs in a row.
func (t *toySide) flood(w *world, args []string) error {
	n, err := strconv.Atoi(args[0])
	pods := 1
	over := time.Duration(0)
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch {
		case err != nil:
		case key == "pods":
			pods, err = strconv.Atoi(value)
		case key == "over":
			over, err = time.ParseDuration(value)
		default:
			err = errUsage
		}
	}
	if err != nil || n < 1 || n > 100_000 || pods < 1 || over < 0 {
		return errUsage
	}
	for i := range min(n, pods) {
		w.oracle.mood(time.Now().Add(over), cache.UID(fmt.Sprintf("flood%d", i)))
	}
	t.toy.mu.Lock()
	for i := range n {
		uid := cache.UID(fmt.Sprintf("flood%d", i%pods))
		if i < pods {
			w.truth.Mention(uid)
		}
		c := pleg.Claim[Status]{
			Pod: uid,
			Item: pleg.Item{
				ID:    fmt.Sprintf("flood-%d", i),
				Kind:  pleg.Container,
				Phase: pleg.PhaseRunning,
			},
			CreatedAt: t.toy.wall(),
		}
		for _, s := range t.toy.subs {
			s.put(delivery{due: time.Now().Add(time.Duration(i) * over / time.Duration(n)), claim: c})
		}
	}
	t.toy.mu.Unlock()
	t.toy.upset(time.Now().Add(over + w.settings.grace + 50*time.Millisecond))
	return nil
}

func (t *toySide) kind(id string) pleg.Kind {
	if strings.HasPrefix(id, "s") {
		return pleg.Sandbox
	}
	return pleg.Container
}

func (t *toySide) reads(args []string) error {
	r := t.toy
	if len(args) < 2 {
		return errUsage
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := map[string]*readFault{"list": &r.list, "pod": &r.pods, "inspect": &r.inspect}[args[0]]
	if f == nil {
		return errUsage
	}
	f.release()
	*f = readFault{}
	if names, ok := strings.CutPrefix(args[len(args)-1], "only="); ok {
		f.only = make(map[cache.UID]struct{})
		for name := range strings.SplitSeq(names, ",") {
			f.only[cache.UID(name)] = struct{}{}
		}
		args = args[:len(args)-1]
	}
	if len(args) < 2 {
		return errUsage
	}
	switch args[1] {
	case "ok":
	case "fail":
		f.err = errVirtual
	case "hang":
		f.hang = true
	case "empty":
		n, err := strconv.Atoi(strings.Join(args[2:], ""))
		if err != nil || f != &r.list {
			return errUsage
		}
		f.none = n
	case "slow", "late":
		d, err := one(args[2:])
		if err != nil {
			return err
		}
		f.slow = d
		if args[1] == "late" {
			f.slow = 0
			f.late = d
		}
	default:
		return errUsage
	}
	t.toy.upset(time.Now())
	return nil
}
