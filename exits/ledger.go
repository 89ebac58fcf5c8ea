// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

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
	"time"
)

// record is the content of the ledger's file. Version and Since stay the first of its fields: a
// damaged ledger is known by them.
type record struct {
	Version int `json:"version"`
	// Since is when the reporter first started: earlier ends are not news.
	Since time.Time `json:"since"`
	// Reported are the IDs of ended containers that are reported, or need not be, with the time of
	// their end.
	Reported map[string]time.Time `json:"reported"`
	// Unsent are reports that the API server may not have been sent: the next process makes them again.
	Unsent list[End] `json:"unsent,omitempty"`
	// Combined are likewise ends that only the Events about their namespaces count.
	Combined list[combined] `json:"combined,omitempty"`
	// Settling are ends that wait for the read before their report: the next process reports those that
	// the runtime does not show any more.
	Settling list[settlingEnd] `json:"settling,omitempty"`
	// fresh: there was no ledger.
	fresh bool
	// dropped is the number of its ends that no reporter writes, or with a double.
	dropped int64
}

// settlingEnd is an end as last seen, without a note, and with the labels that its report is chosen
// by.
type settlingEnd struct {
	End
	Labels map[string]string `json:"labels,omitempty"`
}

const (
	ledgerVersion = 1
	// maxDigits is more than the digits of any version.
	maxDigits = 20
)

// ledgerBeginning is how every ledger begins, of whatever version; # stands for its digits.
const ledgerBeginning = `{"version":#,"since":"`

// refusedError is about a file that is not a ledger, or cannot be read: the file stays unchanged,
// and the reporter does not run.
type refusedError struct{ error }

// Unwrap returns what the file system says.
func (e refusedError) Unwrap() error { return e.error }

// refuse is [fmt.Errorf] for a refusedError.
func refuse(format string, args ...any) error { return refusedError{fmt.Errorf(format, args...)} }

// refusal returns the refusedError in an error, nil if there is none.
func refusal(err error) error {
	var refused refusedError
	if errors.As(err, &refused) {
		return refused
	}
	return nil
}

// CheckPath returns nil if [Config.Path] can be the path: of a ledger, also a damaged one, or of no
// file. The error names what is there instead, or says that another reporter uses the ledger.
// Nothing is changed.
//
// A disk that has not answered after ten seconds is an error, too.
func CheckPath(path string) error { return checkPath(path, lookAt) }

// checkPath is CheckPath with another way to look at the path.
func checkPath(path string, look func(path string) error) error {
	unfit, err := patiently(path, func() error { return look(path) }, func(error) {})
	return errors.Join(err, unfit)
}

// lookAt returns the refusal of a path, nil for none.
func lookAt(path string) error {
	_, err := readLedger(path)
	if err = refusal(err); err != nil || path == "" {
		return err
	}
	if errors.Is(probe(path), errInUse) {
		return inUse(path)
	}
	for _, suffix := range []string{newSuffix, lockSuffix, damagedSuffix} {
		if err := lookBeside(path, suffix); err != nil {
			return err
		}
	}
	return nil
}

// lookBeside returns the refusal of a path beside which no file of a suffix can be made.
func lookBeside(path, suffix string) error {
	info, err := os.Lstat(path + suffix)
	switch {
	case errors.Is(err, syscall.ENAMETOOLONG):
		return refuse("%s: the name is too long for the file with %s beside it: use one of %d bytes at most",
			path, suffix, maxFileName-len(lockSuffix))
	case err == nil && info.IsDir():
		return refuse("%s%s is a folder: a reporter makes a file there, so remove it, or name another ledger", path, suffix)
	}
	return nil
}

// The files beside a ledger: its next content, the lock of a reporter, and a damaged ledger.
const (
	newSuffix     = ".new"
	lockSuffix    = ".lock"
	damagedSuffix = ".bad"
)

// maxFileName is the longest name of a file, in bytes, on Linux.
const maxFileName = 255

// errInUse: the lock of a ledger is taken.
var errInUse = errors.New("the ledger is in use")

// inUse returns the refusal of a ledger that another reporter uses: each would forget what the
// other has told.
func inUse(path string) error {
	return refuse("%s is in use by another process, which has locked %s%s: name another file, or end that process",
		path, path, lockSuffix)
}

// newRecord returns the content of a new ledger, which begins now.
func newRecord(now time.Time) record {
	return record{Version: ledgerVersion, Since: now, fresh: true}
}

// loadLedger reads the file. Without a file, the result is a new record, which begins now. A
// damaged ledger is renamed, and its error returned beside a new record: only the memory of earlier
// reports is lost. With a refusedError the file is another's, and is not to be replaced.
func loadLedger(path string, now time.Time) (record, error) {
	fresh := newRecord(now)
	r, err := readLedger(path)
	switch {
	case err == nil:
		if r.Since.After(now) {
			r.Since = now // the clock was set back: ends from now on are news
		}
		r.dropped = r.tidy()
		return r, nil
	case errors.Is(err, fs.ErrNotExist):
		return fresh, nil
	case refusal(err) != nil:
		return fresh, err
	}
	err = fmt.Errorf("exits: the ledger %s cannot be used, and is put aside as %s.bad: %w", path, path, err)
	return fresh, errors.Join(err, os.Rename(path, path+damagedSuffix))
}

// readLedger returns the content of the file. The error is fs.ErrNotExist without a file, a
// refusedError if the file does not even begin as a ledger, else about a damaged ledger.
func readLedger(path string) (record, error) {
	var r record
	if path == "" {
		return r, fs.ErrNotExist
	}
	file, err := openLedger(path)
	if err != nil {
		return r, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return r, refuse("%w", err)
	}
	most := info.Size()
	if most > maxLedger {
		most = int64(len(ledgerBeginning)) + maxDigits
	}
	data := make([]byte, most)
	n, err := io.ReadFull(file, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return r, refuse("%w: see to the disk, or name another file", err)
	}
	data = data[:n]
	damage := tooLarge(info.Size())
	if info.Size() <= maxLedger {
		damage = decode(data, &r)
	}
	if damage != nil && !beginsAsLedger(data) {
		return r, refuse("%s is no ledger of ends, and stays as it is: name another file, or remove this one", path)
	}
	return r, damage
}

// openLedger opens a regular file, and nothing else: another's file may be behind a link, and a
// pipe may never have a second end.
func openLedger(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noFile(path)
	case err != nil:
		return nil, refuse("%w: name a file whose folder can be searched", err)
	case !info.Mode().IsRegular():
		return nil, refuse("%s is %s: name a regular file, or one that does not exist yet", path, typeOf(info.Mode()))
	}
	// What was put in the file's place meanwhile does not block either.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refuse("%w: name a file that can be read", err)
	}
	opened, err := file.Stat()
	if err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(refuse("%s is replaced just now: only one process may use it", path), file.Close())
	}
	return file, nil
}

// noFile returns the error for a path without a file: the first write makes a file, and no folder.
func noFile(path string) error {
	folder := filepath.Dir(path)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return refuse("%s cannot be written: there is no folder %s: make the folder, or name another file", path, folder)
	}
	return fs.ErrNotExist
}

// typeOf names the type of a file that is not regular.
func typeOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "a folder"
	case fs.ModeSymlink:
		return "a symbolic link, which is not followed"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}

// decode reads a whole ledger.
func decode(data []byte, r *record) error {
	if err := unreadable(data); err != nil {
		return err
	}
	err := json.Unmarshal(data, r)
	switch {
	case err != nil:
		return brief(err)
	case r.Version != ledgerVersion:
		return fmt.Errorf("its version is %d, and this program knows %d", r.Version, ledgerVersion)
	case r.Since.IsZero():
		return errors.New("it has no field since")
	}
	return nil
}

// beginsAsLedger reports whether a file may be the rest of a damaged or cut ledger: the file is
// empty, or begins as every ledger does, as far as its text goes.
func beginsAsLedger(data []byte) bool {
	rest := strings.TrimSpace(string(data[:min(len(data), len(ledgerBeginning)+maxDigits)]))
	before, after, _ := strings.Cut(ledgerBeginning, "#")
	if len(rest) <= len(before) {
		return strings.HasPrefix(before, rest)
	}
	rest, found := strings.CutPrefix(rest, before)
	rest = strings.TrimLeft(rest, "0123456789")
	return found && strings.HasPrefix(rest, after[:min(len(rest), len(after))])
}

// saveLedger replaces the file as a whole: a reader, or a process after a crash, finds the old
// content or the new content.
func saveLedger(path string, r *record) error {
	if path == "" {
		return nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("exits: encode the ledger: %w", err)
	}
	data = escapeJSON(data)
	if err := r.unreadable(data); err != nil {
		return fmt.Errorf("exits: the ledger %s stays as it is: the new one could not be read again: %w", path, err)
	}
	if err := replace(path, data); err != nil {
		return fmt.Errorf("exits: write the ledger %s: %w", path, err)
	}
	return nil
}

// replace writes a new file beside the old file and renames the new file. Only one process writes a
// ledger: a file in the new file's place is left from a crash, or is a planted link. replace
// removes such a file rather than writing through a link.
func replace(path string, data []byte) error {
	next := path + newSuffix
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // on a full disk, its part takes room
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a rename in a folder last. Some file systems, such as some in user space, have
// no such call for folders: nobody knows when a rename lasts there.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return nil // the content is complete; a folder that cannot be opened cannot be synced
	}
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}
