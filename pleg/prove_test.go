// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"flag"
	"strings"
	"testing"
)

var (
	proveFlag          = flag.Bool("prove", false, "search the large scopes, too: ten minutes")
	proveScopesFlag    = flag.String("scopes", "", "search these scopes, comma-separated, in place of the usual: letters of "+proveLetters)
	proveLimitFlag     = flag.Int("max-states", 40_000_000, "give up a scope at so many states")
	proveHistoriesFlag = flag.Uint64("histories", 0, "histories of each scope in which renumbering is tested; 0: 50, and 500 with -prove")
	proveDrainFlag     = flag.Int("drain", 1, "see every so many-th state to its end without faults; 0: none")
)

var (
	proveSmall = []string{"Cqs", "Cs", "CPqs", "CPs", "CRqs", "Lqs", "CUqs", "CFqs"}
	proveLarge = []string{
		"LDqs", "LUqt", "CR", "CRWqs", "CXqs", "CXWqs", "CPWqs", "CWs", "CPWFqs", "CWUFqs", "CEqs", "CAqs", "LCqt", "LWqt", "LCqs", "2Cqs",
		"2CPqt", "13Cqt", "3Cqt", "3Lqt", "AKTWmqs", "CAKTWmqt", "2AKTWmqt",
	}
)

// TestProve drives the core through every state of each scope until no new state appears.
func TestProve(t *testing.T) {
	scopes := proveSmall
	if proveRace {
		scopes = scopes[:1] // it is ten times as slow, and the search shares nothing but what it has seen
	}
	if *proveFlag {
		scopes = append(scopes, proveLarge...)
	}
	if *proveScopesFlag != "" {
		scopes = strings.Split(*proveScopesFlag, ",")
	}
	for _, name := range scopes {
		sc := parseProveScope(name)
		b := &proveSearch{scope: sc, limit: *proveLimitFlag, drains: *proveDrainFlag, workers: 2}
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
