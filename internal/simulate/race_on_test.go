// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulate

// raceDetector: this test is built with -race, with which a history costs ten times as much.
const raceDetector = true
