// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
)

// notLedgers makes what may be at the path of a ledger by mistake or malice, each with a word of
// the refusal.
var notLedgers = map[string]struct {
	make func(path string) error
	says string
}{
	"a folder": {func(path string) error {
		return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "precious"), nil, 0o600))
	}, "is a folder"},
	"a pipe":              {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is a named pipe"},
	"a link to a ledger":  {linked(`{"version":1,"since":"2026-01-01T00:00:00Z"}`), "is a symbolic link"},
	"a link to a damaged": {linked(`{"version":1,"since":"2026-`), "is a symbolic link"},
	"a link to nothing":   {func(path string) error { return os.Symlink(path+".none", path) }, "is a symbolic link"},
	"a socket": {func(path string) error {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		listener.SetUnlinkOnClose(false)
		return listener.Close()
	}, "is a socket"},
	"a text":            {holding("Dear diary"), "is no ledger"},
	"another's JSON":    {holding(`{"name":"x"}`), "is no ledger"},
	"another's version": {holding(`{"version":1,"packages":{}}`), "is no ledger"},
	"only a version":    {holding(`{"version":1}`), "is no ledger"},
	"a list":            {holding(`[]`), "is no ledger"},
	"zeros":             {holding("\x00\x00"), "is no ledger"},
	"much of a text":    {holding(strings.Repeat("Dear diary\n", 1000)), "is no ledger"},
	"a huge disk": {func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxLedger+1))
	}, "is no ledger"},
}

// holding returns a maker of a file with a content.
func holding(content string) func(path string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
}

// linked returns a maker of a link to a file with a content.
func linked(content string) func(path string) error {
	return func(path string) error {
		return errors.Join(holding(content)(path+".other"), os.Symlink(path+".other", path))
	}
}

// TestWhatIsNoLedgerStays: a reporter whose path leads to anything but a ledger is not made, and
// one that was made before does not run. Nothing blocks, or is renamed or replaced.
func TestWhatIsNoLedgerStays(t *testing.T) {
	for name, c := range notLedgers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "r.json")
			g := &slowReads{statuses: cache.New[Pod](nil)}
			config := Config[Pod]{
				Generator: g,
				Statuses:  g.statuses,
				View:      func(p *Pod) Pod { return *p },
				Recorder:  &reasons{},
				Path:      path,
			}
			made := must(New(config))(t) // there is no file yet
			check(t, c.make(path))
			before := must(os.Lstat(path))(t)
			_, late := New(config)
			for _, err := range []error{CheckPath(path), late, made.Run(ended(t))} {
				if text := fmt.Sprint(err); !strings.Contains(text, path) || !strings.Contains(text, c.says) {
					t.Errorf("%v: want the path, and %q", err, c.says)
				}
			}
			check(t, made.Save(0)) // writes nothing
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it has gone from its place: %v, %v", after, err)
			}
			if _, err := os.Lstat(path + ".bad"); err == nil {
				t.Error("it is put aside")
			}
		})
	}
}

// TestNoRoomBesideTheLedger: a path beside which the other files of a ledger cannot be made is
// refused, as each write would fail.
func TestNoRoomBesideTheLedger(t *testing.T) {
	dir := t.TempDir()
	for _, suffix := range []string{".new", ".lock", ".bad"} {
		path := filepath.Join(dir, "of"+suffix)
		check(t, os.MkdirAll(filepath.Join(path+suffix, "precious"), 0o700))
		if text := fmt.Sprint(CheckPath(path)); !strings.Contains(text, path+suffix+" is a folder") {
			t.Errorf("%s: %s", suffix, text)
		}
	}
	const longest = 250
	if text := fmt.Sprint(CheckPath(filepath.Join(dir, strings.Repeat("a", longest+1)))); !strings.Contains(text, "250 bytes at most") {
		t.Errorf("a name of %d bytes: %s", longest+1, text)
	}
	path := filepath.Join(dir, strings.Repeat("a", longest))
	check(t, CheckPath(path))
	r := newRecord(time.Now())
	check(t, saveLedger(path, &r))
	file := must(lock(path))(t)
	check(t, file.Close())
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestAFileWithoutAccessStays: what cannot be read may be anybody's.
func TestAFileWithoutAccessStays(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	path := filepath.Join(t.TempDir(), "r.json")
	check(t, os.WriteFile(path, nil, 0))
	if _, err := loadLedger(path, start); refusal(err) == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want a refusal that names the file", err)
	}
}

// TestACutLedgerIsPutAside: wherever a write of the ledger was cut off, the reporter goes on.
func TestACutLedgerIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	check(t, saveLedger(path, &record{Version: 17, Since: start, Reported: map[string]time.Time{"id": start}}))
	whole := must(os.ReadFile(path))(t)
	for n := range len(whole) + 1 {
		check(t, os.WriteFile(path, whole[:n], 0o600))
		check(t, CheckPath(path))
		r, err := loadLedger(path, start)
		if err == nil || refusal(err) != nil || !r.Since.Equal(start) {
			t.Errorf("%s: %+v, %v, want it put aside", whole[:n], r, err)
		}
		check(t, os.Remove(path+".bad"))
	}
}

// TestAHugeLedgerIsPutAside: of a file above the bound only the beginning is read.
func TestAHugeLedgerIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	check(t, saveLedger(path, &record{Version: ledgerVersion, Since: start}))
	check(t, os.Truncate(path, maxLedger+1))
	if _, err := loadLedger(path, start); err == nil || !strings.Contains(err.Error(), "bytes, more than") {
		t.Errorf("%v, want the size", err)
	}
	if _, err := os.Stat(path + ".bad"); err != nil {
		t.Error(err)
	}
}

// TestALedgerOfNonsense: a reporter begins with whatever a ledger says, and ends in order. It tells
// of ends that it leaves out.
func TestALedgerOfNonsense(t *testing.T) {
	for field, leftOut := range map[string]uint64{
		`"reported":null`: 0,
		`"reported":{"":"0001-01-01T00:00:00Z","a":"9999-12-31T23:59:59Z"}`: 1,
		`"unsent":[{}]`: 1,
		`"unsent":[{"kind":"none","attempt":4294967295,"exitCode":-2147483648,"codeKnown":true,"finishedAt":"9999-12-31T23:59:59Z"}]`: 1,
		`"unsent":[{"kind":"SandboxDied","running":null,"pod":{"UID":"u","Namespace":"ns","Name":"p"}}]`:                              1,
		`"unsent":[{"kind":"SandboxDied","id":"s","running":null,"pod":{"uid":"u","namespace":"ns","name":"p"}}]`:                     0,
		`"combined":[{},{"namespace":"ns","kind":"ContainerFailed","ends":-1}]`:                                                       1,
		`"settling":[{},{"id":"a","startedAt":"9999-12-31T23:59:59Z","labels":null}]`:                                                 1,
		`"settling":null,"combined":null,"unsent":null`:                                                                               0,
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "r.json")
			check(t, holding(`{"version":1,"since":"9999-01-01T00:00:00Z",`+field+`}`)(path))
			ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logr.Discard()), time.Minute)
			defer cancel()
			r := ledgerOnly(t, path)
			if err := r.Run(ctx); err != nil || r.Stats().LedgerErrors != leftOut {
				t.Errorf("%s: %v, %+v, want %d errors", field, err, r.Stats(), leftOut)
			}
			kept, err := loadLedger(path, time.Now())
			if err != nil || kept.Since.After(time.Now()) {
				t.Errorf("%s: the ledger is %+v, %v", field, kept, err)
			}
		})
	}
}
