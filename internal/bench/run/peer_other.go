// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package run

// peerCPU knows nothing on this platform.
func peerCPU(string) *processCPU { return nil }
