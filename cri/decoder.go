// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"strings"
	"unicode/utf8"
	"unsafe"
)

// decoder collects what goes wrong while a status is decoded: the malformed part is left out, the
// rest is read.
type decoder struct{ bad bool }

func (d *decoder) check(ok bool) { d.bad = d.bad || !ok }

// entry takes one entry of a map<string, string>.
func (d *decoder) entry(m *map[string]string, raw []byte) {
	key, value, ok := mapEntry(raw)
	if d.check(ok); !ok {
		return
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[text(key)] = text(value)
}

// text returns a field of a status as a string of valid UTF-8. The string shares the memory of b: a
// status keeps the message that it was received in, nobody writes to it again, and so its strings
// need none of their own.
func text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	s := unsafe.String(&b[0], len(b))
	if !utf8.ValidString(s) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}
