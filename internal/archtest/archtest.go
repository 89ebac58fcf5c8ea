// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the tests of the repository's form: imports between packages, and the
// parts of every file.
package archtest
