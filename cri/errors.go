// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

var (
	// ErrMessageSize is part of an error about an answer that exceeds Config.MaxMessageSize. The
	// read that met it has no result.
	ErrMessageSize = errors.New("the answer is larger than the message limit")
	// ErrTooMany is part of an error about a list that does not end: more than 1,048,576 sandboxes
	// or containers.
	ErrTooMany = errors.New("the runtime lists more than a node can have")
	// ErrMalformed is part of an error about a message that is not valid protobuf, or a status that
	// lacks what every runtime fills in (metadata, the time of creation). The read that met it has
	// no result, because what is missing from it would be taken for removed, or be missing for
	// good.
	ErrMalformed = errors.New("malformed message")
)

// maxText bounds, in bytes, what a runtime may say in an error, an ID or a name that ends up in
// logs, reports and Events.
const maxText = 1024

// bounded returns text in valid UTF-8, cut at [maxText] with a note of how long it was.
func bounded(text string) string {
	if len(text) <= maxText {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	cut := maxText
	for cut > maxText-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:cut], "\uFFFD"), len(text))
}

// shortened returns an error of grpc's with its text, which is the peer's, bounded, and without
// details if they are long.
func shortened(err error) error {
	st, ok := status.FromError(err)
	if !ok || proto.Size(st.Proto()) <= maxText && utf8.ValidString(st.Message()) {
		return err
	}
	return status.Error(st.Code(), bounded(st.Message()))
}
