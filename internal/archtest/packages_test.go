// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryPackageIsInTheArchitecture wants each folder of Go code by its path in ARCHITECTURE.md.
// Below "test" the folder of the suite is enough.
func TestEveryPackageIsInTheArchitecture(t *testing.T) {
	page := string(read(t, filepath.Join(root, "ARCHITECTURE.md")))
	folders := make(map[string]bool)
	eachFile(t, func(path string) {
		name, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".go") && !strings.Contains(path, "/testdata/") && name != "." {
			folders[name] = true
		}
	})
	if len(folders) < 50 {
		t.Fatalf("%d folders found: is this the repository's root?", len(folders))
	}
	for folder := range folders {
		named := strings.TrimPrefix(folder, "internal/")
		parts := strings.Split(folder, "/")
		if parts[0] == "test" && len(parts) > 2 {
			named = strings.Join(parts[:2], "/")
		}
		if !strings.Contains(page, "`"+named+"`") {
			t.Errorf("ARCHITECTURE.md does not name %s", folder)
		}
	}
}
