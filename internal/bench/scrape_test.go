// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScrape(t *testing.T) {
	got := Scrape([]byte(`# HELP a_total What a counts.
# TYPE a_total counter
a_total 7
go_goroutines 1.2e+01
b_bucket{le="1"} 3
b_bucket{le="+Inf"} 5
c{state="two words",x="} y"} 1
c{state="later"} 2 1700000000000
not_a_number word
alone

last 1`))
	want := map[string]float64{
		"a_total": 7, "go_goroutines": 12, `b_bucket{le="1"}`: 3, `b_bucket{le="+Inf"}`: 5, `c{state="two words",x="} y"}`: 1,
		`c{state="later"}`: 2, "last": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
