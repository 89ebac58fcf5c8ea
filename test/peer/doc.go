// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Peer compares this project's PLEG with the kubelet's own, side by side: the same requests to
// programs with a PLEG each, over the same unix socket of the same server process, by turns, in a
// single run.
//
// # Model
//
// The runtime is a process (package server). Each contestant is a process too (package agent):
// "ours", the kubelet's at v1.36.3 and v1.37.1 (the modules in the folder kubelet, built first),
// "generated", which decodes the same messages with the generated decoder and throws them away, and
// "floor", which does not even decode. Every process measures itself: CPU is user and system time
// of all its threads, garbage collection included.
//
// A measurement takes rounds; in each round every contestant has its turn, so that other work of
// the machine falls on all of them. The output is a line for benchstat for each round, which makes
// the tables of docs/performance.md of them:
//
//	go run . [-rows relist,intake,…] [-agents ours,floor,…] [-rounds 5] -bench peer.bench
//	go tool benchstat -col /agent -row .fullname peer.bench
package main
