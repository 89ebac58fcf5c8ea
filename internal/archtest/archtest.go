// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the tests that keep the house in shape: which package may import which,
// and what every file carries.
package archtest
