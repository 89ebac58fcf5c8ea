// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// patches are the patches of a tree, in their order. An installation keeps them in into, so that an
// upgrade or a removal takes back the patches of then, not those of today.
var patches = []string{"kubelet.patch", "lists.patch", "volumes.patch", "housekeeping.patch"}

// stage is a copy of the files of a tree that the patches change. A change is made in the stage
// first; the tree is touched only once the whole change is known to work.
type stage struct {
	tree string
	dir  string
	was  map[string][]byte // the tree's files, by their paths
}

// newStage returns a stage with nothing in it. Close removes it.
func newStage(tree string) (*stage, error) {
	dir, err := os.MkdirTemp(filepath.Join(tree, path.Dir(into)), ".evented-")
	if err != nil {
		return nil, err
	}
	return &stage{tree: tree, dir: dir, was: make(map[string][]byte)}, nil
}

// prepare returns the files for a tree, and a stage of the tree.
func prepare(tree string) (files map[string]source, s *stage, err error) {
	minor, err := minorOf(tree)
	if err != nil {
		return nil, nil, err
	}
	files, err = sources(minor, boilerplate(tree))
	if err != nil {
		return nil, nil, err
	}
	s, err = newStage(tree)
	return files, s, err
}

func (s *stage) close() { _ = os.RemoveAll(s.dir) }

// patched returns the files that a patch changes.
func patched(patch []byte) (files []string) {
	for line := range bytes.Lines(patch) {
		if file, ok := changedBy(line); ok {
			files = append(files, file)
		}
	}
	return files
}

// changedBy returns the file that the lines of a patch after this one change, if the line names it.
func changedBy(line []byte) (file string, ok bool) {
	name, ok := bytes.CutPrefix(line, []byte("+++ b/"))
	return string(bytes.TrimSpace(name)), ok
}

// misfit is an error that tells something of the tree: git refuses a patch because of the lines
// that it finds, or the patch changes a file that is not there.
type misfit struct{ error }

func (m misfit) Unwrap() error { return m.error }

// accuse returns the error of a patch with words about the tree, if it tells something of the tree.
// Any other error stays as it is: a user who takes lines back by hand in a sound tree damages it.
func accuse(err error, words string) error {
	if bad := (misfit{}); errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", words, err)
	}
	return err
}

// apply applies a patch to the stage, or takes the patch back. It returns a misfit if the patch
// does not fit.
func (s *stage) apply(ctx context.Context, patch []byte, flags ...string) error {
	for _, file := range patched(patch) {
		if _, ok := s.was[file]; ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.tree, file))
		if errors.Is(err, fs.ErrNotExist) {
			return misfit{err}
		}
		if err != nil {
			return err
		}
		copied := filepath.Join(s.dir, "files", file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(copied), 0o755), os.WriteFile(copied, text, 0o644)); err != nil {
			return err
		}
		s.was[file] = text
	}
	return gitApply(ctx, filepath.Join(s.dir, "files"), patch, flags...)
}

// applyAll applies the patches among the files.
func (s *stage) applyAll(ctx context.Context, files map[string]source) error {
	for _, name := range patches {
		if _, chosen := files[name]; !chosen {
			continue
		}
		if err := s.apply(ctx, files[name].text); err != nil {
			return accuse(err, name+" does not fit the tree, which stays as it is")
		}
	}
	return nil
}

// takeBack takes back the patches of the installed PLEG, the last first.
func (s *stage) takeBack(ctx context.Context) error {
	for _, name := range slices.Backward(patches) {
		patch, err := os.ReadFile(filepath.Join(s.tree, into, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // of an older version, or of the generator alone
		}
		if err != nil {
			return err
		}
		if err := s.apply(ctx, patch, "-R"); err != nil {
			return accuse(err, fmt.Sprintf(
				"the patched lines have been changed since; take back %s by hand and remove %s",
				path.Join(into, name),
				into,
			))
		}
	}
	return nil
}

// folder is the folder of the stage for the files of into.
func (s *stage) folder() string { return filepath.Join(s.dir, "new") }

// write writes a file of into.
func (s *stage) write(name string, text []byte) error {
	file := filepath.Join(s.folder(), name)
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644))
}

// commit makes the stage the tree. If that fails halfway, the tree is as it was.
func (s *stage) commit() (err error) {
	target := filepath.Join(s.tree, into)
	old := filepath.Join(s.dir, "old")
	had := exists(target)
	has := exists(s.folder())
	defer func() {
		if err == nil {
			return
		}
		for file, text := range s.was {
			err = errors.Join(err, os.WriteFile(filepath.Join(s.tree, file), text, 0o644))
		}
		if exists(old) {
			err = errors.Join(err, os.RemoveAll(target), os.Rename(old, target))
		} else if !had {
			err = errors.Join(err, os.RemoveAll(target))
		}
	}()
	if had {
		if err := os.Rename(target, old); err != nil {
			return err
		}
	}
	if has {
		if err := os.Rename(s.folder(), target); err != nil {
			return err
		}
	}
	for _, file := range slices.Sorted(maps.Keys(s.was)) {
		text, err := os.ReadFile(filepath.Join(s.dir, "files", file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.tree, file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// install installs or upgrades, the generator with what comes after it, or alone.
func install(ctx context.Context, tree string, all bool) error {
	files, s, err := prepare(tree)
	if err != nil {
		return err
	}
	defer s.close()
	if !all {
		for _, patch := range patches[1:] {
			delete(files, patch)
		}
		maps.DeleteFunc(files, func(_ string, f source) bool { return slices.Contains(afterGenerator, f.part) })
	}
	switch target := filepath.Join(tree, into); {
	case exists(filepath.Join(target, patches[0])):
		if err := s.takeBack(ctx); err != nil {
			return err
		}
	case exists(target):
		return fmt.Errorf(
			"%s is there, and has no %s: it is not from here; remove it first",
			target,
			patches[0],
		)
	}
	if err := s.applyAll(ctx, files); err != nil {
		return err
	}
	for name, file := range files {
		if err := s.write(name, file.text); err != nil {
			return err
		}
	}
	return s.commit()
}

// uninstall takes back the applied patches and removes the packages.
func uninstall(ctx context.Context, tree string) error {
	if !exists(filepath.Join(tree, into, patches[0])) {
		return fmt.Errorf("%s has no PLEG from here: %s is missing", tree, path.Join(into, patches[0]))
	}
	s, err := newStage(tree)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.takeBack(ctx); err != nil {
		return err
	}
	return s.commit()
}

// alone keeps git from what is set up elsewhere. In a repository around the tree, paths would be
// that repository's. Settings and attributes of the machine or its user, which are also looked for
// in two folders, may convert the ends of lines and refuse or tolerate spaces.
var alone = []string{
	"GIT_DIR=/dev/null",
	"GIT_CONFIG_GLOBAL=/dev/null",
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_CONFIG_COUNT=0",
	"GIT_CONFIG_PARAMETERS=",
	"GIT_ATTR_NOSYSTEM=1",
}

// refused is git's exit status for a patch that does not fit. It has others for a patch that it
// cannot read and for what the machine lacks, and none if a signal ends it, as Ctrl-C does.
const refused = 1

// gitApply applies a patch without tolerance for other lines, which GNU patch has. It returns a
// misfit if the patch does not fit.
func gitApply(ctx context.Context, dir string, patch []byte, flags ...string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "-p1"}, append(flags, "-")...)...)
	cmd.Dir = abs
	cmd.Stdin = bytes.NewReader(patch)
	cmd.Env = append(os.Environ(), alone...)
	cmd.Env = append(cmd.Env, "HOME="+abs, "XDG_CONFIG_HOME="+abs)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("git apply was stopped, and the tree stays as it is: %w", ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("git is needed, and the tree stays as it is: install git: %w", err)
	}
	err = fmt.Errorf("git apply: %w\n%s", err, strings.TrimSpace(string(out)))
	if errors.As(err, &exit) && exit.ExitCode() == refused {
		return misfit{err}
	}
	return err
}
