// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import "embed"

// Sources are the files that embed/install writes into a Kubernetes tree: this package, the ledger,
// the counts of changes and the adapter with its patches. The file with Sources is not among the
// installed files.
//
//go:embed *.go changes/*.go ledger/*.go kubelet/*.go kubelet/*.patch
var Sources embed.FS
