// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"kube-system/ünï-çø∂é 😀 \\": "kube-system/ünï-çø∂é 😀 \\",
		"a\x1b[2Jb":                 `a\x1b[2Jb`,
		"a\nE1125 forged\r":         `a\nE1125 forged\r`,
		"\u009b31m\x7f\u202e\u2028": `\u009b31m\x7f\u202e\u2028`,
		"\xff\xfeok":                `\xff\xfeok`,
		"\u200b\ufeff\t":            `\u200b\ufeff\t`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	long := Text(strings.Repeat("é", 100_000))
	if len(long) > Most+40 || !strings.HasSuffix(long, "… (200000 bytes)") || !utf8.ValidString(long) {
		t.Errorf("%d bytes: %s", len(long), long[max(0, len(long)-60):])
	}
}

func TestLines(t *testing.T) {
	forged := errors.New("no\nE1125 forged")
	for _, test := range []struct {
		err  error
		want []string
	}{
		{forged, []string{`no\nE1125 forged`}},
		{errors.Join(forged, errors.Join(errors.New("b"))), []string{`no\nE1125 forged`, "b"}},
		{fmt.Errorf("while x: %w", errors.Join(forged, errors.New("b"))), []string{`while x: no\nE1125 forged\nb`}},
		{fmt.Errorf("%w and %w", errors.New("a"), errors.New("b")), []string{"a and b"}},
		{fmt.Errorf("%w", errors.Join(forged, errors.New("b"))), []string{`no\nE1125 forged`, "b"}},
	} {
		if got := Lines(test.err); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%q: %q, want %q", test.err, got, test.want)
		}
	}
}

// TestLog bounds and escapes the values of a log's line.
func TestLog(t *testing.T) {
	var b strings.Builder
	hostile := "\x1b]0;x\a\n" + strings.Repeat("y", 210_000)
	logger := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: LogAttr}))
	logger.Info(
		"m",
		"err",
		errors.New(hostile),
		"name",
		hostile,
		"group",
		slog.GroupValue(slog.String("a", hostile)),
	)
	if strings.Count(b.String(), "\n") != 1 || Count(b.String()) > 0 || b.Len() > 5*Most {
		t.Errorf("%d characters, %d bytes: %.300q", Count(b.String()), b.Len(), b.String())
	}
}

// TestLogOfJoinedErrors: the parts stand beside each other, each escaped once.
func TestLogOfJoinedErrors(t *testing.T) {
	err := errors.Join(errors.New("a"), errors.New("b\nforged"))
	attr := LogAttr(nil, slog.Any("err", fmt.Errorf("%w", err)))
	if got := attr.Value.String(); got != `a; b\nforged` {
		t.Errorf("%q", got)
	}
}

// FuzzText: what comes out has nothing of what a terminal obeys, is bounded, and JSON keeps the
// value.
func FuzzText(f *testing.F) {
	f.Add("a\x1b[31m\u009b\xff😀\U000e0001\n")
	f.Add(strings.Repeat("\\\"\u2028ü", 2000))
	f.Fuzz(func(t *testing.T, s string) {
		text := Text(s)
		if Count(text) > 0 || strings.ContainsAny(text, "\n\t") || len(text) > 10*Most+40 {
			t.Errorf("%q: %q", s, text)
		}
		if Text(text) != text && len(text) <= Most {
			t.Errorf("%q: escaped twice: %q", s, Text(text))
		}
		raw := testkit.Must(JSON(map[string]string{"a": s, "b" + s: "c"}, " "))(t)
		if n := Count(string(raw)); n > 0 || len(raw) > 4*MostInJSON {
			t.Errorf("%q: %d characters in %d bytes %q", s, n, len(raw), raw)
		}
		var back map[string]string
		testkit.Check(t, json.Unmarshal(raw, &back))
		encoded := testkit.Must(json.Marshal(s))(t)
		if utf8.ValidString(s) && len(encoded)-2 <= MostInJSON && back["a"] != s {
			t.Errorf("%q came back as %q", s, back["a"])
		}
	})
}
