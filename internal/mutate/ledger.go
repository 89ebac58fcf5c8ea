// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

// ledgerDir holds the ledger from which a kubelet's lists are served.
const ledgerDir = "embed/ledger/"

// ledgerMutations break the rules for serving lists from memory. The random histories of the
// ledger's own search must catch each.
var ledgerMutations = []mutation{
	{
		"ledger: a claim of an end is believed", ledgerDir + "evidence.go",
		"\tl.containers.question(id, phase, pod)\n}",
		"\tif x := l.containers.items[id]; x != nil && phase == Exited {\n\t\tl.containers.move(x, phase)\n\t\treturn\n\t}\n\tl.containers.question(id, phase, pod)\n}",
	},
	{
		"ledger: an end that overtakes StartContainer's answer is forgotten", ledgerDir + "evidence.go",
		"phase == Running && l.starting[id] > 0 {", "l.starting[id] > 0 {",
	},
	{
		"ledger: StopContainer ends what was only created", ledgerDir + "call.go",
		"case x != nil && (x.phase == Exited || x.phase == Running && x.since < c.began):", "case x != nil:",
	},
	{
		"ledger: StopContainer ends what was started meanwhile", ledgerDir + "call.go",
		"case x != nil && (x.phase == Exited || x.phase == Running && x.since < c.began):", "case x != nil && x.phase >= Running:",
	},
	{
		"ledger: lists are served while something is being made", ledgerDir + "ledger.go",
		"case l.creating > 0:", "case false:",
	},
	{
		"ledger: a failed call has made nothing", ledgerDir + "call.go",
		"l.broken = l.tick() // there may", "_ = l.broken // there may",
	},
	{
		"ledger: a call that was not answered makes nothing any more", ledgerDir + "ledger.go",
		"case full <= l.broken, l.awaits(f):", "case full <= l.broken:",
	},
	{
		"ledger: what a call may make yet is no other list's concern", ledgerDir + "call.go",
		"if pod == \"\" {\n\t\treturn true", "if pod == \"\" {\n\t\treturn false",
	},
	{
		"ledger: what a call may make yet is every pod's concern", ledgerDir + "call.go",
		"return its || anyones", "return its || anyones || len(l.unborn) > 0",
	},
	{
		"ledger: the first full lists show what a call that was not answered makes", ledgerDir + "call.go",
		"begun.After(at.Add(l.late))", "begun.After(at)",
	},
	{
		"ledger: a failed stop has stopped nothing", ledgerDir + "call.go",
		"case StartContainer, StopContainer, RemoveContainer:\n\t\tl.containers.ask(c.id)", "case StartContainer, StopContainer, RemoveContainer:",
	},
	{
		"ledger: any read answers a doubt", ledgerDir + "table.go",
		"ok && (r.began > d.at && shown == x.phase ||", "ok && (shown == x.phase ||",
	},
	{
		"ledger: an earlier read takes a phase back", ledgerDir + "table.go",
		"later := r.began > x.since", "later := true",
	},
	{
		"ledger: an earlier read takes an item away", ledgerDir + "table.go",
		"!ok && r.began > x.born && t.covers", "!ok && t.covers",
	},
	{
		"ledger: a list by state takes items away", ledgerDir + "table.go",
		"\tif f.hasState {\n\t\treturn // what", "\tif false {\n\t\treturn // what",
	},
	{
		"ledger: a removed item comes back by an earlier read", ledgerDir + "table.go",
		"\t\tif r.began <= g.at {\n\t\t\treturn // from before", "\t\tif r.began <= 0*g.at {\n\t\t\treturn // from before",
	},
	{
		"ledger: full lists from before the stream will do", ledgerDir + "ledger.go",
		"!l.trusted || min(l.sandboxes.full, l.containers.full) <= l.connected:", "!l.trusted:",
	},
	{
		"ledger: a sandbox in the making has ended", ledgerDir + "call.go",
		"l.sandboxes.made[a.Made] = l.tick()", "_ = l.sandboxes.made",
	},
	{
		"ledger: an unknown ID is no doubt", ledgerDir + "evidence.go",
		"return !dead || phase < Exited", "return false && dead",
	},
	{
		"ledger: an unknown state is served", ledgerDir + "table.go",
		"if t.covers(f, t.items[id].element) {", "if false && t.covers(f, t.items[id].element) {",
	},
	{
		"ledger: an unknown state is never known again", ledgerDir + "table.go",
		"if at, ok := t.unknown[id]; ok && r.began > at {", "if at, ok := t.unknown[id]; ok && r.began > at && false {",
	},
	{
		"ledger: everything is served while a container is in doubt", ledgerDir + "ledger.go",
		" && l.containers.refuses(filter{}).Reason == \"\"", "",
	},
	{
		"ledger: nothing is ever served", ledgerDir + "ledger.go",
		"\tcase l.creating > 0:\n", "\tcase true:\n",
	},
}
