// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"testing"
	"unsafe"
)

func TestInterner(t *testing.T) {
	var n interner
	same := func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }
	event := []byte("an event about abc and more")
	first := n.get(event[15:18])
	if first != "abc" || !same(first, n.get([]byte("abc"))) {
		t.Errorf("abc became %q, and another string the second time", first)
	}
	copy(event[15:], "xyz")
	if first != "abc" {
		t.Errorf("the string shares the event's memory: %q", first)
	}
	for i := range 3 * internerSize {
		n.get(fmt.Append(nil, i))
		if i%(internerSize/2) == 0 && !same(first, n.get([]byte("abc"))) {
			t.Fatalf("a string in use was forgotten after %d others", i)
		}
	}
	if len(n.young)+len(n.old) > 2*internerSize {
		t.Errorf("%d strings are kept", len(n.young)+len(n.old))
	}
}
