// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import "fmt"

// A Population is many similar pods.
type Population struct {
	// Pods is how many; each has Containers containers, all running.
	Pods, Containers int
	// Life is the life of every container, counted from now.
	Life Life
}

// Populate adds pods from before the first observer: no event is emitted and nothing goes into the
// history. It returns the sandbox IDs. 100,000 containers take about 160 MB and a second or two.
func (rt *Runtime) Populate(p Population) (sandboxIDs []string, err error) {
	if p.Pods < 0 || p.Containers < 0 {
		return nil, fmt.Errorf("fakeruntime: Populate: %d pods with %d containers each: neither can be negative", p.Pods, p.Containers)
	}
	if err := p.Life.validate(); err != nil {
		return nil, fmt.Errorf("fakeruntime: Populate: %w", err)
	}
	rt.lock()
	defer rt.mu.Unlock()
	if err := rt.usable("Populate"); err != nil {
		return nil, err
	}
	for range p.Pods {
		sb := rt.newSandbox(PodSpec{})
		rt.placeSandbox(sb)
		for range p.Containers {
			c := rt.newContainer(sb, ContainerSpec{Life: p.Life})
			rt.placeContainer(c)
			c.view = view{state: StateRunning, startedAt: c.createdAt}
			rt.limitLife(c)
		}
		sandboxIDs = append(sandboxIDs, sb.id)
	}
	return sandboxIDs, nil
}
