// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package changes tells a loop of the kubelet, which looks at the whole node again and again,
// whether anything it looks at can have changed since its last round.
//
// What a loop looks at counts its changes: a [Mutex] or [RWMutex] counts each lock that is not
// declared as a lock of a reader. So a writer that nobody thought of is counted too. A loop has
// [Rounds], which compare the counts from before its last round with those of now.
package changes
