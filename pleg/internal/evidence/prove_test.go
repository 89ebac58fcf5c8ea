// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"flag"
	"strings"
	"testing"
)

var (
	proveFlag  = flag.Bool("prove", false, "search the large scopes too: minutes, and gigabytes")
	scopesFlag = flag.String("scopes", "", "search these scopes alone, separated by commas; letters: "+scopeLetters)
	statesFlag = flag.Int("max-states", 60_000_000, "give up a scope at so many states")
)

// small are the scopes that go test searches: some seconds together. Large are the further ones of
// make prove. A stream that lies (X) is not combined with payloads and waiters: doubt corrects what a
// false payload showed, but a waiter that comes meanwhile may have been served with it. A sandbox that
// recovers (S) is not combined with lists and a waiter: when a list shows it ready again and the claim
// that it was not comes after the list, a waiter waits for the grace.
var (
	small = []string{"WUF", "CWUF", "CAFs", "CPWF", "LWFs", "LDs", "CRWF", "SCW", "CXW", "CWUFM", "CAWFsM", "CPWFM", "LWFsM", "SCWM"}
	large = []string{
		"LDU", "CAWF", "2Cs", "SCL", "CPX", "CALs", "CLlWFs", "CPLlWs", "2CPs", "2CXs", "2SCs", "CFAWUR",
		"CLaWU", "2LWs", "2CLs", "CLWUF", "CAWUFM", "CLlWFsM",
	}
)

// TestFixpoint searches every state that one pod can get into, in each scope, until no new state
// appears.
func TestFixpoint(t *testing.T) {
	scopes := small
	if *proveFlag {
		scopes = append(scopes, large...)
	}
	if *scopesFlag != "" {
		scopes = strings.Split(*scopesFlag, ",")
	}
	for _, name := range scopes {
		b := explore(parseScope(name), *statesFlag)
		t.Log(b)
		switch {
		case b.bad != "":
			t.Errorf("scope %s: %s\n\t%s", name, b.bad, strings.Join(b.trace, "\n\t"))
		case !b.complete:
			t.Errorf("scope %s: no fixpoint within %d states", name, *statesFlag)
		}
	}
}
