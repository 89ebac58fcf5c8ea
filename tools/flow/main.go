// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command flow draws the picture of the README, for light and dark pages:
//
//	go run ./tools/flow docs
package main

import (
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"
	"strings"
)

// palette is the colors of a page.
type palette struct{ text, muted, line, box, accent, accentText string }

var palettes = map[string]palette{
	"light": {
		text:       "#1f2328",
		muted:      "#59636e",
		line:       "#818b98",
		box:        "#f6f8fa",
		accent:     "#0969da",
		accentText: "#ffffff",
	},
	"dark": {
		text:       "#f0f6fc",
		muted:      "#9198a1",
		line:       "#656c76",
		box:        "#151b23",
		accent:     "#1f6feb",
		accentText: "#ffffff",
	},
}

// box is a part of the picture, in units of the view.
type box struct {
	x, y, w, h int
	title      string
	lines      []string
	accent     bool
}

// arrow goes along points; its label stands at a place of its own.
type arrow struct {
	points         [][2]int
	label          string
	labelX, labelY int
	dashed         bool
}

// The picture: what flows from the runtime to an agent.
var (
	boxes = []box{
		{
			x:     10,
			y:     60,
			w:     150,
			h:     120,
			title: "container runtime",
			lines: []string{"containerd, CRI-O", "exits, starts,", "creates, removes"},
		},
		{
			x:      330,
			y:      40,
			w:      190,
			h:      160,
			title:  "this PLEG",
			accent: true,
			lines: []string{
				"an event is a hint:",
				"it says which pod to read",
				"a read decides",
				"a list now and then",
				"finds what no event told",
			},
		},
		{x: 690, y: 20, w: 160, h: 70, title: "cache of statuses", lines: []string{"never older than asked"}},
		{x: 690, y: 150, w: 160, h: 70, title: "your agent", lines: []string{"kubelet, monitor"}},
	}
	arrows = []arrow{
		{points: [][2]int{{160, 80}, {330, 80}}, label: "event stream, at once", labelX: 245, labelY: 72},
		{points: [][2]int{{330, 120}, {160, 120}}, label: "read of one pod", labelX: 245, labelY: 112},
		{
			points: [][2]int{{330, 160}, {160, 160}},
			label:  "list, every 1 to 300 s",
			labelX: 245,
			labelY: 152,
			dashed: true,
		},
		{points: [][2]int{{520, 60}, {690, 60}}, label: "status", labelX: 605, labelY: 52},
		{points: [][2]int{{520, 185}, {690, 185}}, label: "Started, Died, Removed", labelX: 605, labelY: 177},
		{points: [][2]int{{770, 150}, {770, 90}}, label: "GetNewerThan", labelX: 824, labelY: 124},
	}
)

const width, height = 890, 240

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: flow FOLDER")
	}
	for name, colors := range palettes {
		path := filepath.Join(os.Args[1], "flow-"+name+".svg")
		err := os.WriteFile(path, []byte(draw(colors)), 0o644)
		if err != nil {
			log.Fatal(err)
		}
	}
}

// draw returns the picture.
func draw(p palette) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="13">`,
		width,
		height,
	)
	line(
		`<title>Events of the container runtime tell the PLEG which pod to read; reads fill the cache, and the agent is told.</title>`,
	)
	line(
		`<defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="%s"/></marker></defs>`,
		p.line,
	)
	for _, a := range arrows {
		a.draw(line, p)
	}
	for _, x := range boxes {
		x.draw(line, p)
	}
	line(`</svg>`)
	return b.String()
}

func (a arrow) draw(line func(string, ...any), p palette) {
	var points []string
	for _, at := range a.points {
		points = append(points, fmt.Sprintf("%d,%d", at[0], at[1]))
	}
	dashes := ""
	if a.dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	line(
		`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5" marker-end="url(#end)"%s/>`,
		strings.Join(points, " "),
		p.line,
		dashes,
	)
	line(
		`<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>`,
		a.labelX,
		a.labelY,
		p.muted,
		html.EscapeString(a.label),
	)
}

func (x box) draw(line func(string, ...any), p palette) {
	fill := p.box
	title := p.text
	text := p.muted
	if x.accent {
		fill = p.accent
		title = p.accentText
		text = p.accentText
	}
	line(
		`<rect x="%d" y="%d" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`,
		x.x,
		x.y,
		x.w,
		x.h,
		fill,
		p.line,
	)
	const step = 20
	at := x.y + x.h/2 - step*len(x.lines)/2 + 4
	line(
		`<text x="%d" y="%d" text-anchor="middle" font-weight="600" fill="%s">%s</text>`,
		x.x+x.w/2,
		at,
		title,
		html.EscapeString(x.title),
	)
	for _, l := range x.lines {
		at += step
		line(
			`<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>`,
			x.x+x.w/2,
			at,
			text,
			html.EscapeString(l),
		)
	}
}
