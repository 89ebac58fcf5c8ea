// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cachemodel compares the cache with a slow and obvious model of it: by what bytes say, by
// long random sequences, and by what concurrent callers saw. The tests stand beside the cache's
// module and not in it, because the checker of concurrent histories would otherwise be required by
// the cache's users.
package cachemodel
