// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package pleg

// proveRace says that the race detector watches.
const proveRace = true
