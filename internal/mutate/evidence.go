// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Files of the evidence rules.
const (
	evidenceDir = "pleg/internal/evidence/"
	evidenceGo  = evidenceDir + "evidence.go"
	podGo       = evidenceDir + "pod.go"
	effectsGo   = evidenceDir + "effects.go"

	// convicting are the scopes that find what those of go test do not.
	convicting = "2CPs,CLlWFs"
)

// evidenceMutations break the rules of pleg/internal/evidence, whose numbers are in its package
// comment.
var evidenceMutations = []mutation{
	{
		"rule 1: a repeated claim restarts its grace", evidenceGo,
		"phase > e.Seen && phase > e.Claim", "phase > e.Seen && phase >= e.Claim",
	},
	{
		"rule 9: a list before what has moved settles it", podGo,
		"if same && !inspecting && r.From > p.Moved {", "if same && !inspecting {",
	},
	{
		"rule 9: a list settles what an inspection under way may undo", podGo,
		"if same && !inspecting && r.From > p.Moved {", "if same && r.From > p.Moved {",
	},
	{
		"rule 1: a claim that tells nothing new is kept", evidenceGo,
		"phase > e.Seen && phase > e.Claim", "phase != e.Seen && phase > e.Claim",
	},
	{
		"rule 2: a claim is overruled within the grace", evidenceGo,
		"aged := cut >= e.At ", "aged := cut >= 0 ",
	},
	{
		"rule 2: an older read takes back what a later one bore out", evidenceGo,
		"shows < e.Seen && later:", "shows < e.Seen:",
	},
	{
		"rule 2: what is known to be over is never taken back", evidenceGo,
		"case shows > e.Seen, shows < e.Seen && later:", "case shows > e.Seen:",
	},
	{
		"rule 3: a void absence is believed", evidenceGo,
		"case shows == Gone && !later && e.Seen != Gone:", "case false:",
	},
	{
		"rule 3: a claim makes a void absence count", podGo,
		"return x.Cached.Live() && x.Seen != Gone", "return x.Cached.Live() && belief != Gone",
	},
	{
		"rule 4: UNKNOWN drops a claim", evidenceGo,
		"\t\tif e.Seen == None {\n\t\t\te.Seen, e.To = Unknown, now\n\t\t}\n",
		"\t\tif e.Seen == None {\n\t\t\te.Seen, e.To = Unknown, now\n\t\t}\n\t\te.Claim, e.At = None, 0\n",
	},
	{
		"rule 4: UNKNOWN in the cache leaves no doubt", podGo,
		"case x.Cached == Unknown:\n\t\treturn Blank\n", "case x.Cached == Unknown:\n\t\treturn Settled\n",
	},
	{
		"rule 5: a claim that was borne out is kept", evidenceGo,
		"(shows >= e.Claim || e.Seen >= e.Claim || aged)", "aged",
	},
	{
		"rule 6: a claim alone makes an ID known", evidenceGo,
		"\tif e.Seen == None {\n\t\treturn None\n\t}\n", "",
	},
	{
		"rule 6: a claim of an ID that no read has shown is ignored", podGo,
		"case x.Claim != None:\n\t\treturn Unconfirmed", "case x.Claim != None && x.Seen != None:\n\t\treturn Unconfirmed",
	},
	{
		"rule 6: the removal of an ID that no read has shown is borne out by one read", evidenceGo,
		"if e.Claim != Gone && aged {", "if aged || e.Claim == Gone {",
	},
	{
		"rule 6: the removal of an ID that no read has shown is forgotten at once", podGo,
		"return x.Claim == None || x.Claim == Gone && cut >= x.At", "return x.Claim == None || x.Claim == Gone",
	},
	{
		"rule 6: the removal of an ID that no read has shown is forgotten within the grace", podGo,
		"return x.Claim == None || x.Claim == Gone && cut >= x.At", "return x.Claim == None || x.Claim == Gone && oldest > x.At",
	},
	{
		"rule 7: a failed call is believed", podGo,
		"\tif !ok {\n\t\tp.Moved = now\n\t\treturn\n\t}\n", "",
	},
	{
		"rule 7: a failed call is ignored", podGo,
		"\tif !ok {\n\t\tp.Moved = now\n", "\tif !ok {\n",
	},
	{
		"rule 7: a call takes back what a read has shown since", evidenceGo,
		"\tif phase >= e.Seen {\n", "\tif phase >= None {\n",
	},
	{
		"rule 8: a status is fresh as of the end of its read", podGo,
		"\tp.AsOf = r.From\n\tif r.From", "\tp.AsOf = now\n\tif r.From",
	},
	{
		"rule 8: an older status replaces a newer one", podGo,
		"if r.From < p.AsOf || p.takesBack(shows) {", "if p.takesBack(shows) {",
	},
	{
		"rule 8: a status may take back what the cache showed", podGo,
		"if r.From < p.AsOf || p.takesBack(shows) {", "if r.From < p.AsOf {",
	},
	{
		"rule 8: a refused inspection is forgotten", podGo,
		"p.Moved, e.Refused = now, true", "e.Refused = true",
	},
	{
		"rule 9: UNKNOWN in a list confirms", podGo,
		"if shows[i] != shown(p.IDs[i].Cached) {\n\t\t\treturn false", "if shows[i] != Unknown && shows[i] != shown(p.IDs[i].Cached) {\n\t\t\treturn false",
	},
	{
		"rule 9: an absence in a list confirms", podGo,
		"if shows[i] != shown(p.IDs[i].Cached) {\n\t\t\treturn false", "if shows[i] != Gone && shows[i] != shown(p.IDs[i].Cached) {\n\t\t\treturn false",
	},
	{
		"rule 9: a list that differs is forgotten", podGo,
		"if inspecting || !same && !p.believes(shows) {", "if inspecting {",
	},
	{
		"rule 9: a list that differs from belief, too, is forgotten", podGo,
		"if shows[i] != shown(x.Belief()) && (x.Claim", "if false && (x.Claim",
	},
	{
		"rule 9: a list refreshes beside an error", podGo,
		"return !p.Failed && !p.Foreign", "return !p.Foreign",
	},
	{
		"rule 9: a list refreshes a foreign status", podGo,
		"return !p.Failed && !p.Foreign", "return !p.Failed",
	},
	{
		"rule 10: a list that overlaps an inspection settles", podGo,
		"if inspecting || !same && !p.believes(shows) {", "if !same && !p.believes(shows) {",
	},
	{
		"rule 11: doubt is cleared by an inspection that began before it", podGo,
		"\tif r.From > p.Moved {\n\t\tp.Moved = 0\n\t}\n", "\tp.Moved = 0\n",
	},
	{
		"rule 12: a payload makes fresh", podGo,
		"\treturn shows, change && live\n", "\tif change && live {\n\t\tp.AsOf++\n\t}\n\treturn shows, change && live\n",
	},
	{
		"rule 12: a payload need not show every ID in its phase", podGo,
		"case shows[i] != belief, x.Cached == Unknown:", "case x.Cached == Unknown:",
	},
	{
		"rule 12: a payload may add an ID", podGo,
		"case x.Cached == None && belief != Gone: // the cached status may be older than the ID", "case false:",
	},
	{
		"rule 12: a payload is believed while something has moved", podGo,
		"if p.Failed || p.Foreign || p.Moved != 0 {", "if p.Failed || p.Foreign {",
	},
	{
		"rule 12: a payload is believed over an error", podGo,
		"if p.Failed || p.Foreign || p.Moved != 0 {", "if p.Foreign || p.Moved != 0 {",
	},
	{
		"rule 13: Started is told again", effectsGo,
		"\t\tif x.Told == 0 {\n", "\t\tif true {\n",
	},
	{
		"rule 13: a difference without an event is not told", effectsGo,
		"if events == 0 && was != None {", "if events == 0 && was == Gone {",
	},
	{
		"rule 14: a belief that the cache does not show is no doubt", podGo,
		"case shown(x.Cached) != shown(x.Belief()):\n\t\treturn Differs", "case false:\n\t\treturn Differs",
	},
	{
		"rule 14: a failure leaves no doubt", podGo,
		"\tcase p.Failed:\n\t\treturn Failed\n", "",
	},
	{
		"rule 14: a foreign status leaves no doubt", podGo,
		"\tcase p.Foreign:\n\t\treturn Foreign\n", "\tcase p.Foreign:\n\t\treturn Settled\n",
	},
	{
		"rule 15: a served list shows claims", podGo,
		"\tif p.Doubt() != Settled {\n\t\treturn to, false\n\t}\n", "\tif d := p.Doubt(); d != Settled && d != Unconfirmed {\n\t\treturn to, false\n\t}\n",
	},
	{
		"rule 16: a removal is forgotten while a read is under way", podGo,
		"return !x.Cached.Live() && oldest > x.To", "return !x.Cached.Live()",
	},
	{
		"rule 16: a removal is never forgotten", podGo,
		"return !x.Cached.Live() && oldest > x.To", "return false",
	},
	{
		"what a list showed is not remembered", podGo,
		"\tif !p.showsCached(shows) {\n\t\tp.Listed =", "\tif false {\n\t\tp.Listed =",
	},
	{
		"what the last list showed is lost with the next status", effectsGo,
		"\tif p.Listed == nil && !p.showsCached(shows) {\n", "\tif false {\n",
	},
	{
		"rule 17: memory answers for a pod in doubt", podGo,
		"if inspecting || p.Doubt() != Settled {", "if inspecting {",
	},
	{
		"rule 17: memory answers while a read is under way", podGo,
		"if inspecting || p.Doubt() != Settled {", "if p.Doubt() != Settled {",
	},
}
