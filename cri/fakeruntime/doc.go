// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeruntime is a container runtime without containers: a CRI server whose pods are data.
package fakeruntime
