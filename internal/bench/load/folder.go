// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// logsPrefix begins the names of folders for logs.
const logsPrefix = "pleg-bench-logs-"

// Folder is a folder for the logs of a load, and its [record]. The process keeps the record locked;
// the kernel unlocks the record when the process ends, however it ends.
type Folder struct {
	// Path is absolute.
	Path string

	state  *os.Root
	record *os.File
	runID  string
}

// MakeLogs makes a folder for the logs of a run in the folder parent, or in the folder for
// temporary files if parent is empty. The runtime must see the folder under the same path.
func MakeLogs(parent, runID string) (f *Folder, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	if err := deadmount.Check(parent); err != nil {
		return nil, fmt.Errorf("make a folder for the run (--log-directory, TMPDIR): %w", err)
	}
	dir, err := os.MkdirTemp(parent, logsPrefix)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make a folder for the run: %w", err)
	}
	f = &Folder{Path: dir, runID: runID}
	if err := f.enter(); err != nil {
		return nil, errors.Join(fmt.Errorf("record the folder of the run: %w", err), os.Remove(dir))
	}
	return f, nil
}

// enter records the folder.
func (f *Folder) enter() (err error) {
	if f.state, err = openState(true); err != nil {
		return err
	}
	f.record, err = writeRecord(f.state, f.runID, f.Path)
	if err != nil {
		return errors.Join(err, f.state.Close())
	}
	return nil
}

// Remove removes the folder of this process and its record.
func (f *Folder) Remove() error {
	defer f.state.Close()
	defer f.record.Close() // unlocks, after the record's removal
	r, err := readRecord(f.record)
	if err == nil {
		err = r.removeFolder()
	}
	return errors.Join(err, dropRecord(f.state, f.runID))
}

// Abandon leaves the folder and the record to others, as if the process had ended.
func (f *Folder) Abandon() error { return errors.Join(f.record.Close(), f.state.Close()) }

// record is what a run writes of its folder, in a file that only the same user can write. It is all
// that later runs and cleanup know of folders: nothing that a runtime shows is a path.
type record struct {
	// Logs is the absolute path of the folder.
	Logs string `json:"logs"`
	// Device and Inode identify the folder: another one in its place is not the run's.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// recordName is the name of the record of a run. A run's ID has no separators.
func recordName(runID string) string { return runID + ".json" }

// writeRecord writes the record of a run, and returns it locked.
func writeRecord(state *os.Root, runID, logs string) (f *os.File, err error) {
	if !runForm.MatchString(runID) {
		return nil, fmt.Errorf("%q is no ID of a run", runID)
	}
	info, err := os.Lstat(logs)
	if err != nil {
		return nil, err
	}
	r := record{Logs: logs}
	r.Device, r.Inode, _ = identity(info)
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	fresh := recordName(runID) + ".new"
	f, err = state.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(raw)
	if err == nil { // locked before others can find the record
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		err = state.Rename(fresh, recordName(runID))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), state.Remove(fresh))
	}
	return f, nil
}

// readRecord reads a record.
func readRecord(f *os.File) (r record, err error) {
	const most = 1 << 16 // the longest path has 4096 bytes
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil && (!filepath.IsAbs(r.Logs) || !strings.HasPrefix(filepath.Base(r.Logs), logsPrefix)) {
		err = fmt.Errorf("it names the folder %q", r.Logs)
	}
	if err != nil {
		return record{}, fmt.Errorf("the record %s of a run is broken: %w", f.Name(), err)
	}
	return r, nil
}

// dropRecord removes the record of a run, and the folder of records if it is the last.
func dropRecord(state *os.Root, runID string) error {
	if err := state.Remove(recordName(runID)); err != nil {
		return err
	}
	_ = os.Remove(state.Name()) // fails while others are in it
	return nil
}

// removeFolder removes the folder with its logs. Other files than logs stay, and the folder with
// them. A folder that is not the recorded one is left alone, whatever its path leads to.
func (r record) removeFolder() error {
	if err := deadmount.Check(r.Logs); err != nil {
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	logs, err := os.OpenRoot(r.Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	defer logs.Close()
	info, err := logs.Stat(".")
	if err != nil {
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	if device, inode, owner := identity(info); device != r.Device || inode != r.Inode || owner != os.Geteuid() {
		return fmt.Errorf("%s is not the folder that the run has made, and was left alone", r.Logs)
	}
	if err := removeLogs(logs); err != nil {
		return fmt.Errorf("remove the containers' logs in %s: %w", r.Logs, err)
	}
	parent, err := os.OpenRoot(filepath.Dir(r.Logs))
	if err != nil {
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	defer parent.Close()
	if err := parent.Remove(filepath.Base(r.Logs)); err != nil { // never a folder with content
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	return nil
}

// removeLogs removes the files of a folder that are logs.
func removeLogs(logs *os.Root) error {
	dir, err := logs.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	files, err := dir.ReadDir(-1)
	errs := []error{err}
	for _, f := range files {
		if f.Type().IsRegular() && strings.HasSuffix(f.Name(), logSuffix) {
			errs = append(errs, logs.Remove(f.Name()))
		}
	}
	return errors.Join(errs...)
}

// Owner says whether the process behind a load lives.
type Owner uint8

// States of an Owner.
const (
	// OwnerUnknown: there is no record here, as with a process in another container.
	OwnerUnknown Owner = iota
	OwnerLives
	OwnerEnded
)

// String is for people.
func (o Owner) String() string {
	return [...]string{"cannot be seen from here", "is running", "has ended"}[o]
}

// ownerOf reports whether the process of a run lives.
func ownerOf(runID string) Owner {
	state, err := openState(false)
	if err != nil {
		return OwnerUnknown
	}
	defer state.Close()
	f, owner := lockEnded(state, runID)
	if f != nil {
		_ = f.Close()
	}
	return owner
}

// lockEnded opens and locks the record of a run whose process has ended; nil for other runs.
func lockEnded(state *os.Root, runID string) (*os.File, Owner) {
	f, err := state.Open(recordName(runID))
	if err != nil {
		return nil, OwnerUnknown
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, OwnerEnded
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, OwnerLives
	}
	return nil, OwnerUnknown
}

// removeFolderOf removes the recorded folder of an ended run, and the record. A run without a
// record has none here, and that of a living process is the process's.
func removeFolderOf(runID string) error {
	state, err := openState(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer state.Close()
	f, _ := lockEnded(state, runID)
	if f == nil {
		return nil
	}
	defer f.Close()
	r, err := readRecord(f)
	if err != nil {
		return err
	}
	if err := r.removeFolder(); err != nil {
		return err
	}
	return dropRecord(state, runID)
}
