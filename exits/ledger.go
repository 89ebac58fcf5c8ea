// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// record is the content of the ledger's file.
type record struct {
	Version int `json:"version"`
	// Since is when the reporter first started: earlier ends are not news.
	Since time.Time `json:"since"`
	// Reported are the IDs of ended containers that are reported, or need not be, with the time of
	// their end.
	Reported map[string]time.Time `json:"reported"`
	// Unsent are reports that the API server may not have been sent: the next process makes them again.
	Unsent []End `json:"unsent,omitempty"`
}

const (
	ledgerVersion = 1
	// maxLedger bounds the size of the file, in bytes: far more than a node's containers need.
	maxLedger = 64 << 20
)

// loadLedger reads the file. Without a file it returns a new record that begins now. An unusable
// file is renamed, and its error returned beside a new record: only the memory of earlier reports
// is lost.
func loadLedger(path string, now time.Time) (record, error) {
	fresh := record{Version: ledgerVersion, Since: now}
	if path == "" {
		return fresh, nil
	}
	data, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	switch {
	case err != nil:
	case r.Version != ledgerVersion:
		err = fmt.Errorf("its version is %d, and this program knows %d", r.Version, ledgerVersion)
	case r.Since.IsZero():
		err = errors.New("it has no field since")
	case r.Since.After(now):
		r.Since = now // the clock was set back: ends from now on are news
	}
	if err == nil {
		return r, nil
	}
	err = fmt.Errorf("exits: the ledger %s cannot be used, and is put aside as %s.bad: %w", path, path, err)
	return fresh, errors.Join(err, os.Rename(path, path+".bad"))
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxLedger {
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxLedger)
	}
	return os.ReadFile(path)
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
	if err := replace(path, escapeJSON(data)); err != nil {
		return fmt.Errorf("exits: write the ledger %s: %w", path, err)
	}
	return nil
}

// replace writes a new file beside the old file and renames the new file. Only one process writes a
// ledger: a file in the new file's place is left from a crash, or is a planted link. replace
// removes such a file rather than writing through a link.
func replace(path string, data []byte) error {
	next := path + ".new"
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
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil // the content is complete; a folder that cannot be opened cannot be synced
	}
	return errors.Join(folder.Sync(), folder.Close())
}
