// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of the API server, in bytes.
const (
	maxNote     = 1024
	maxWord     = 128 // reason, action, reportingInstance
	maxRefField = 1024
	// maxAnnotations is below the server's limit of 256 KiB: a full table of such events must still
	// fit in memory.
	maxAnnotations = 8 << 10
)

// cut shortens s to at most limit bytes of valid UTF-8 without splitting a character. A valid
// string is returned unchanged, without allocation.
func cut(s string, limit int) string {
	if len(s) > limit {
		// Enough for limit bytes even if invalid bytes at the end are dropped; the replacement
		// character never makes the string shorter.
		end := limit
		for end > 0 && end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = strings.Clone(s[:end]) // a small part does not hold the memory of the whole
	}
	if utf8.ValidString(s) {
		return s
	}
	return cut(strings.ToValidUTF8(s, string(utf8.RuneError)), limit)
}

// word returns a reason or an action of a length valid for the server.
func word(s, fallback string) string {
	if s = cmp.Or(s, fallback, "Unknown"); len(s) > maxWord {
		return cut(s, maxWord)
	}
	return s // made valid UTF-8 when stored
}

// cleanAnnotations copies the annotations valid for the server and returns the number of the
// others. Keys with this package's prefix are not the caller's.
func cleanAnnotations(in map[string]string) (out map[string]string, left int) {
	if len(in) == 0 {
		return nil, 0
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(in)) {
		v := in[k]
		if size+len(k)+len(v) > maxAnnotations || strings.HasPrefix(k, annotationPrefix) || len(validation.IsQualifiedName(strings.ToLower(k))) > 0 {
			left++
			continue
		}
		if out == nil {
			out = make(map[string]string, len(in))
		}
		size += len(k) + len(v)
		out[k] = strings.ToValidUTF8(v, string(utf8.RuneError))
	}
	return out, left
}
