// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"flag"
	"strings"
	"testing"
)

var (
	proveFlag       = flag.Bool("prove", false, "search the large scopes, too, and drain every state: an hour or more")
	proveScopesFlag = flag.String("scopes", "", "search these scopes, comma-separated, in place of the usual: letters of "+proveLetters)
	proveLimitFlag  = flag.Int("max-states", 40_000_000, "give up a scope at so many states")
	proveDrainFlag  = flag.Int("drain", 0, "drain every so many-th state; 0: what is usual")
)

var (
	proveSmall = []string{"Cs", "CPs"}
	proveLarge = []string{"C", "CW", "CPWs"}
)

// TestProve drives the core through every state of each scope until no new state appears.
func TestProve(t *testing.T) {
	scopes, drains := proveSmall, 10
	if proveRace {
		scopes = scopes[:1] // it is ten times as slow, and the search shares nothing but what it has seen
	}
	if *proveFlag {
		scopes, drains = append(scopes, proveLarge...), 1
	}
	if *proveScopesFlag != "" {
		scopes = strings.Split(*proveScopesFlag, ",")
	}
	if *proveDrainFlag > 0 {
		drains = *proveDrainFlag
	}
	for _, name := range scopes {
		b := &proveSearch{scope: parseProveScope(name), limit: *proveLimitFlag, drains: drains, workers: 2}
		b.run()
		t.Log(b)
		switch {
		case b.bad != "":
			t.Errorf("scope %s: %s\n\t%s", name, b.bad, strings.Join(b.trace, "\n\t"))
		case !b.complete:
			t.Errorf("scope %s: no fixpoint within %d states", name, *proveLimitFlag)
		}
	}
}
