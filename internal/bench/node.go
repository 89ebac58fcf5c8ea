// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"os"

	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// NodeVariable names the node in a container, whose host name is its pod's.
const NodeVariable = "NODE_NAME"

// Node is the name of the node that this program runs on.
func Node() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return printable.Text(cmp.Or(os.Getenv(NodeVariable), host))
}
