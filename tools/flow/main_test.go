// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// TestPicturesAreDrawn checks that the pictures of the documents are those that this program draws,
// and XML.
func TestPicturesAreDrawn(t *testing.T) {
	for name, colors := range palettes {
		kept, err := os.ReadFile("../../docs/flow-" + name + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		want := draw(colors)
		if string(kept) != want {
			t.Errorf("docs/flow-%s.svg is another picture: go run ./tools/flow docs", name)
		}
		for d := xml.NewDecoder(strings.NewReader(want)); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
