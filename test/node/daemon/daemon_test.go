// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// TestConfigStaysUnderBase checks that every path in the configuration of every runtime is the
// daemon's own or a program's, and nothing is left unset.
func TestConfigStaysUnderBase(t *testing.T) {
	for _, runtime := range runtimes.All() {
		t.Run(runtime.Name, func(t *testing.T) {
			dir := t.TempDir()
			c := Config{
				Base:       "/base",
				Components: components.Set{Dir: dir, RuncDir: dir, RuntimeDir: dir, Runtime: runtime},
				Image:      image.DefaultRef,
			}
			t.Setenv("PATH", dir)
			if err := os.WriteFile(filepath.Join(dir, "conmon"), nil, 0o755); err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for name := range strings.FieldsSeq(familyOf(runtime).files) {
				text, err := c.text(name)
				if err != nil {
					t.Fatal(err)
				}
				all.WriteString(text)
				for number, line := range strings.Split(text, "\n") {
					_, value, ok := strings.Cut(line, "= ")
					if !ok {
						continue
					}
					path := strings.Trim(value, `[]'"`)
					if filepath.IsAbs(path) && path != image.Entrypoint &&
						!strings.HasPrefix(path, c.Base+"/") &&
						!strings.HasPrefix(path, dir+"/") {
						t.Errorf("%s, line %d: %s is outside the daemon's directory", name, number+1, path)
					}
				}
			}
			if !strings.Contains(all.String(), image.DefaultRef) ||
				strings.Contains(all.String(), "<no value>") {
				t.Errorf(
					"the workload image is not the sandbox image, or something is unset:\n%s",
					all.String(),
				)
			}
		})
	}
}
