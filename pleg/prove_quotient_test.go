// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveQuotients are the scopes in which the search is held to a generator that is never renumbered.
var proveQuotients = []string{
	"CWUFs", "CPAWFs", "LCWFs", "LDUF", "2CPW", "SLCW", "CAKWF", "3LCWP", "LCERP", "CXPU", "CAKTOWs", "LCAKTWs", "2CAKWq", "2AKTWqs", "3CAWF", "SAKTWm",
	"13CPt", "13CLWt", "13CLWFPt",
}

// TestProveQuotient checks that the search may take for one what it takes for one: a generator that
// lives through a random history, and is never renumbered, gets into the same states, move by move,
// as one whose state is written down in its canonical form, and read again, after each move. With
// -prove it looks at more histories, with -histories at so many, with -scopes at those of these scopes.
func TestProveQuotient(t *testing.T) {
	seeds, names := uint64(50), proveQuotients
	switch {
	case *proveHistoriesFlag > 0:
		seeds = *proveHistoriesFlag
	case *proveFlag:
		seeds = 500
	}
	if *proveScopesFlag != "" {
		names = strings.Split(*proveScopesFlag, ",")
	}
	for _, name := range names {
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
				form = live.follow(&m, twin, form, scratch)
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

// follow has a move happen, and its twin, which is in the state that was written down, do the same:
// if pods may come up in either order there, in the order in which they come up here. It returns
// what the twin's state is written down as.
func (v *prover) follow(m *proveMove, twin *prover, form []byte, scratch *prover) []byte {
	alike := *m
	alike.first = ""
	v.do(&alike)
	twin.do(m)
	next := twin.save()
	if m.first == "" || bytes.Equal(v.copyTo(scratch), next) {
		return next
	}
	twin.load(form)
	alike.first = otherPod(m.first)
	twin.do(&alike)
	return twin.save()
}

func otherPod(uid cache.UID) cache.UID {
	if uid == "p" {
		return "q"
	}
	return "p"
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
