// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// TestFakeIsWhatItStandsFor runs the script on the fake with each profile: the transcript must
// equal the real runtime's but for the differences of the table, all of which must still exist.
func TestFakeIsWhatItStandsFor(t *testing.T) {
	var mu sync.Mutex // guards found
	found := make([]bool, len(Differences))
	t.Run("runtimes", func(t *testing.T) {
		for _, r := range runtimes.All() {
			t.Run(r.Name, func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile(filepath.Join("testdata", r.Name+".txt"))
				if err != nil {
					t.Fatal(err)
				}
				want, err := Parse(string(text))
				if err != nil {
					t.Fatal(err)
				}
				fake := recordFake(t, r)
				mended, known := Compare(r.Name, fake)
				if diff := cmp.Diff(strings.Split(want.String(), "\n"), strings.Split(mended.String(), "\n")); diff != "" {
					t.Errorf("the profile %s differs from %s %s (-real +fake):\n%s", r.Profile, r.Family, r.Version, diff)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, d := range known {
					found[slices.IndexFunc(Differences, func(other Difference) bool { return reflect.DeepEqual(d, other) })] = true
				}
			})
		}
	})
	for i, d := range Differences {
		if !found[i] {
			t.Errorf("the difference %+v is in the table, and is not there any more", d)
		}
	}
}

func recordFake(t *testing.T, r runtimes.Runtime) Transcript {
	t.Helper()
	client := crikit.OnFake(t, r.Profile, 1)
	client.Namespace, client.Image = "conformance", "example.local/tool:1"
	pull := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: client.Image}}
	if _, err := client.Images().PullImage(t.Context(), pull); err != nil {
		t.Fatal(err)
	}
	got, err := Record(t.Context(), client, OptionsFor(r.Traits, 250*time.Millisecond))
	if err != nil {
		t.Fatalf("%v, after\n%s", err, got)
	}
	return got
}

func TestCompare(t *testing.T) {
	defer func(before []Difference) { Differences = before }(Differences)
	Differences = []Difference{
		{Step: "one", Real: "x: Unknown", Fake: "x: OK"},
		{Step: "one", Fake: "only the fake"},
		{Step: "one", Real: "only the real", Before: "lists: "},
		{Step: "one", Real: "many: none", Fake: "many: …"},
		{Step: "one", Real: "never", Fake: "absent: …"},
		{Step: "two", Real: "y: Unknown", Fake: "x: OK"},
		{Step: "other", Fake: "of a: …", Append: " more", Except: []string{"of a: not this"}},
		{Step: "other", Fake: "of a: not …", Append: " that", Except: []string{"of a: not this"}},
		{Runtimes: []string{"another"}, Step: "one", Real: "", Fake: "lists: "},
	}
	fake := Transcript{
		{Name: "one", Lines: []string{"x: OK", "only the fake", "many: 1", "many: 2", "lists: ", "many: 3"}},
		{Name: "other", Lines: []string{"of a: x", "of b: x", "of a: not this", "of a: y"}},
	}
	got, found := Compare("some", fake)
	want := Transcript{
		{Name: "one", Lines: []string{"x: Unknown", "many: none", "only the real", "lists: ", "many: 3"}},
		{Name: "other", Lines: []string{"of a: x more", "of b: x", "of a: not this", "of a: y more"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mended (-want +got):\n%s", diff)
	}
	if len(found) != 5 || fake[0].Lines[0] != "x: OK" {
		t.Errorf("found %+v, want four and the one that appends, and the transcript as it was: %v", found, fake)
	}
}
