// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package bench

// OwnUsage knows nothing on this platform.
func OwnUsage() Usage { return Usage{} }
