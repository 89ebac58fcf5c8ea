// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// containerLog is the log file of a running container with output. The file stays open: a renamed
// file is written until ReopenContainerLog, as with a real runtime.
type containerLog struct {
	file  *os.File
	began time.Time // of the round of the loop
	next  int       // the index of the next line
	task  *task
}

// maxLogLine is the length from which runtimes split a line.
const maxLogLine = 16 << 10

// logs reports whether the container has a log file: the client makes the directory, or there is no
// log.
func (c *container) logs() bool {
	if !filepath.IsAbs(c.logPath) {
		return false
	}
	_, err := os.Stat(filepath.Dir(c.logPath))
	return err == nil
}

// startLog creates the log file of a starting container, and schedules its output.
func (rt *Runtime) startLog(c *container) error {
	if !c.logs() {
		return nil
	}
	file, err := openLog(c.logPath)
	if err != nil {
		return err
	}
	if len(c.program.lines) == 0 {
		return file.Close()
	}
	c.log = &containerLog{file: file, began: time.Now()}
	rt.logDue(c)
	return nil
}

// openLog opens a log file. It refuses a path that could block a writer, such as a pipe.
func openLog(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("log file %s is not a regular file", path)
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
}

// logDue writes the due lines, and schedules the next.
func (rt *Runtime) logDue(c *container) {
	l, p := c.log, c.program
	stamp := time.Unix(0, rt.stamp()).UTC().Format(time.RFC3339Nano)
	for {
		if l.next == len(p.lines) {
			if p.every == 0 {
				return
			}
			l.next, l.began = p.loop, l.began.Add(p.every)
		}
		if wait := time.Until(l.began.Add(p.lines[l.next].at)); wait > 0 {
			l.task = rt.sched.after(wait, func() { rt.logDue(c) })
			return
		}
		// A failed write loses the line, as with a real runtime.
		_, _ = l.file.WriteString(p.lines[l.next].format(stamp))
		l.next++
	}
}

// format returns the line in the format of the CRI: F ends a line, P a part of one.
func (l line) format(stamp string) string {
	stream := "stdout"
	if l.stderr {
		stream = "stderr"
	}
	var b strings.Builder
	for part := range strings.Lines(l.text) {
		text, whole := strings.CutSuffix(part, "\n")
		for len(text) > maxLogLine {
			fmt.Fprintf(&b, "%s %s P %s\n", stamp, stream, text[:maxLogLine])
			text = text[maxLogLine:]
		}
		tag := "P"
		if whole {
			tag = "F"
		}
		fmt.Fprintf(&b, "%s %s %s %s\n", stamp, stream, tag, text)
	}
	return b.String()
}

// reopenLog replaces the file of a rotated log.
func (rt *Runtime) reopenLog(c *container) error {
	if !c.logs() {
		return nil
	}
	file, err := openLog(c.logPath)
	if err != nil {
		return err
	}
	if c.log == nil {
		return file.Close()
	}
	old := c.log.file
	c.log.file = file
	return old.Close()
}

// endLog writes the output until the container's end, and closes the file.
func (rt *Runtime) endLog(c *container) {
	if c.log == nil {
		return
	}
	rt.sched.cancel(c.log.task)
	rt.logDue(c)
	rt.sched.cancel(c.log.task)
	c.log.file.Close()
	c.log = nil
}
