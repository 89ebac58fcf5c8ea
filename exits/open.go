// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// opened is the ledger as a run finds it.
type opened struct {
	record record
	// err is about a damaged ledger, and a refusedError if the run must not begin.
	err error
	// lock is the locked file beside the ledger; nil: unlocked says why it is not locked, or there is
	// no ledger.
	lock     *os.File
	unlocked error
}

// openForRun locks the ledger and reads it.
func openForRun(path string, now time.Time) opened {
	if path == "" {
		return opened{record: newRecord(now)}
	}
	var o opened
	o.lock, o.unlocked = lock(path)
	if errors.Is(o.unlocked, errInUse) {
		o.err = inUse(path)
		return o
	}
	o.record, o.err = loadLedger(path, now)
	return o
}

// close gives the lock back. Nothing was written.
func (o *opened) close() {
	if o.lock != nil {
		_ = o.lock.Close()
	}
}

// holdLock takes the lock of the ledger again if its file was removed, and takes it if it could not
// be had before: the disk was full, for one. It returns an error if another reporter has the lock
// by now: then the ledger is that one's. Only the writer of the ledger calls it.
func (r *Reporter[S]) holdLock() error {
	path := r.config.Path
	r.mu.Lock()
	held := r.lock
	r.mu.Unlock()
	if path == "" || isAt(held, path+lockSuffix) {
		return nil
	}
	next, err := lock(path)
	switch {
	case errors.Is(err, errInUse):
		return fmt.Errorf("exits: %w", inUse(path))
	case err != nil:
		return nil // it is written without, as from the start
	}
	r.mu.Lock()
	r.lock = next
	r.mu.Unlock()
	if held != nil {
		_ = held.Close()
	}
	return nil
}

// isAt reports whether an open file is still at its path. No file is nowhere.
func isAt(file *os.File, path string) bool {
	if file == nil {
		return false
	}
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, there)
}

// startPatience is how long a start waits for the disk with the ledger.
const startPatience = 10 * time.Second

// patiently returns what a call to the disk finds at a path. Nothing can end the call if the disk
// hangs: after startPatience patiently refuses the path, and what the call finds at last goes to
// late.
func patiently[T any](path string, call func() T, late func(T)) (found T, err error) {
	answers := make(chan T) // without room: an answer is either taken here, or late
	left := make(chan struct{})
	go func() {
		answer := call()
		select {
		case answers <- answer:
		case <-left:
			late(answer)
		}
	}()
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case found = <-answers:
		return found, nil
	case <-patience.C:
		close(left)
		return found, refuse("%s does not answer after %v, its disk hangs: see to the disk, or name another file",
			path, startPatience)
	}
}
