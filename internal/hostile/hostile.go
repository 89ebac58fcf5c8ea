// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile has texts that attack whoever prints them, for tests: they command a terminal,
// forge lines of a log and are enormous. [Clean] says whether a text was left unharmed.
package hostile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evented-pleg/evented-pleg/internal/printable"
)

const (
	// Venom sets the title, clears the screen, forges a line and a link, and turns the direction of
	// writing.
	Venom = "\x1b]0;owned\a\x1b[2J\r\n" + forged + "\u009b31m\x7f\x1b]8;;http://evil\a\u202e"
	// forged begins a line that the runtime wants to have in a log.
	forged = "E1125 12:00:00 FORGED"
	// MostFill is how much of a long name may be printed.
	MostFill = 5000
)

// Filler makes a text enormous.
var Filler = strings.Repeat("A", 210_000)

// Clean returns an error if a text has a character with an effect on a terminal, a forged line or a
// text of enormous length.
func Clean(text string) error {
	if n := printable.Count(text); n > 0 {
		i := strings.IndexFunc(text, func(r rune) bool { return printable.Count(string(r)) > 0 })
		return fmt.Errorf(
			"%d characters that are not printable, the first in %q",
			n,
			text[max(0, i-100):min(len(text), i+100)],
		)
	}
	if strings.HasPrefix(text, forged) || strings.Contains(text, "\n"+forged) {
		return errors.New("a forged line")
	}
	if strings.Contains(text, Filler[:MostFill]) {
		return errors.New("an enormous text")
	}
	return nil
}
