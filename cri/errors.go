// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "errors"

var (
	// ErrMessageSize is part of an error about an answer that exceeds Config.MaxMessageSize. The read that met it has no result.
	ErrMessageSize = errors.New("the answer is larger than the message limit")
	// ErrTooMany is part of an error about a list that does not end: more than 1,048,576 sandboxes or containers.
	ErrTooMany = errors.New("the runtime lists more than a node can have")
	// ErrMalformed is part of an error about a message that is not valid protobuf. The read that met it has no result, because
	// what is missing from it would be taken for removed.
	ErrMalformed = errors.New("malformed message")
)
