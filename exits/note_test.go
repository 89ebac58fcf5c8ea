// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestKindsAndNotes(t *testing.T) {
	ended := func(code int32, reason string) End {
		return End{Container: "app", Attempt: 3, ExitCode: code, CodeKnown: true, Reason: reason, StartedAt: start, FinishedAt: start.Add(2300 * time.Millisecond)}
	}
	oom := ended(137, "OOMKilled")
	oom.MemoryLimit = 20 << 20
	// Runtimes say OOMKilled of a container in which the kernel has killed any process, at any time:
	// kubernetes 104454 and 140716, amazon-ecs-agent 2467. These containers were not killed for it.
	worker := ended(1, "OOMKilled")
	worker.MemoryLimit = 20 << 20
	unborn := ended(128, "StartError")
	unborn.Message = `exec: "nope": not found`
	unstarted := ended(2, "Error")
	unstarted.StartedAt = time.Time{}
	lost := ended(0, "")
	lost.CodeKnown = false
	long := ended(1, "Error")
	long.FinishedAt = start.Add(51*time.Hour + 10*time.Minute)
	tests := []struct {
		end  End
		kind Kind
		note string
	}{
		{ended(0, "Completed"), Completed, "Container app completed (exit code 0) after 2.3s, attempt 3"},
		{ended(1, "Error"), Failed, "Container app failed (exit code 1) after 2.3s, attempt 3"},
		{ended(128, "Error"), Failed, "Container app failed (exit code 128) after 2.3s, attempt 3"},
		{ended(255, "Error"), Failed, "Container app failed (exit code 255) after 2.3s, attempt 3"},
		{long, Failed, "Container app failed (exit code 1) after 2d3h, attempt 3"},
		{oom, OOMKilled, "Container app was killed for lack of memory (OOMKilled, exit code 137, SIGKILL, limit 20Mi) after 2.3s, attempt 3"},
		{ended(0, "OOMKilled"), OOMKilled, "Container app completed after a process in it was killed for lack of memory (OOMKilled, exit code 0) after 2.3s, attempt 3"},
		{worker, OOMKilled, "Container app failed after a process in it was killed for lack of memory (OOMKilled, exit code 1, limit 20Mi) after 2.3s, attempt 3"},
		{ended(143, "OOMKilled"), OOMKilled, "Container app was ended by SIGTERM after a process in it was killed for lack of memory (OOMKilled, exit code 143, SIGTERM) after 2.3s, attempt 3"},
		{ended(128, "OOMKilled"), OOMKilled, "Container app was killed for lack of memory (OOMKilled, exit code 128) after 2.3s, attempt 3"}, // gvisor 14679
		{ended(137, "Error"), Killed, "Container app was ended by SIGKILL (exit code 137) after 2.3s, attempt 3"},
		{ended(139, "Error"), Killed, "Container app was ended by SIGSEGV (exit code 139) after 2.3s, attempt 3"},
		{ended(170, "Error"), Killed, "Container app was ended by signal 42 (exit code 170) after 2.3s, attempt 3"},
		{ended(143, "Error"), Stopped, "Container app was ended by SIGTERM (exit code 143) after 2.3s, attempt 3"},
		{ended(255, "Unknown"), Lost, "Container app ended unseen by the container runtime (exit code 255, Unknown) after 2.3s, attempt 3"},
		{lost, Lost, "Container app ended and was removed before its exit code could be read after 2.3s, attempt 3"},
		{unborn, NotStarted, `Container app could not be started (exit code 128, StartError) after 2.3s, attempt 3: "exec: \"nope\": not found"`},
		{unstarted, NotStarted, "Container app could not be started (exit code 2), attempt 3"},
	}
	for _, test := range tests {
		e := test.end
		e.Kind = classify(&e)
		if e.Kind != test.kind {
			t.Errorf("code %d, %s: %s, want %s", e.ExitCode, e.Reason, e.Kind, test.kind)
		}
		if note := noteOf(&e, start); note != test.note {
			t.Errorf("note\n\t%s\nwant\n\t%s", note, test.note)
		}
	}
	sandbox := End{Kind: SandboxDied, Running: []string{"a", "b", "c", "d", "e", "f", "g"}}
	if note := noteOf(&sandbox, start); note != "The pod's sandbox ended under its running containers: a, b, c, d, e and 2 more" {
		t.Error(note)
	}
}

// FuzzNote: whatever a runtime sends, a note is one line of printable text within the API's limit.
func FuzzNote(f *testing.F) {
	f.Add("app", "Error", "line\nline\x1b[31m", int32(1))
	f.Add(strings.Repeat("é", 500), strings.Repeat("\u202e", 500), strings.Repeat("\xff", 5000), int32(-5))
	f.Fuzz(func(t *testing.T, name, reason, message string, code int32) {
		e := End{Container: printable(name, maxName), Reason: printable(reason, maxReason), Message: printable(message, maxMessage), ExitCode: code, CodeKnown: true}
		e.Kind = classify(&e)
		e.Running = []string{name, reason, message, name, name, name}
		for range 2 {
			note := noteOf(&e, start)
			if len(note) > 1024 || !utf8.ValidString(note) || strings.IndexFunc(note, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("%d bytes: %q", len(note), note)
			}
			for key, value := range annotationsOf(&e) {
				if !strings.HasPrefix(key, annotationPrefix) || !utf8.ValidString(value) {
					t.Errorf("annotation %q: %q", key, value)
				}
			}
			e.Kind = SandboxDied
		}
	})
}

func TestParseKind(t *testing.T) {
	for _, kind := range Kinds() {
		for _, name := range []string{kind.Short(), string(kind)} {
			got, err := ParseKind(name)
			if err != nil || got != kind {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	}
	_, err := ParseKind("oomkilled")
	if err == nil || !strings.Contains(err.Error(), `"oomkilled": use oom, failed, killed, lost, sandbox, completed, stopped, not-started`) {
		t.Error(err)
	}
}

func TestChoice(t *testing.T) {
	end := func(kind Kind, namespace, app string) *End {
		return &End{Kind: kind, Pod: Ref{Namespace: namespace}, Labels: map[string]string{"app": app}}
	}
	tests := []struct {
		choice Choice
		end    *End
		want   bool
	}{
		{Choice{}, end(OOMKilled, "a", "db"), true},
		{Choice{}, end(Stopped, "a", "db"), false},
		{Choice{Kinds: []Kind{Stopped}}, end(Stopped, "a", "db"), true},
		{Choice{Kinds: []Kind{Stopped}}, end(OOMKilled, "a", "db"), false},
		{Choice{Namespaces: []string{"a"}}, end(OOMKilled, "a", "db"), true},
		{Choice{Namespaces: []string{"a"}}, end(OOMKilled, "b", "db"), false},
		{Choice{ExceptNamespaces: []string{"a"}}, end(OOMKilled, "a", "db"), false},
		{Choice{Labels: "app=db"}, end(OOMKilled, "a", "db"), true},
		{Choice{Labels: "app!=db"}, end(OOMKilled, "a", "db"), false},
	}
	for _, test := range tests {
		c := must(test.choice.checked())(t)
		if got := c.chooses(test.end); got != test.want {
			t.Errorf("%+v chooses %+v: %v", test.choice, test.end, got)
		}
	}
	bad := Choice{Kinds: []Kind{"x"}, Namespaces: []string{"a"}, ExceptNamespaces: []string{"a"}, Labels: "=("}
	_, err := bad.checked()
	for _, part := range []string{`"x"`, `the namespace "a" is in`, `Choice.Labels "=("`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %s: %v", part, err)
		}
	}
}

func TestLimiter(t *testing.T) {
	l := newLimiter(start, Rate{PerSecond: 1, Burst: 10}, Rate{PerSecond: 5, Burst: 1000})
	admitted := map[string]int{}
	for second := range 600 {
		now := start.Add(time.Duration(second) * time.Second)
		for range 500 {
			if l.admit(now, "storm") {
				admitted["storm"]++
			}
		}
		if l.admit(now, "quiet") {
			admitted["quiet"]++
		}
	}
	if admitted["storm"] != 10+599 || admitted["quiet"] != 600 {
		t.Errorf("admitted %v, want 609 of the storm and all 600 of the quiet namespace", admitted)
	}
	for i := range 10000 {
		l.admit(start.Add(time.Hour+time.Duration(i)*time.Minute), strings.Repeat("x", i%1000))
	}
	if len(l.namespaces) > keptBuckets+1 {
		t.Errorf("%d buckets are kept", len(l.namespaces))
	}
}

// TestLimiterOfTheNode: many namespaces below their own rates are bound by that of the node.
func TestLimiterOfTheNode(t *testing.T) {
	l := newLimiter(start, Rate{PerSecond: 1, Burst: 10}, Rate{PerSecond: 5, Burst: 50})
	admitted := 0
	for second := range 100 {
		for i := range 20 {
			if l.admit(start.Add(time.Duration(second)*time.Second), string(rune('a'+i))) {
				admitted++
			}
		}
	}
	if want := 50 + 99*5; admitted != want {
		t.Errorf("admitted %d of 20 namespaces, want %d", admitted, want)
	}
}

func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reported.json")
	r := must(loadLedger(path, start))(t)
	if !r.Since.Equal(start) || len(r.Reported) != 0 {
		t.Errorf("without a file: %+v", r)
	}
	r.Reported = map[string]time.Time{"id": start}
	r.Unsent = []End{{Kind: Failed, Pod: Ref{Namespace: "ns", Name: "p"}, ID: "x", ExitCode: 3, CodeKnown: true}}
	check(t, saveLedger(path, &r))
	again := must(loadLedger(path, start.Add(time.Hour)))(t)
	if !again.Since.Equal(start) || !again.Reported["id"].Equal(start) || len(again.Unsent) != 1 || again.Unsent[0].ExitCode != 3 {
		t.Errorf("read again: %+v", again)
	}
	back := must(loadLedger(path, start.Add(-time.Hour)))(t)
	if !back.Since.Equal(start.Add(-time.Hour)) {
		t.Errorf("after a clock that was set back, ends before %v would be no news", back.Since)
	}
	for _, content := range []string{"", "\n", "{", `{"version":2,"since":"2026-01-01T00:00:00Z"}`, `{"version":1,"since":""}`} {
		check(t, os.WriteFile(path, []byte(content), 0o600))
		r, err := loadLedger(path, start)
		if err == nil || !strings.Contains(err.Error(), path+".bad") || !r.Since.Equal(start) {
			t.Errorf("%q: %+v, %v", content, r, err)
		}
		if _, err := os.Stat(path + ".bad"); err != nil {
			t.Error(err)
		}
		check(t, os.Remove(path+".bad"))
	}
	if err := saveLedger(filepath.Join(path, "no", "folder"), &r); err == nil {
		t.Error("a ledger in no folder is written")
	}
}

// TestEscapeJSON checks that the file of what was reported has no character that a terminal obeys,
// and is read as it was meant.
func TestEscapeJSON(t *testing.T) {
	for _, text := range []string{"", "plain ö 世", "\x1b]0;x\a\r\n", "\u009b31m\x7f", "\u202e", "\U000e0001 tag", "\\\"\u2028"} {
		data, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		escaped := escapeJSON(data)
		if i := strings.IndexFunc(string(escaped), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q: %q has a character that is not printable", text, escaped)
		}
		var back map[string]string
		if err := json.Unmarshal(escaped, &back); err != nil || back[text] != text {
			t.Errorf("%q is %q in the file, and read as %q (%v)", text, escaped, back, err)
		}
	}
}

// TestLedgerFollowsNoLink checks that a link in place of the file that is about to be renamed is
// not written through.
func TestLedgerFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "reported.json"), filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := saveLedger(path, &record{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(victim)
	if err != nil || string(text) != "alive" {
		t.Errorf("the victim has %q (%v)", text, err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the ledger is %v (%v), want a regular file", info, err)
	}
}

// TestChoiceOfNoNamespace: a name that no namespace can have chooses nothing, for ever.
func TestChoiceOfNoNamespace(t *testing.T) {
	for _, name := range []string{"", "Shop", "my_app", "a b", "a*", "-a", strings.Repeat("n", 64), "\x1b[31m"} {
		for field, choice := range map[string]Choice{
			"Choice.Namespaces":       {Namespaces: []string{"a", name}},
			"Choice.ExceptNamespaces": {ExceptNamespaces: []string{"a", name}},
		} {
			err := choice.Validate()
			if err == nil || !strings.Contains(err.Error(), field+`: no namespace is named "`) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%s %q: %v", field, name, err)
			}
		}
	}
}
