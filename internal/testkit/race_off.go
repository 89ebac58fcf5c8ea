// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package testkit

// raceDetector: work takes several times as long as without it.
const raceDetector = false
