// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// bounds are of the entries in a forged ledger: bytes in all, and their number.
type bounds struct{ size, number int }

// many returns entries with the number of each.
func (b bounds) many(entry func(i int) string) string {
	size := b.size
	return entries(func(i, length int) bool { return length < size && i < b.number }, entry)
}

// entries returns entries while they are to go on.
func entries(goOn func(i, length int) bool, entry func(i int) string) string {
	var b strings.Builder
	for i := 0; goOn(i, b.Len()); i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(entry(i))
	}
	return b.String()
}

// forgedLedgers are fields of ledgers that would take much memory.
var forgedLedgers = map[string]func(b bounds) string{
	"reported": func(b bounds) string {
		return `"reported":{` + b.many(func(i int) string { return fmt.Sprintf(`"%x":null`, i) }) + `}`
	},
	"unsent":   func(b bounds) string { return `"unsent":[` + b.many(func(int) string { return `{}` }) + `]` },
	"no ends":  func(b bounds) string { return `"unsent":[` + b.many(func(int) string { return `0` }) + `]` },
	"settling": func(b bounds) string { return `"settling":[` + b.many(func(int) string { return `null` }) + `]` },
	"combined": func(b bounds) string { return `"combined":[` + b.many(func(int) string { return `{}` }) + `]` },
	"running": func(b bounds) string {
		return `"unsent":[{"running":[` + b.many(func(int) string { return `""` }) + `]}]`
	},
	"deep":         func(b bounds) string { return `"x":` + strings.Repeat("[", b.size/2) + strings.Repeat("]", b.size/2) },
	"a long time":  func(b bounds) string { return `"reported":{"a":"` + strings.Repeat("\u0080", b.size/2) + `"}` },
	"a long ID":    func(b bounds) string { return `"reported":{"` + strings.Repeat("a", b.size) + `":"?"}` },
	"a long digit": func(b bounds) string { return `"version":1` + strings.Repeat("0", b.size) },
	"labels": func(b bounds) string {
		return `"settling":[{"labels":{` + b.many(func(i int) string { return fmt.Sprintf(`"%x":""`, i) }) + `}}]`
	},
}

// TestAForgedLedgerTakesLittleMemory: whatever a file of the largest size holds, or of the most
// values, a reader allocates a small multiple of the size, and says in a short text what is wrong.
func TestAForgedLedgerTakesLittleMemory(t *testing.T) {
	for name, field := range forgedLedgers {
		for size, b := range map[string]bounds{
			"the most bytes":  {maxLedger - 1000, maxLedger},
			"the most values": {maxLedger / 2, maxValues - 10},
		} {
			t.Run(name+", "+size, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "r.json")
				content := `{"version":1,"since":"2026-01-01T00:00:00Z",` + field(b) + "}"
				check(t, os.WriteFile(path, []byte(content), 0o600))
				content = ""
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := loadLedger(path, start)
				runtime.ReadMemStats(&after)
				took := after.TotalAlloc - before.TotalAlloc
				t.Logf("%d MiB, %.200v", took>>20, err)
				if took > 8*maxLedger {
					t.Errorf("%d MiB are allocated for a file of %d MiB at most", took>>20, maxLedger>>20)
				}
				if text := fmt.Sprint(err); err != nil && (len(text) > 1000 || !strings.Contains(text, path+".bad")) {
					t.Errorf("%d bytes: %.300s", len(text), text)
				}
			})
		}
	}
}

// TestAForgedLedgerTellsNothingTwice: an end that a ledger has twice, or as told and as waiting, is
// told once. What a reporter cannot have written is dropped, and counted.
func TestAForgedLedgerTellsNothingTwice(t *testing.T) {
	end := func(id string, at time.Duration) End {
		return End{
			ID:         id,
			Kind:       Failed,
			Pod:        Ref{UID: "u", Namespace: "ns", Name: "p"},
			Container:  "app",
			FinishedAt: start.Add(at),
		}
	}
	settling := func(e End) settlingEnd { return settlingEnd{End: e} }
	died := End{ID: "s", Kind: SandboxDied, Pod: Ref{UID: "u", Namespace: "ns", Name: "p"}}
	nameless := end("n", 0)
	nameless.Pod.Name = ""
	homeless := end("h", 0)
	homeless.Pod.Namespace = ""
	reason := end("r", 0)
	reason.Kind = "Container Failed"
	long := end("l", 0)
	long.Kind = Kind(strings.Repeat("K", 65))
	kindless := end("k", 0)
	kindless.Kind = ""
	later := end("later", 0)
	later.Kind = "ContainerOfALaterVersion"
	r := record{
		Version:  ledgerVersion,
		Since:    start,
		Reported: map[string]time.Time{"": start, "told": start.Add(time.Second)},
		Unsent: list[End]{
			end("a", 1), end("a", 1), end("a", 2), end("", 0),
			died, died, nameless, homeless, reason, long, kindless, later,
		},
		Settling: list[settlingEnd]{
			settling(end("b", 3)), settling(end("b", 4)), settling(end("a", 2)), settling(end("told", time.Second)),
			settling(end("told", 2*time.Second)), settling(end("", 0)), settling(nameless),
		},
		Combined: list[combined]{
			{"ns", Failed, 3}, {"ns", Failed, 4}, {"ns", Killed, 5}, {"", Failed, 6}, {"ns2", "a b", 7},
			{"ns3", Failed, -8}, {"ns4", Failed, 0}, {"ns5", Failed, maxRecounted}, {"ns6", Failed, math.MaxInt64},
		},
	}
	path := filepath.Join(t.TempDir(), "r.json")
	check(t, saveLedger(path, &r))
	kept := must(loadLedger(path, start.Add(time.Hour)))(t)
	var unsent, waiting []string
	for _, e := range kept.Unsent {
		unsent = append(unsent, fmt.Sprint(e.ID, e.FinishedAt.Sub(start)))
	}
	for _, e := range kept.Settling {
		waiting = append(waiting, fmt.Sprint(e.ID, e.FinishedAt.Sub(start)))
	}
	for got, want := range map[string]string{
		fmt.Sprint(kept.Reported): fmt.Sprint(map[string]time.Time{"told": start.Add(time.Second)}),
		fmt.Sprint(unsent):        fmt.Sprint([]string{"a1ns", "a2ns", fmt.Sprint("s", died.FinishedAt.Sub(start)), "later0s"}),
		fmt.Sprint(waiting):       "[b3ns told2s n0s]",
		fmt.Sprint(kept.Combined): fmt.Sprintf("[{ns ContainerFailed 3} {ns ContainerKilled 5} {ns5 ContainerFailed %d}]", maxRecounted-8),
	} {
		if got != want {
			t.Errorf("the record has %s, want %s", got, want)
		}
	}
	const ends = 1 + 8 + 4 // of Reported, Unsent and Settling
	const counted = 4 + 6 + 7 + 1 + 1 + 8
	if want := int64(ends + counted + math.MaxInt32); kept.dropped != want {
		t.Errorf("%d ends are dropped, want %d", kept.dropped, want)
	}
}

// TestNoLedgerIsWrittenThatCannotBeRead: the one before stays.
func TestNoLedgerIsWrittenThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	check(t, saveLedger(path, &record{Version: ledgerVersion, Since: start, Reported: map[string]time.Time{"a": start}}))
	reported := make(map[string]time.Time)
	for i := range maxValues + 1 {
		reported[fmt.Sprint(i)] = start
	}
	for says, r := range map[string]*record{
		"bytes":  {Reported: map[string]time.Time{strings.Repeat("b", maxLedger): start}},
		"values": {Reported: reported},
		"ends":   {Settling: make(list[settlingEnd], maxEnds+1)},
	} {
		err := saveLedger(path, r)
		if text := fmt.Sprint(err); !strings.Contains(text, path) || !strings.Contains(text, says+", more than ") {
			t.Errorf("%s: %v", says, err)
		}
		kept := must(loadLedger(path, start))(t)
		if len(kept.Reported) != 1 || !kept.Reported["a"].Equal(start) {
			t.Errorf("%s: the ledger has %v", says, kept.Reported)
		}
	}
}

// TestATextOfALedgerStaysAsItWas: what a reporter wrote makes the same note after a restart, and
// what another wrote is bounded and printable.
func TestATextOfALedgerStaysAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	for _, text := range forgeries {
		shown := Container{ID: "c", Name: text, Phase: pleg.PhaseExited, FinishedAt: start, Reason: text, Message: text}
		told := newPod(start, Ref{UID: "u", Namespace: "ns", Name: "p"}).end(&container{shown: shown}, true)
		told.Kind = NotStarted
		raw := told
		raw.Container, raw.Reason, raw.Message = text, text, text
		for range 2 {
			check(t, saveLedger(path, &record{Version: ledgerVersion, Since: start, Unsent: list[End]{told, raw}}))
			kept := must(loadLedger(path, start))(t)
			if len(kept.Unsent) != 1 { // they are one end
				t.Fatalf("%q: %+v", text, kept)
			}
			if got, want := noteOf(&kept.Unsent[0], start), noteOf(&told, start); got != want {
				t.Errorf("%.100q: the note is\n\t%s\nwant\n\t%s", text, got, want)
			}
			told = kept.Unsent[0]
		}
		check(t, saveLedger(path, &record{Version: ledgerVersion, Since: start, Unsent: list[End]{raw}}))
		e := must(loadLedger(path, start))(t).Unsent[0]
		if rest := quotedText.ReplaceAllString(noteOf(&e, start), ""); strings.Contains(rest, `"`) {
			t.Errorf("%.100q: a quote is open in %s", text, noteOf(&e, start))
		}
		for _, part := range []string{e.Container, e.Reason, e.Message, noteOf(&e, start)} {
			if len(part) > 1024 || strings.ContainsFunc(part, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%.100q: %q", text, part)
			}
		}
	}
}
