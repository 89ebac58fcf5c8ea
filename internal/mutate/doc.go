// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutate checks the checks: it breaks packages pleg, cache, cri, cri/fakeruntime, embed,
// embed/ledger, events, exits, metrics and internal/criproxy on purpose, a single way at a time,
// and reports whether the simulation and the packages' own tests notice.
//
//	go run ./internal/mutate [-seeds N] [-run NAME]
//	go run ./internal/mutate -scripts [-run NAME]
//
// A mutation of mutations.txt replaces a piece of source, which must occur exactly once, or the
// command fails, so that mutations follow the code. It changes the body of a function. A build of a
// package's tests has all mutations, and the environment chooses among them (switch.go): the
// mutated files replace the real files by the -overlay flag of the go command; no file of the
// module is touched. A mutation that does not compile is an error, not a success, and so is a test
// that fails without any mutation. The exit code is 1 if a mutation survives, 2 if the command
// could not find out.
//
// A script of internal/simulate written for a mutation names the mutation in its file "mutations".
// With -scripts those alone are played, each against its mutations: a script with a history of
// delicate delays or orders can lose its bite with any change of the code, unnoticed while another
// history convicts the same mutation. The exit code is 1 if a script does not bite.
package main
