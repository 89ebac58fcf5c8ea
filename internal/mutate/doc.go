// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutate checks the checks: it breaks packages pleg, cache and embed/ledger on purpose, one
// way at a time, and reports whether the simulation and the packages' own tests notice.
//
//	go run ./internal/mutate [-seeds N] [-run NAME] [-skip N]
//	go run ./internal/mutate -scripts [-run NAME]
//
// A mutation is a piece of source that is replaced by another. It must occur exactly once, or the
// command fails, so that mutations follow the code. It changes the body of one function. One build
// of a package's tests has all of them, and the environment chooses one (switch.go): the mutated
// files take the place of the real ones by the -overlay flag of the go command; no file of the
// module is touched. A mutation that does not compile is an error, not a success, and so is a test
// that fails without any. The exit code is 1 if one survives.
//
// A script of internal/simulate that is there for a mutation names it, in its file "mutations".
// With -scripts those alone are played, each against what it names: a script whose history depends
// on delays or on the order of reads can lose its bite with any change of the code, and nothing
// else would tell, as long as a random history, or another script, convicts the same mutation. The
// exit code is 1 if one does not bite.
package main
