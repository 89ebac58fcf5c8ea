// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Peer compares this project's PLEG with the kubelet's own, side by side: the same requests to programs that hold one PLEG each, over the same unix
// socket of the same server process, by turns, in one run.
//
// # Model
//
// The runtime is a process (package server). Each contestant is a process too (package agent): "ours", the kubelet's at v1.36.3 and v1.37.1
// (the modules in the folder kubelet, built first), "generated", which receives and decodes the same messages with the generated decoder and
// throws them away, and "floor", which receives them and does not even decode. Every process measures itself: CPU is user and system time of all its
// threads, garbage collection included.
//
// A measurement takes rounds; in each round every contestant has its turn, so that what else the machine does falls on all of them. The
// median of the rounds counts. What is printed last are the rows of docs/performance.md; with -bench, lines for benchstat as well.
//
// With -before there is one more, "before": "ours" of a program that was built in this folder of another commit. Both are asked by this program, so
// that what differs is the libraries alone.
//
// # Usage
//
//	go run . [-rows relist,intake,…] [-agents ours,floor,…] [-before program] [-rounds 5] [-bench file] [-markdown file] [-json file]
package main
