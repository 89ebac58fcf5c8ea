// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"time"
)

// OOMKill ends a running container with code 137, as the kernel does for lack of memory. The reason
// is Error at first, and becomes OOMKilled after the given time, without an event: containerd
// handles the exit and the kernel's notice apart. With a time of 0 the reason is there at once.
func (rt *Runtime) OOMKill(containerID string, late time.Duration) error {
	return rt.onContainer("OOMKill", containerID, func(c *container) error {
		if c.state != StateRunning {
			return fmt.Errorf("fakeruntime: OOMKill: %w: container %q is %v", ErrState, c.id, c.state)
		}
		if late <= 0 {
			rt.exit(c, exitKilled, reasonOOM, "")
			return nil
		}
		rt.exit(c, exitKilled, "", "")
		rt.sched.after(late, func() {
			_, there := rt.store.containers.get(c.id)
			if there && c.state == StateExited && c.exitCode == exitKilled {
				c.reason = reasonOOM // as in hold255
				rt.written(c)
			}
		})
		return nil
	})
}

const reasonOOM = "OOMKilled"
