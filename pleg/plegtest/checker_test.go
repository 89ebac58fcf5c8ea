// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package plegtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const pod cache.UID = "p"

func container(id string, phase pleg.Phase) pleg.Item {
	return pleg.Item{ID: id, Kind: pleg.Container, Phase: phase, Name: "app"}
}

func sandbox(id string, phase pleg.Phase) pleg.Item {
	return pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: phase}
}

// shows is a status of the pod.
func shows(items ...pleg.Item) Pod { return NewPod(pod, items...) }

func event(t pleg.EventType) pleg.Event { return pleg.Event{Pod: pod, ID: "c", Type: t} }

var (
	unknown = container("c", pleg.PhaseUnknown)
	created = container("c", pleg.PhaseCreated)
	running = container("c", pleg.PhaseRunning)
	exited  = container("c", pleg.PhaseExited)
	removed = container("c", pleg.PhaseRemoved)
	podSync = pleg.Event{Pod: pod, Type: pleg.PodSync}
)

// rest is the cache and the runtime in agreement.
func rest(c *Checker, items ...pleg.Item) { c.Rest([]Pod{shows(items...)}, []Pod{shows(items...)}) }

// TestEachFaultIsConvicted feeds histories with a single violation.
func TestEachFaultIsConvicted(t *testing.T) {
	for name, test := range map[string]struct {
		fault   Fault
		says    string
		history func(*Checker)
	}{
		"an event twice": {Repeated, "ContainerStarted of c", func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			c.Event(event(pleg.ContainerStarted), shows(running))
		}},
		"a start after the end": {Disordered, "ContainerStarted of c", func(c *Checker) {
			c.Event(event(pleg.ContainerDied), shows(exited))
			c.Event(event(pleg.ContainerStarted), shows(exited))
		}},
		"an end after the removal": {Disordered, "ContainerDied of c", func(c *Checker) {
			c.Event(event(pleg.ContainerRemoved), shows())
			c.Event(event(pleg.ContainerDied), shows())
		}},
		"an end while the cache shows it running": {Ahead, "c (app) is Running", func(c *Checker) {
			c.Event(event(pleg.ContainerDied), shows(running))
		}},
		"a removal while the cache shows it": {Ahead, "c (app) is Exited", func(c *Checker) {
			c.Event(event(pleg.ContainerRemoved), shows(exited))
		}},
		"a type of no meaning": {UnknownType, `"ContainerBorn"`, func(c *Checker) { c.Event(event("ContainerBorn"), shows(running)) }},
		"an earlier phase": {WentBack, "c (app) is Running was Exited", func(c *Checker) {
			c.Shows(shows(exited))
			c.Shows(shows(running))
		}},
		"a removed container again": {WentBack, "c (app) is Exited was Removed", func(c *Checker) {
			c.Event(event(pleg.ContainerRemoved), shows())
			c.Shows(shows(exited))
		}},
		"a removed container again, in no known state": {WentBack, "c (app) is Unknown was Removed", func(c *Checker) {
			c.Event(event(pleg.ContainerRemoved), shows())
			c.Shows(shows(unknown))
		}},
		"another phase in the runtime": {Differs, "c (app) is Exited in the runtime", func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			c.Rest([]Pod{shows(running)}, []Pod{shows(exited)})
		}},
		"no event of a start": {Lost, "c (app) is Running", func(c *Checker) { rest(c, running) }},
		"no event of an end": {Lost, "c (app) is Exited", func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			rest(c, exited)
		}},
		"no event of a removal": {Lost, "c is gone", func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			rest(c)
		}},
		"no event after a PodSync": {Lost, "c (app) is Exited", func(c *Checker) {
			c.Event(podSync, shows(running))
			rest(c, exited)
		}},
		"two containers of a name": {StartedTwice, "runs as c and as d", func(c *Checker) {
			c.Changed(pod, running)
			c.Changed(pod, container("d", pleg.PhaseRunning))
		}},
		"two sandboxes": {StartedTwice, "runs as s and as t", func(c *Checker) {
			c.Changed(pod, sandbox("s", pleg.PhaseRunning))
			c.Changed(pod, sandbox("t", pleg.PhaseRunning))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Checker
			test.history(&c)
			found := c.Violations()
			if len(found) != 1 || found[0].Fault != test.fault || found[0].Pod != pod || !strings.Contains(found[0].What, test.says) {
				t.Errorf("%q, want a single violation %s with %q", found, test.fault, test.says)
			}
			if c.Count() != 1 || c.Count(test.fault) != 1 || c.Err() == nil {
				t.Errorf("%d violations, %d of %s, error %v", c.Count(), c.Count(test.fault), test.fault, c.Err())
			}
		})
	}
}

// TestRightHistoriesPass feeds histories that come near a violation.
func TestRightHistoriesPass(t *testing.T) {
	for name, history := range map[string]func(*Checker){
		"a whole life": func(c *Checker) {
			for _, item := range []pleg.Item{created, running, exited, removed} {
				c.Changed(pod, item)
			}
			c.Shows(shows(created))
			c.Shows(shows(running))
			c.Event(event(pleg.ContainerStarted), shows(running))
			c.Shows(shows(exited))
			c.Event(event(pleg.ContainerDied), shows(exited))
			rest(c, exited)
			c.Event(event(pleg.ContainerRemoved), shows())
			rest(c)
		},
		"an end found late": func(c *Checker) {
			c.Event(event(pleg.ContainerDied), shows(exited))
			rest(c, exited)
		},
		"a container never started": func(c *Checker) { rest(c, created) },
		"a state that the runtime does not know": func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			c.Shows(shows(running))
			c.Shows(shows(unknown))
			c.Shows(shows(running))
			rest(c, unknown)
		},
		"a start of which the runtime has lost track since": func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(unknown))
		},
		"a cache ahead of Watch": func(c *Checker) { c.Event(event(pleg.ContainerStarted), shows(exited)) },
		"an older status beside an error": func(c *Checker) {
			older := shows(exited)
			older.Err = errors.New("boom")
			c.Event(event(pleg.ContainerRemoved), older)
		},
		"an event without its status": func(c *Checker) { c.Event(event(pleg.ContainerDied), Pod{}) },
		"a PodSync in place of the end": func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			c.Event(podSync, shows(exited))
			rest(c, exited)
		},
		"a PodSync in place of a removal": func(c *Checker) {
			c.Event(event(pleg.ContainerStarted), shows(running))
			c.Event(podSync, shows())
			rest(c)
		},
		"a restart": func(c *Checker) {
			c.Changed(pod, running)
			c.Changed(pod, exited)
			c.Changed(pod, container("d", pleg.PhaseRunning))
		},
		"two containers of a pod": func(c *Checker) {
			c.Changed(pod, running)
			c.Changed(pod, pleg.Item{ID: "d", Phase: pleg.PhaseRunning, Name: "sidecar"})
			c.Changed(pod, sandbox("s", pleg.PhaseRunning))
		},
		"containers without names": func(c *Checker) {
			c.Changed(pod, pleg.Item{ID: "c", Phase: pleg.PhaseRunning})
			c.Changed(pod, pleg.Item{ID: "d", Phase: pleg.PhaseRunning})
		},
		"a start reported after the end": func(c *Checker) {
			c.Changed(pod, exited)
			c.Changed(pod, running)
			c.Changed(pod, container("d", pleg.PhaseRunning))
		},
		"the name of another pod": func(c *Checker) {
			c.Changed(pod, running)
			c.Changed("q", container("d", pleg.PhaseRunning))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c Checker
			history(&c)
			if err := c.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	type detail struct{ Code int }
	with := func(item pleg.Item, d any) Pod { return Pod{UID: pod, Items: []Item{{Item: item, Detail: d}}} }
	nameless := exited
	nameless.Name = ""
	renamed := exited
	renamed.Name = "other"
	failed := shows(exited)
	failed.Err = errors.New("boom")
	for name, test := range map[string]struct {
		cached, runtime []Pod
		want            string // empty: equal
	}{
		"another order":          {[]Pod{shows(exited, sandbox("s", pleg.PhaseExited))}, []Pod{shows(sandbox("s", pleg.PhaseExited), exited)}, ""},
		"no items are no pod":    {[]Pod{shows()}, nil, ""},
		"equal details":          {[]Pod{with(exited, detail{1})}, []Pod{with(exited, detail{1})}, ""},
		"a name on one side":     {[]Pod{shows(nameless)}, []Pod{shows(exited)}, ""},
		"missing in the cache":   {nil, []Pod{shows(exited)}, "container c (app) is Exited in the runtime and missing in the cache"},
		"left in the cache":      {[]Pod{shows(exited)}, nil, "container c (app) is Exited in the cache and gone in the runtime"},
		"another phase":          {[]Pod{shows(running)}, []Pod{shows(exited)}, "container c (app) is Exited in the runtime and container c (app) is Running in the cache"},
		"another kind":           {[]Pod{shows(sandbox("c", pleg.PhaseExited))}, []Pod{shows(exited)}, "container c (app) is Exited in the runtime and sandbox c is Exited in the cache"},
		"another name":           {[]Pod{shows(renamed)}, []Pod{shows(exited)}, "container c (app) is Exited in the runtime and container c (other) is Exited in the cache"},
		"other details":          {[]Pod{with(exited, detail{1})}, []Pod{with(exited, detail{2})}, "container c (app) is Exited {Code:2} in the runtime and container c (app) is Exited {Code:1} in the cache"},
		"twice in the cache":     {[]Pod{shows(exited, exited)}, []Pod{shows(exited)}, "container c (app) is Exited in the cache, which shows it twice"},
		"a pod in two parts":     {[]Pod{shows(exited), shows(sandbox("s", pleg.PhaseExited))}, []Pod{shows(sandbox("s", pleg.PhaseExited)), shows(exited)}, ""},
		"an error":               {[]Pod{failed}, []Pod{shows(exited)}, "the cache has an error: boom"},
		"an error of a gone pod": {[]Pod{{UID: pod, Err: failed.Err}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			for _, d := range Compare(test.cached, test.runtime) {
				found = append(found, d.What)
				if d.Fault != Differs || d.Pod != pod {
					t.Errorf("%v: fault %q of pod %q", d, d.Fault, d.Pod)
				}
			}
			if got := strings.Join(found, "; "); got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestRunning(t *testing.T) {
	var c Checker
	c.Changed(pod, created)
	c.Changed(pod, running)
	c.Changed(pod, sandbox("s", pleg.PhaseRunning))
	c.Changed(pod, exited)
	if got := c.Running(pod); len(got) != 1 || got[0].ID != "s" {
		t.Errorf("%v run, want the sandbox", got)
	}
	c.Changed(pod, sandbox("s", pleg.PhaseRemoved))
	if got := c.Running(pod); len(got) > 0 || len(c.running) > 0 {
		t.Errorf("%v run, and %d pods are held", got, len(c.running))
	}
}

// TestManyViolations counts violations beyond those that are kept, from several goroutines.
func TestManyViolations(t *testing.T) {
	var c Checker
	var group sync.WaitGroup
	for i := range 2 * Kept {
		group.Go(func() { c.Event(pleg.Event{Pod: pod, ID: fmt.Sprint(i), Type: "odd"}, Pod{}) })
	}
	group.Wait()
	if c.Count() != 2*Kept || c.Count(UnknownType) != 2*Kept || c.Count(Lost) != 0 || len(c.Violations()) != Kept {
		t.Errorf("%d violations, %d kept", c.Count(), len(c.Violations()))
	}
}

// TestEachTypeHasItsPhase: an event without its phase here would be judged by no order.
func TestEachTypeHasItsPhase(t *testing.T) {
	for eventType, want := range map[pleg.EventType]pleg.Phase{
		pleg.ContainerStarted: pleg.PhaseRunning,
		pleg.ContainerDied:    pleg.PhaseExited,
		pleg.ContainerRemoved: pleg.PhaseRemoved,
		pleg.PodSync:          pleg.PhaseUnknown,
	} {
		if got, ok := PhaseOf(eventType); got != want || !ok {
			t.Errorf("%s announces %v (%v), want %v", eventType, got, ok, want)
		}
	}
}
