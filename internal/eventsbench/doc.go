// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventsbench measures Event recorders: ours and the two of client-go, under the same load, against the same API server.
//
// # Model
//
// A run is a load (a hot loop, a storm of distinct events, the crash loops of many nodes) that goes through one recorder per node to an API server: one
// that is embedded and can be made to fail, or a real one. What is reported is what reached the server: calls, and how many occurrences the
// stored objects tell of, against how many there were. Calls are counted in the client's transport, the same way for every recorder and server.
//
// # Concurrency
//
// Run may be called once at a time in a process: it measures the process's memory and goroutines. It leaves nothing running.
package eventsbench
