// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"testing"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestLateCalls holds that the generator and the ledger agree on how long a call that was given
// up may take effect.
func TestLateCalls(t *testing.T) {
	if ledger.LateCall != pleg.LateCall {
		t.Errorf("the ledger allows %v, and the generator %v", ledger.LateCall, pleg.LateCall)
	}
}
