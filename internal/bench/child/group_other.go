// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package child

import "syscall"

// ownGroup does nothing where there are no process groups.
func ownGroup() *syscall.SysProcAttr { return nil }
