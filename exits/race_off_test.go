// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package exits

// raceDetector: this test is built with -race, with which random histories cost ten times as much.
const raceDetector = false
