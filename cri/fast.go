// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The fast read of a listed item: the few fields that decide whether the item has changed.

import "google.golang.org/protobuf/encoding/protowire"

// fastItem holds the fields that decide whether a listed item has changed, read in a single pass
// over the usual encoding: tags of one byte, lengths of three at most, the ID and field 2 once, the
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

// maxFastVarint is the number of bytes up to which any varint is well-formed.
const maxFastVarint = 9

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
			if i >= len(b) || i-from >= maxFastVarint {
				return false
			}
			if tag == tags.state {
				if i > from {
					return false
				}
				q.state = b[i]
			}
			i++
			continue
		}
		if tag&7 != byte(protowire.BytesType) {
			return false
		}
		from, to := extent(b, i)
		if to < 0 {
			return false
		}
		switch data := b[from:to:to]; tag {
		case 1<<3 | byte(protowire.BytesType):
			if q.id != nil {
				return false
			}
			q.id = data
		case 2<<3 | byte(protowire.BytesType):
			if q.field2 != nil {
				return false
			}
			q.field2 = data
		case tags.labels:
			if !q.label(data) {
				return false
			}
		}
		i = to
	}
	return true
}

// extent returns the bounds of a field's data, with the data's length at b[i]; to is negative if
// the length is unusual or too long.
func extent(b []byte, i int) (from, to int) {
	size := 0
	for shift := 0; shift <= 14; shift += 7 {
		if i >= len(b) {
			return 0, -1
		}
		c := int(b[i])
		i++
		size |= c & 0x7f << shift
		if c < 0x80 {
			if size > len(b)-i {
				return 0, -1
			}
			return i, i + size
		}
	}
	return 0, -1
}

// label takes an encoded label, and reports false if the encoding is unusual.
func (q *fastItem) label(b []byte) bool {
	if len(b) < 4 || b[0] != 1<<3|byte(protowire.BytesType) || b[1] >= 0x80 {
		return false
	}
	k := 2 + int(b[1])
	if k+2 > len(b) || b[k] != 2<<3|byte(protowire.BytesType) || b[k+1] >= 0x80 || k+2+int(b[k+1]) != len(b) {
		return false
	}
	if int(b[1]) == len(labelPodUID) && string(b[2:k]) == labelPodUID {
		if q.uid != nil {
			return false
		}
		q.uid = b[k+2:]
	}
	return true
}
