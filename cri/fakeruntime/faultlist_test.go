// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// Every field of Faults has its tags, and an example that changes something.
func TestFaultListIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range FaultList() {
		if seen[d.Name] || d.Name == "" || d.Help == "" || d.Kind == "" || strings.ToLower(d.Name) != d.Name {
			t.Errorf("fault %q: its name must be new, lower case, and have a kind and help", d.Name)
		}
		seen[d.Name] = true
		if d.Example != "" && must(ParseFaults(d.Name+"="+d.Example))(t) == (Faults{}) {
			t.Errorf("fault %q: the example %s changes nothing", d.Name, d.Example)
		}
	}
}

func TestParseFaults(t *testing.T) {
	got := must(ParseFaults("drop=0.05", " delay = 1", "delay-by=2s", "oversize-bytes=1000", "fail-code=DEADLINE_EXCEEDED", "clock-step=-1m", "drop=0.5"))(t)
	want := Faults{Drop: 0.5, Delay: 1, DelayBy: 2 * time.Second, OversizeBytes: 1000, FailCode: Code(codes.DeadlineExceeded), ClockStep: -time.Minute}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if s := got.String(); s != "drop=0.5 delay=1 delay-by=2s oversize-bytes=1000 clock-step=-1m0s fail-code=DeadlineExceeded" {
		t.Errorf("String: %s", s)
	}
	for spec, names := range map[string][]string{
		"drop":                     {`"drop"`, "NAME=VALUE"},
		"dorp=1":                   {`"dorp"`, "duplicate"},
		"drop=2":                   {"drop=2", "0 to 1"},
		"drop=NaN":                 {"drop=NaN", "0 to 1"},
		"drop=-0.1":                {"drop=-0.1"},
		"drop=x":                   {"drop=x"},
		"delay-by=5":               {"delay-by=5"},
		"delay-by=-5s":             {"delay-by", "negative"},
		"clock-skew=2000000h":      {"clock-skew", "too long"},
		"oversize-bytes=999999999": {"oversize-bytes"},
		"replay-events=-1":         {"replay-events"},
		"fail-code=OK":             {"fail-code", "Unavailable"},
		"fail-code=17":             {"fail-code"},
		"":                         {"NAME=VALUE"},
	} {
		_, err := ParseFaults(spec)
		if err == nil {
			t.Errorf("%q: no error", spec)
			continue
		}
		for _, n := range names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("%q: the error does not say %s: %v", spec, n, err)
			}
		}
	}
	if _, err := ParseFaults("drop=2", "x=1"); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two errors: %v", err)
	}
	if err := (Faults{Drop: 3, DelayBy: -1}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("Validate: %v", err)
	}
	rt := must(New(Config{}))(t)
	if err := rt.SetFaults(Faults{Drop: 3}); err == nil || rt.Faults() != (Faults{}) {
		t.Errorf("SetFaults: %v", err)
	}
}

// Accepted faults can be written and read back.
func FuzzParseFaults(f *testing.F) {
	for _, d := range faultList {
		f.Add(d.Name + "=" + d.Example)
	}
	f.Add("fail-code=14")
	f.Add("delay-by=1h1m1.5s")
	f.Fuzz(func(t *testing.T, spec string) {
		got, err := ParseFaults(spec)
		if err != nil {
			return
		}
		if err := got.Validate(); err != nil {
			t.Fatalf("%q is accepted, but %v", spec, err)
		}
		if again, err := ParseFaults(got.Strings()...); err != nil || again != got {
			t.Fatalf("%q: %v, %v", spec, again, err)
		}
	})
}

// Rolls come as often as their probability says, and each fault for itself.
func TestRoll(t *testing.T) {
	rt := must(New(Config{Seed: 42}))(t)
	var g ids
	both, drop, dup := 0, 0, 0
	const n = 20_000
	for range n {
		id := g.hex64()
		a, b := rt.roll(rollDrop, 0.3, id, 1), rt.roll(rollDuplicate, 0.3, id, 1)
		if a {
			drop++
		}
		if b {
			dup++
		}
		if a && b {
			both++
		}
	}
	near := func(what string, got int, want float64) {
		if f := float64(got) / n; f < want-0.02 || f > want+0.02 {
			t.Errorf("%s: %.3f, want %.2f", what, f, want)
		}
	}
	near("one", drop, 0.3)
	near("the other", dup, 0.3)
	near("both", both, 0.09)
	if rt.roll(rollDrop, 0, "x") || !rt.roll(rollDrop, 1, "x") {
		t.Error("0 struck, or 1 did not")
	}
}

// IDs are 64 hexadecimal digits, all different, and the same for the same seed.
func TestIDs(t *testing.T) {
	a, b, c := ids{seed: 1}, ids{seed: 1}, ids{seed: 2}
	seen := map[string]bool{}
	for range 100_000 {
		id := a.hex64()
		if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" || seen[id[:16]] {
			t.Fatalf("ID %q", id)
		}
		seen[id[:16]] = true
		if id != b.hex64() || id == c.hex64() {
			t.Fatal("IDs do not depend on the seed alone")
		}
	}
	if uid := a.uid(); len(uid) != 36 || strings.Count(uid, "-") != 4 {
		t.Errorf("UID %q", uid)
	}
}
