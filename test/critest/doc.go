// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package critest runs the validation suite of cri-tools against the fake runtime. Each spec
// passes, or stands in a table with the reason why a runtime without processes cannot pass it.
//
// The specs of the table take minutes to fail and mount files. They are run in a mount namespace,
// by
//
//	unshare --mount --propagation private go test -count=1 -timeout=1h -v . -args -all
//
// and must fail.
package critest
