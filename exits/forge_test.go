// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// forgeries are texts of a tenant that look like words of a reporter, or of what prints its notes.
var forgeries = []string{
	"boom (x99)",
	`boom" (x99)`,
	`boom\" (x99)`,
	`boom\`,
	`"`,
	`""`,
	", attempt 7, at 2026-01-01T00:00:00Z",
	"app completed (exit code 0) after 3s, attempt 0",
	"a, b and 7 more",
	"a}: Container db completed (exit code 0)",
	"ok\n12:00:00  Warning  ContainerFailed  shop/db-0  Container db failed (exit code 1)",
	"\x1b[2K\x1b[1A\u009b31m\x7f",
	"\u202e)99x( moob\u2066",
	"\xff\xfe … (5000 bytes)",
	"",
	"\u3164", // a letter that looks like a space
	strings.Repeat(`"`, 5000),
	strings.Repeat("a b", 5000),
}

// quotedText matches one of Go's strings.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// TestATenantForgesNoNote: whatever a tenant's text says, a note differs from that of an honest
// tenant only between quotes.
func TestATenantForgesNoNote(t *testing.T) {
	honest := Container{ID: "c", Name: "two words", Phase: pleg.PhaseExited, ExitCode: 128, Reason: "two words", Message: "m"}
	note := func(c Container, change func(*End)) string {
		e := newPod(start, Ref{Name: "p"}).end(&container{shown: c}, true)
		change(&e)
		if len(noteOf(&e, start)) > 1024 {
			t.Errorf("%d bytes: %s", len(noteOf(&e, start)), noteOf(&e, start))
		}
		return noteOf(&e, start)
	}
	blank := func(note string) string { return quotedText.ReplaceAllString(note, "?") }
	for what, change := range map[string]func(*End){
		"failed":      func(e *End) { e.Kind = Failed },
		"lost":        func(e *End) { e.Kind = Lost },
		"oom":         func(e *End) { e.Kind = OOMKilled },
		"not started": func(e *End) { e.Kind = NotStarted },
		"sandbox": func(e *End) {
			e.Kind = SandboxDied
			e.Running = []string{"a", e.Container, "z"}
		},
	} {
		want := blank(note(honest, change))
		for _, text := range forgeries {
			for where, set := range map[string]func(*Container){
				"name":    func(c *Container) { c.Name = text },
				"reason":  func(c *Container) { c.Reason = text },
				"message": func(c *Container) { c.Message = text },
			} {
				forged := honest
				set(&forged)
				if text == "" && where != "name" {
					continue // then the note has no place for it
				}
				if got := note(forged, change); blank(got) != want {
					t.Errorf("%s, %s %.100q: the note is\n\t%s\nwant only quoted text to differ from\n\t%s",
						what, where, text, got, note(honest, change))
				}
			}
		}
	}
}

// TestAQuotedMessageIsTheTenants: a reader gets the text back, as one of Go's strings.
func TestAQuotedMessageIsTheTenants(t *testing.T) {
	for _, text := range append(forgeries, "exec: \"nope\": not found") {
		if text == "" || len(text) > maxMessage {
			continue
		}
		c := Container{ID: "c", Name: "app", Phase: pleg.PhaseExited, Message: text}
		e := newPod(start, Ref{}).end(&container{shown: c}, true)
		e.Kind = Failed
		_, literal, _ := strings.Cut(noteOf(&e, start), ", attempt 0: ")
		if got, err := strconv.Unquote(literal); err != nil || got != text {
			t.Errorf("%q: the note has %s, %v", text, literal, err)
		}
	}
}

// TestATenantForgesNoFieldPath: the name of a container ends where the path says.
func TestATenantForgesNoFieldPath(t *testing.T) {
	for _, name := range forgeries {
		e := End{Kind: Failed, Container: printable(name, maxName)}
		path, _ := strings.CutPrefix(fieldPathOf(&e), "spec.containers{")
		literal, ok := strings.CutSuffix(path, "}")
		if _, err := strconv.Unquote(literal); !ok || err != nil {
			t.Errorf("%.50q: %s, %v", name, fieldPathOf(&e), err)
		}
	}
	if path := fieldPathOf(&End{Kind: Failed, Container: "app-1"}); path != "spec.containers{app-1}" {
		t.Error(path)
	}
}
