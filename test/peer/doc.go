// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package peer compares this project's PLEG with the kubelet's own, side by side: the rows of
// docs/performance.md, as benchmarks.
//
// # Model
//
// The benchmark is the fake runtime on a unix socket. Each row starts each contestant as a child
// that answers the calls of internal/bench/worker: ours, the worker itself; the kubelet's at
// v1.36.3, the module in the folder kubelet; "generated", which decodes the same messages with the
// generated decoder and drops them; and "floor", which does not even decode. Nothing that goes
// through grpc can cost less.
//
// A row reports what the child measures of itself: CPU time from the kernel (user and system, every
// thread, garbage collection included), bytes and objects allocated from the Go runtime. It does a
// fixed amount of work and ignores b.N: run with -benchtime=1x.
//
// The script run takes rounds. In each round every contestant has its turn, so that other work of
// the machine falls on all of them. Its output is for benchstat, which makes the tables of
// docs/performance.md.
package peer
