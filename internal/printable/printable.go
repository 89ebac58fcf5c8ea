// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package printable makes untrusted text safe for terminals, logs, pages and JSON.
//
// # Model
//
// Untrusted is every text from outside of this program: names, labels and errors of a runtime, of
// an API server, of Prometheus, of a file. [Text] escapes characters with an effect on a terminal
// or a reader of a log, and cuts long texts. [JSON] does the same for encoded values, [LogAttr] for
// those of a log.
//
// # Concurrency
//
// Functions are safe for concurrent use.
//
// # Errors
//
// Only the encoding of values, and a writer's errors, fail.
package printable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Most is the length of the longest text kept whole by [Text], in bytes. The name of a pod has 253
// at most, the message of a Kubernetes Event 1024.
const Most = 1024

// Text returns an untrusted text in one line. Control characters (ESC, newlines, C1), characters
// with an effect on the direction of writing or without width, and bytes of invalid UTF-8 are
// escaped as in Go's strings. A text longer than Most is cut, and its length follows.
func Text(s string) string { return Cut(s, Most) }

// Cut is Text for another length, in bytes.
func Cut(s string, most int) string {
	tail := ""
	if len(s) > most {
		tail = fmt.Sprintf("… (%d bytes)", len(s))
		s = head(s, most)
	}
	return escape(s) + tail
}

// head returns the first bytes of a text without a part of a character at the end.
func head(s string, most int) string {
	cut := most
	for cut > 0 && cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// Texts is Text for each text of a list.
func Texts(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, Text(s))
	}
	return out
}

// Lines returns the texts of an error: one for each part of a joined error, else a single text. An
// error that wraps another without a word of its own, to mark it, has those of the other.
func Lines(err error) []string {
	if inner := errors.Unwrap(err); inner != nil && inner.Error() == err.Error() {
		return Lines(inner)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	_, wraps := err.(interface{ Unwrap() error })
	if !ok || wraps || !isJoin(err, joined.Unwrap()) {
		return []string{Text(err.Error())}
	}
	var lines []string
	for _, part := range joined.Unwrap() {
		lines = append(lines, Lines(part)...)
	}
	return lines
}

// isJoin reports whether an error adds no words of its own to its parts, as errors.Join does.
func isJoin(err error, parts []error) bool { return errors.Join(parts...).Error() == err.Error() }

// escape escapes all unprintable characters.
func escape(s string) string {
	harmless := func(r rune, size int) bool {
		broken := r == utf8.RuneError && size == 1
		return !broken && strconv.IsPrint(r)
	}
	var b strings.Builder
	last := 0 // begin of the unwritten rest
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !harmless(r, size) {
			quoted := strconv.Quote(s[i : i+size])
			b.WriteString(s[last:i])
			b.WriteString(quoted[1 : len(quoted)-1])
			last = i + size
		}
		i += size
	}
	if last == 0 {
		return s
	}
	b.WriteString(s[last:])
	return b.String()
}

// Count returns the number of characters in a text of several lines to be escaped by Text, newlines
// and tabs aside.
func Count(s string) (n int) {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		broken := r == utf8.RuneError && size == 1
		if broken || !strconv.IsPrint(r) && !ours(r) {
			n++
		}
		i += size
	}
	return n
}

// ours reports whether an unprintable character forms our own lines and tables.
func ours(r rune) bool { return r == '\n' || r == '\t' }

// JSON returns the encoding of a value, with the indent unless empty, and a newline. Unprintable
// characters are escaped, without a change of the value. Only strings of more than MostInJSON bytes
// are cut, as by Text.
func JSON(v any, indent string) ([]byte, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return []byte(escapeJSON(b.String())), nil
}

// MostInJSON is the length of the longest string kept whole by JSON, in encoded bytes.
const MostInJSON = 4 * Most

// WriteJSON writes the encoding of JSON.
func WriteJSON(w io.Writer, v any, indent string) error {
	raw, err := JSON(v, indent)
	if err == nil {
		_, err = w.Write(raw)
	}
	return err
}

// escapeJSON escapes characters in the strings of an encoded value, which is UTF-8, and cuts long
// strings.
func escapeJSON(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		quote := strings.IndexByte(s, '"')
		if quote < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:quote+1])
		s = s[quote+1:]
		end, cut := literal(s)
		if cut < end {
			fmt.Fprintf(&b, "%s… (%d bytes)", escapeRunes(s[:cut]), end)
		} else {
			b.WriteString(escapeRunes(s[:end]))
		}
		b.WriteByte('"')
		s = s[end+1:]
	}
	return b.String()
}

// literal returns the length of the string literal at the begin of a text, without its quote, and
// the place of a cut.
func literal(s string) (end, cut int) {
	for end < len(s) && s[end] != '"' {
		size := 1
		switch {
		case strings.HasPrefix(s[end:], `\u`):
			size = len(`\u0000`)
		case s[end] == '\\':
			size = len(`\n`)
		case s[end] >= utf8.RuneSelf:
			_, size = utf8.DecodeRuneInString(s[end:])
		}
		end += size
		if end <= MostInJSON {
			cut = end
		}
	}
	return end, cut
}

// escapeRunes escapes the unprintable characters of a JSON string.
func escapeRunes(s string) string {
	special := func(r rune) bool { return !strconv.IsPrint(r) }
	if strings.IndexFunc(s, special) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		high, low := utf16Pair(r)
		switch {
		case !special(r):
			b.WriteRune(r)
		case low == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// utf16Pair returns the two code units of a character outside the basic plane, else zeros.
func utf16Pair(r rune) (high, low rune) {
	const first = 0x10000
	if r < first {
		return 0, 0
	}
	r -= first
	return 0xd800 + r>>10, 0xdc00 + r&0x3ff
}

// LogAttr makes the value of an attribute of a log printable, for [slog.HandlerOptions].
func LogAttr(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Text(value))
	case error:
		a.Value = slog.StringValue(Cut(strings.Join(Lines(value), "; "), Most))
	case fmt.Stringer:
		if a.Value.Kind() == slog.KindAny {
			a.Value = slog.StringValue(Text(value.String()))
		}
	}
	return a
}
