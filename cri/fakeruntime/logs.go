// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// startLog creates the log file of a starting container, and schedules its output. The client makes
// the directory, or there is no log.
func (rt *Runtime) startLog(c *container) error {
	if err := rt.writeLog(c, ""); err != nil {
		return err
	}
	for _, l := range c.program.lines {
		rt.sched.after(l.at, func() {
			if c.state == StateRunning {
				_ = rt.writeLog(c, l.text) // a failed write loses the line, as with a real runtime
			}
		})
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
		_, err = fmt.Fprintf(file, "%s stdout F %s", time.Unix(0, rt.stamp()).UTC().Format(time.RFC3339Nano), text)
	}
	return err
}
