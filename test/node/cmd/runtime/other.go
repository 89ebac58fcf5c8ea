// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Command runtime runs a private container runtime, on Linux only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "runtime: a container runtime needs Linux")
	os.Exit(2)
}
