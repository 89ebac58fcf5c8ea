// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMatrix(t *testing.T) {
	suites := []*Suite{
		{Runtime: "containerd v2.4.2", Results: []Result{
			{Name: "00-runtime", Outcome: Passed, Took: time.Second, Stale: 3, Recorded: true},
			{Name: "01-lifecycle", Outcome: Passed, Took: time.Second, Converge: 12 * time.Millisecond},
		}},
		{Runtime: "cri-o 1.36.3", Results: []Result{
			{Name: "01-lifecycle", Outcome: Failed, Converge: time.Second, Missed: 2},
			{Name: "04-restart", Outcome: Passed, Converge: 2340 * time.Millisecond, Missed: 1},
		}},
	}
	var out strings.Builder
	if err := WriteMatrix(&out, suites); err != nil {
		t.Fatal(err)
	}
	want := `| scenario | containerd v2.4.2 | cri-o 1.36.3 |
|---|---|---|
| 00-runtime | pass | – |
| 01-lifecycle | 12 ms | **FAIL** |
| 04-restart | – | 2.3 s |
| all | 2 of 2 pass, 2 s | 1 of 2 pass, 0 s |
| missed | 0 | 3 (01: 2, 04: 1) |
| stale payloads seen | 3 (00: 3) | 0 |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("matrix (-want +got):\n%s", diff)
	}
}
