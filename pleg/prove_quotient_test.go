// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestProveQuotient checks that the search may take for one what it takes for one: a generator that
// lives through a random history, and is never renumbered, gets into the same states, move by move,
// as one whose state is written down in its canonical form, and read again, after each move. With
// -prove it looks at more histories.
func TestProveQuotient(t *testing.T) {
	seeds := uint64(50)
	if *proveFlag {
		seeds = 500
	}
	for _, name := range []string{
		"CWUFs", "CPAWFs", "LCWFs", "LDUF", "2CPW", "SLCW", "CAKWF", "3LCWP", "LCERP", "CXPU", "CAKTOWs", "LCAKMTWs", "2CAKMWq", "2AKTWqs", "3CAWF", "SAKTWm", "13CPt",
	} {
		steps := 0
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 12))
			live, twin, scratch := newProver(parseProveScope(name)), newProver(parseProveScope(name)), newProver(parseProveScope(name))
			live.begin()
			form := live.copyTo(scratch)
			for k := range 60 {
				twin.load(form)
				moves := twin.moves()
				m := moves[r.IntN(len(moves))]
				live.do(&m)
				twin.do(&m)
				form = twin.save()
				if at := live.copyTo(scratch); !bytes.Equal(at, form) {
					twin.load(form)
					t.Fatalf("scope %s, seed %d, move %d (%s): the state is\n%+v\n%+v\nand renumbered before\n%+v\n%+v",
						name, seed, k, m.String(), scratch.core, scratch.world, twin.core, twin.world)
				}
				steps++
			}
		}
		t.Logf("%s: %d moves", name, steps)
	}
}

// copyTo has another prover write the present state down in its canonical form. The state itself
// stays as it is.
func (v *prover) copyTo(scratch *prover) []byte {
	v.pack()
	v.write()
	scratch.load(v.form(v.enc.at))
	form := scratch.save()
	scratch.load(form)
	return form
}
