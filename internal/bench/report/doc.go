// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package report keeps what a command of pleg-bench found.
//
// # Model
//
// A [Saved] is a finding with its setup and its timeline. [Saved.Write] puts the finding into a
// folder: result.json, benchstat.txt, and report.html, which needs no network and shows the
// document that a terminal shows, with charts. An [Expectation] is a bound on a number of the
// finding.
//
// # Concurrency
//
// Values here have no lock: a goroutine owns each.
//
// # Errors
//
// What cannot be written is returned with the path, and no file is half written; a bad expectation
// is returned with the text and the form that is wanted.
package report
