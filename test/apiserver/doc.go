// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver tests the Event recorder against a real kube-apiserver over a real etcd.
//
// The binaries are built from the module registry (module components in here; script build) and are
// kept outside of version control. Each test starts its own pair on loopback ports and in its own
// directory, may kill and restart them, and ends them. Without the binaries the tests fail and
// print how to build them. Skipping would make an empty run look like a passed run.
package apiserver
