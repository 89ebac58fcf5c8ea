// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pristine makes builds of Kubernetes releases with the versions that the release itself
// names, and no others: a program that is measured beside ours, or that takes ours, must not be
// built with what our modules require.
package pristine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Module returns the text of go.mod and go.sum with which a release of Kubernetes (without the v)
// can be built from its module, which is in dir: those of the release, with the staging modules as
// they were published, because the module does not contain them. Their sums are not in go.sum.
func Module(dir, release string) (mod, sum []byte, err error) {
	minor, ok := strings.CutPrefix(release, "1.")
	if !ok {
		return nil, nil, fmt.Errorf("release %q of Kubernetes is none of v1", release)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, nil, err
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range slices.Clone(file.Replace) {
		if !strings.HasPrefix(r.New.Path, "./staging/") {
			continue
		}
		switch path := r.Old.Path; path { // DropReplace empties r
		case "k8s.io/sample-controller", "k8s.io/sample-cli-plugin": // nobody's dependency
			err = errors.Join(err, file.DropReplace(path, r.Old.Version), file.DropRequire(path))
		default:
			err = errors.Join(err, file.AddReplace(path, r.Old.Version, path, "v0."+minor))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	file.Cleanup()
	if mod, err = file.Format(); err != nil {
		return nil, nil, err
	}
	sum, err = os.ReadFile(filepath.Join(dir, "go.sum"))
	return mod, sum, err
}
