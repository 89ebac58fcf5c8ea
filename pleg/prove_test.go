// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

var (
	proveFlag       = flag.Bool("prove", false, "search the large scopes as well: minutes")
	proveScopesFlag = flag.String("scopes", "", "search these scopes, comma-separated: see proveLetters and proveShapes")
	proveLimitFlag  = flag.Int("max-states", 20_000_000, "give up a scope at so many states")
)

var (
	proveSmall = []string{"Cqs", "CPqt", "CUqt", "CFqt", "Lqt", "CWt"}
	proveLarge = []string{
		"Cs", "CPs", "CPqs", "CUqs", "CFqs", "CXqs", "CNqs", "CIqs", "CWs", "CPWqs", "CPWFqs", "CWUFqs", "CXWqs", "CR", "CRqs", "CRWqs",
		"CEqs", "CAqs", "Lqs", "LDqs", "LUqt", "LWqt", "LCqt", "LCqs", "zCWPFs", "2Cqt", "2CPqt", "3Cqt", "3Lqt", "13Cqt", "AKTWmqs", "CAKTWmqt",
	}
)

// proveQuotients are the scopes of TestProveQuotient, most of them too large for a search.
var proveQuotients = []string{
	"CWUFs", "LCWFs", "SLCW", "CPAWFs", "3LCWP", "2CPW", "LDUF", "CXPU", "LCAKTOWs", "2CAKWq", "3CAWF", "SAKTWm", "13CPt", "LCNW", "CUWIPFs", "LCER",
	"LCEWF", "zLCPWAF", "GLCWF",
}

// proveScopes returns the scopes to search.
func proveScopes(t *testing.T, small, large []string) (scopes []*proveScope) {
	names := small
	if *proveFlag {
		names = append(names, large...)
	}
	if *proveScopesFlag != "" {
		names = strings.Split(*proveScopesFlag, ",")
	}
	for _, name := range names {
		sc, err := parseProveScope(name)
		if err != nil {
			t.Fatal(err)
		}
		scopes = append(scopes, sc)
	}
	return scopes
}

// TestProve drives the core through every state of each scope until no new state appears, and lets
// faults end in each: see proveLetters for what happens in a scope, and drain.
func TestProve(t *testing.T) {
	for _, sc := range proveScopes(t, proveSmall, proveLarge) {
		b := &proveSearch{sc: sc, limit: *proveLimitFlag}
		b.run(2)
		t.Log(b)
		if b.bad != "" {
			t.Errorf("scope %s: %s\n\t%s", sc.name, b.bad, strings.Join(b.trace, "\n\t"))
		} else if !b.complete() {
			t.Errorf("scope %s: no fixpoint within %d states", sc.name, *proveLimitFlag)
		}
	}
}

// TestProveQuotient checks that states which the search takes for one decide the same: a core that
// lives through a random history, and one that is written down in canonical form and read again
// after each move, reach the same states.
func TestProveQuotient(t *testing.T) {
	seeds := uint64(5)
	if *proveFlag {
		seeds = 500
	}
	for _, sc := range proveScopes(t, proveQuotients, nil) {
		codec, steps := newProveCodec(sc), 0
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 12))
			live, twin, scratch := newProver(sc, codec), newProver(sc, codec), newProver(sc, codec)
			live.begin()
			form := live.copyTo(scratch)
			for k := range 60 {
				twin.load(form)
				moves := twin.moves()
				m := moves[r.IntN(len(moves))]
				twin.do(&m)
				live.do(&m)
				form = twin.save()
				if at := live.copyTo(scratch); !bytes.Equal(at, form) {
					twin.load(form)
					scratch.load(at)
					t.Fatalf("scope %s, seed %d, move %d (%v): the state is\n%s\nand after renumbering\n%s", sc.name, seed, k, &m, scratch, twin)
				}
				steps++
			}
		}
		t.Logf("%s: %d moves", sc.name, steps)
	}
}

// copyTo has another prover write the present state down in canonical form. The state stays as it
// is.
func (v *prover) copyTo(scratch *prover) []byte {
	v.pack()
	v.write()
	scratch.load(v.join(v.form.encoder.at))
	return scratch.save()
}

// TestProveTags checks the tags by which fields declare their part in the search.
func TestProveTags(t *testing.T) {
	const scoped = `prove:"marks,knows:ordered,judged:begins"`
	none := proveOptions{}
	judged := proveOptions{streams: true}
	knows := proveOptions{knows: true}
	both := proveOptions{
		streams: true,
		knows:   true,
	}
	for _, tc := range []struct {
		tag   reflect.StructTag
		of    proveOptions
		class instantClass
		part  bool
	}{
		{"", judged, dated, true},
		{`prove:"-"`, judged, dated, false},
		{`prove:"timers"`, judged, timers, true},
		{scoped, none, marks, true},
		{scoped, knows, ordered, true},
		{scoped, judged, begins, true},
		{scoped, both, begins, true},
	} {
		sc := &proveScope{proveOptions: tc.of}
		class, part := classOf(reflect.StructField{Tag: tc.tag}, dated, sc.kinds())
		if part != tc.part || part && class != tc.class {
			t.Errorf("%s in %+v: class %v, part %v", tc.tag, tc.of, class, part)
		}
	}
	for _, tag := range []string{`prove:""`, `prove:"mark"`, `prove:"marks,ordered"`, `prove:"knows:marks"`, `prove:"marks,known:ordered"`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the tag %s is taken", tag)
				}
			}()
			classOf(reflect.StructField{Tag: reflect.StructTag(tag)}, begins, (&proveScope{}).kinds())
		}()
	}
}
