// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cachemodel compares the cache with a slow and obvious model: by fuzzed bytes, which begin
// with long random sequences, and by the observations of concurrent callers. The tests are outside
// of the cache's module, because the checker of concurrent histories would otherwise be required by
// the cache's users.
package cachemodel
