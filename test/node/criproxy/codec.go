// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// A frame is one message as its bytes. The proxy never decodes it: whatever a
// client and a runtime agree on passes, methods and fields of the future too.
type frame struct{ data []byte }

// rawCodec hands messages through as frames. It has no name, since the name goes
// on the wire, and CRI-O closes the connection of a client that writes one.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("criproxy: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

// Unmarshal implements encoding.CodecV2. It copies, because data is freed when
// it returns and a fault may keep the message.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("criproxy: cannot receive into a %T", v)
	}
	f.data = data.Materialize()
	return nil
}
