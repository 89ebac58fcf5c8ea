// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventstest is an in-memory API server for Events only. The server accepts and refuses the
// same Events as a kube-apiserver, lets Events expire, and fails on demand. eventstest shares no
// code with package events, and so none of its bugs.
//
// # Model
//
// A [Server] is used as a sink ([Server.Sink], [Server.LegacySink]), also in testing/synctest
// bubbles, or as an [net/http.Handler], for real clients. Both see the same objects. Times are
// those of package time, hence virtual in a bubble.
//
// # Concurrency
//
// All methods are safe for concurrent use. Faults are called without a lock held.
package eventstest
