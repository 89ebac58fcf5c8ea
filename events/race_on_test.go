// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package events

// raceDetector: this test is built with -race, in which tests with much arithmetic do less of it.
const raceDetector = true
