// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The fast read of a listed item: the few fields that decide whether the item has changed.

import "google.golang.org/protobuf/encoding/protowire"

// fastItem holds the fields that decide whether a listed item has changed, read in a single pass
// over the usual encoding: tags of one byte, lengths of two at most, the ID and field 2 once, the
// pod UID label once and every label with its key before its value. Fields may come in any order.
// Other encodings are left to the full parsers, sandboxItem and containerItem, which read the same
// from every item accepted by fastItem. The slices alias the message.
type fastItem struct {
	id     []byte // field 1
	field2 []byte // field 2: the metadata of a sandbox, undecoded, or the sandbox ID of a container
	uid    []byte // the pod UID label, nil if there is none
	// state is the enum as sent.
	state byte
}

// fastTags are the tags in which sandboxes and containers differ.
type fastTags struct{ state, labels byte }

var (
	fastSandboxTags   = fastTags{3<<3 | byte(protowire.VarintType), labelsOfPodSandbox<<3 | byte(protowire.BytesType)}
	fastContainerTags = fastTags{6<<3 | byte(protowire.VarintType), 8<<3 | byte(protowire.BytesType)}
)

// read takes an encoded item. For an unusual encoding, read reports false and leaves q half read.
func (q *fastItem) read(b []byte, tags fastTags) bool {
	for i := 0; i < len(b); {
		tag := b[i]
		i++
		if tag >= 0x80 || tag < 1<<3 {
			return false
		}
		if tag&7 == byte(protowire.VarintType) {
			from := i
			for i < len(b) && b[i] >= 0x80 {
				i++
			}
			if i >= len(b) || i-from >= 9 || tag == tags.state && i > from {
				return false // any varint of up to nine bytes is well-formed
			}
			if tag == tags.state {
				q.state = b[i]
			}
			i++
			continue
		}
		from, to := extent(b, i)
		if tag&7 != byte(protowire.BytesType) || to < 0 || to > len(b) {
			return false
		}
		ok := true
		switch data := b[from:to:to]; tag {
		case 1<<3 | byte(protowire.BytesType):
			ok = q.id == nil
			q.id = data
		case 2<<3 | byte(protowire.BytesType):
			ok = q.field2 == nil
			q.field2 = data
		case tags.labels:
			ok = q.label(data)
		}
		if !ok {
			return false
		}
		i = to
	}
	return true
}

// extent returns the bounds of a field's data, with the data's length at b[i]; to is negative if
// the length is unusual, and may lie beyond b.
func extent(b []byte, i int) (from, to int) {
	switch {
	case i+1 >= len(b): // the last field has data
	case b[i] < 0x80:
		return i + 1, i + 1 + int(b[i])
	case b[i+1] < 0x80:
		return i + 2, i + 2 + (int(b[i]&0x7f) | int(b[i+1])<<7)
	}
	return 0, -1
}

// label takes an encoded label, and reports false if the encoding is unusual.
func (q *fastItem) label(b []byte) bool {
	k := usualEntry(b)
	if k == 0 {
		return false
	}
	ok := true
	if string(b[2:k]) == labelPodUID {
		ok = q.uid == nil
		q.uid = b[k+2:]
	}
	return ok
}
