// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventstest is an API server for Events and nothing else: it stores them in memory,
// accepts and refuses what a kube-apiserver does, lets them expire, and fails on demand. It shares
// no code with package events, so that it cannot share its bugs.
//
// # Model
//
// A [Server] is used in one of two ways: as a sink ([Server.Sink], [Server.LegacySink]), which
// works inside of testing/synctest bubbles, or as an [net/http.Handler], for real clients. Both see
// the same objects. Times are those of package time, hence virtual inside of a bubble.
//
// # Concurrency
//
// Everything may be called from any goroutine. Faults are called without a lock held.
package eventstest
