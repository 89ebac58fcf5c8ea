// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// inState gives the test a folder for records.
func inState(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "state")
	t.Setenv(StateVariable, path)
	return path
}

// ended makes the folder of a run whose process has ended, with a log.
func ended(t *testing.T, runID string) (path string) {
	t.Helper()
	f := testkit.Must(MakeLogs(t.TempDir(), runID))(t)
	testkit.Check(t, os.WriteFile(filepath.Join(f.Path, "a.log"), nil, 0o600))
	testkit.Check(t, f.Abandon())
	return f.Path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestFolders checks that the owner of a folder is known, and that nothing else of a folder whose
// owner has ended is removed than logs.
func TestFolders(t *testing.T) {
	state := inState(t)
	living := testkit.Must(MakeLogs(t.TempDir(), "living"))(t)
	dead := ended(t, "dead")
	precious := filepath.Join(dead, "precious.txt")
	testkit.Check(t, os.WriteFile(precious, nil, 0o600))
	for run, want := range map[string]Owner{"living": OwnerLives, "dead": OwnerEnded, "other": OwnerUnknown, "../dead": OwnerUnknown} {
		if got := ownerOf(run); got != want {
			t.Errorf("the owner of %s %s, want that it %s", run, got, want)
		}
	}
	if err := removeFolderOf("dead"); err == nil || !exists(precious) || exists(filepath.Join(dead, "a.log")) {
		t.Errorf("a folder that holds something else: %v", err)
	}
	for _, run := range []string{"living", "other", "", ".", "../dead"} {
		if err := removeFolderOf(run); err != nil || !exists(living.Path) {
			t.Errorf("%q: %v", run, err)
		}
	}
	if err := errors.Join(os.Remove(precious), removeFolderOf("dead"), removeFolderOf("dead"), living.Remove()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{living.Path, dead, state} {
		if exists(path) {
			t.Errorf("%s is still there", path)
		}
	}
	for _, run := range []string{"", "../x", "a/b", "A", strings.Repeat("a", 33)} {
		if f, err := MakeLogs(t.TempDir(), run); err == nil {
			t.Errorf("%q is taken for the ID of a run: %v", run, f.Remove())
		}
	}
}

// TestStateIsPrivate refuses a folder of records that others could have prepared.
func TestStateIsPrivate(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"others can write": func(path string) error { return errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777)) },
		"a link":           func(path string) error { return os.Symlink(t.TempDir(), path) },
		"another user's": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 12345, 12345))
		},
	} {
		if name == "another user's" && os.Geteuid() != 0 {
			continue // needs root; the other two are judged by the same condition
		}
		path := inState(t)
		testkit.Check(t, prepare(path))
		if _, err := MakeLogs(t.TempDir(), "a"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), StateVariable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// swap is a connection on which f is called before the first removal of a sandbox.
type swap struct {
	grpc.ClientConnInterface
	f func()
}

func (s *swap) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/RemovePodSandbox") && s.f != nil {
		s.f()
		s.f = nil
	}
	return s.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// TestSwappedFolder swaps the folder of an ended run for a link, or for another folder, while its
// pods are removed: what it leads to stays.
func TestSwappedFolder(t *testing.T) {
	for name, replace := range map[string]func(path, victim string) error{
		"by a link":   func(path, victim string) error { return os.Symlink(victim, path) },
		"by a folder": func(path, victim string) error { return os.Rename(victim, path) },
	} {
		inState(t)
		path, victim := ended(t, "run1"), filepath.Join(t.TempDir(), "victim")
		testkit.Check(
			t,
			errors.Join(os.Mkdir(victim, 0o755), os.WriteFile(filepath.Join(victim, "app.log"), nil, 0o600)),
		)
		rt := testkit.Must(fakeruntime.New(fakeruntime.Config{}))(t)
		conn := onfake.Connect(t, onfake.Memory(t, rt))
		driver := New(
			Config{
				Conn:         conn,
				RunID:        "run1",
				Pods:         1,
				Containers:   1,
				Image:        fakeruntime.WorkloadImage,
				LogDirectory: path,
			},
		)
		testkit.Check(t, driver.Setup(t.Context()))
		found := testkit.Must(Look(t.Context(), conn))(t)
		if len(found.Runs) != 1 || found.Runs[0].Owner != OwnerEnded || len(found.Strangers) > 0 {
			t.Fatalf("%+v", found)
		}
		err := found.Runs[0].Remove(t.Context(), &swap{conn, func() {
			testkit.Check(t, errors.Join(os.Rename(path, path+"-away"), replace(path, victim)))
		}})
		if err == nil || !strings.Contains(err.Error(), "is not the folder that the run has made") {
			t.Errorf("%s: %v", name, err)
		}
		if !exists(filepath.Join(path, "app.log")) {
			t.Errorf("%s: the file of somebody else is gone", name)
		}
	}
}

// TestTenants: a pod with the label of a run and another UID, or with the UID of another run, is a
// stranger, and is not removed.
func TestTenants(t *testing.T) {
	for uid, want := range map[string]string{
		"run1-0001-000001": "run1", "run1-0001-00001": "", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6": "", "": "",
		"run2-0001-000001": "", "run1-0001-000001-x": "", "run1": "",
	} {
		if got := runOf("run1", uid); got != want {
			t.Errorf("%q: of run %q, want %q", uid, got, want)
		}
	}
	if runOf("", "-0001-000001") != "" || runOf("", "") != "" {
		t.Error("nothing is of no run")
	}
}
