// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package report keeps what a run of pleg-bench found, compares it, and shows it.
//
// # Model
//
// A [Saved] is a run's result with the latency of every change and samples of the generators over time.
// [Saved.Write] puts it into a folder: result.json, which [Load] reads back, changes.csv, benchstat.txt,
// junit.xml and report.html, one file that needs no network. [Compare] holds two runs against each
// other. An [Expectation] is a bound that a result must keep.
//
// # Concurrency
//
// Values here have no lock: one goroutine owns each.
//
// # Errors
//
// What cannot be written or read is returned with the path; a bad expectation with the text and the
// form that is wanted.
package report
