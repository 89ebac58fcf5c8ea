// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evented-pleg/evented-pleg/internal/doctor/findings"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// served is what rounds serve as metrics: name, labels and value of each series but the age.
func served(t *testing.T, r *Rounds) (list []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	testkit.Check(t, registry.Register(r))
	for _, family := range testkit.Must(registry.Gather())(t) {
		if family.GetName() == findings.Age {
			continue
		}
		for _, m := range family.GetMetric() {
			var text strings.Builder
			text.WriteString(strings.TrimPrefix(family.GetName(), "evented_pleg_doctor_"))
			for _, l := range m.GetLabel() {
				text.WriteString(" " + l.GetValue())
			}
			list = append(
				list,
				fmt.Sprint(text.String(), " ", m.GetGauge().GetValue()+m.GetCounter().GetValue()),
			)
		}
	}
	return list
}

// age is the served age of the last examination.
func age(t *testing.T, r *Rounds) time.Duration {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	testkit.Check(t, registry.Register(r))
	for _, family := range testkit.Must(registry.Gather())(t) {
		if family.GetName() == findings.Age {
			return time.Duration(family.GetMetric()[0].GetGauge().GetValue() * float64(time.Second))
		}
	}
	t.Fatal("no age is served")
	return 0
}

// TestRounds checks when examinations begin, and what is served of their reports: IDs and areas,
// and nothing that a runtime has written.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		examined := make(chan time.Time) // the begin of each examination, which waits for the test
		var at []time.Time
		var told []Report // read after the end
		reports := []Report{
			{
				Worth:  Sick,
				Calls:  []Call{{Count: 3}, {Count: 4}},
				Unseen: []Unseen{{"disks", "secret"}},
				Findings: []Finding{
					{
						ID:       "item-hangs",
						Grade:    Ill,
						Sentence: "secret",
					},
					{ID: "item-hangs", Grade: Ill},
					{ID: "polled", Grade: Costly},
					{ID: "clients", Grade: Note},
				},
			},
			{Worth: Sick, lag: 3, Findings: []Finding{{ID: "call-hangs", Grade: Ill}}}, // of a frozen process
			{Worth: Well, Calls: []Call{{Count: 1}}},
		}
		n := 0
		r := &Rounds{
			Every: time.Hour,
			Examine: func(_ context.Context, within time.Duration) Report {
				if within != roundWithin {
					t.Errorf("an examination may take %v, want %v", within, roundWithin)
				}
				select {
				case examined <- time.Now():
				case <-ctx.Done():
				}
				n++
				return reports[min(n, len(reports))-1]
			},
			Tell: func(r Report) { told = append(told, r) },
		}
		if got := served(t, r); got != nil {
			t.Errorf("before the begin %q is served", got)
		}
		next := func() {
			at = append(at, <-examined)
			synctest.Wait()
		}
		began := time.Now()
		ended := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		if got := served(t, r); !slices.Equal(got, []string{"calls_total 0", "period_seconds 3600"}) {
			t.Errorf("before the first examination %q is served", got)
		}
		next()
		if first := at[0].Sub(began); first >= time.Hour {
			t.Errorf("the first examination comes after %v, want less than an hour", first)
		}
		want := []string{
			"calls_total 7",
			"findings item-hangs sick 2",
			"findings polled costly 1",
			"not_looked_at disks 1",
			"period_seconds 3600",
			"worth sick 1",
		}
		if got := served(t, r); !slices.Equal(got, want) {
			t.Errorf("%q is served, want %q", got, want)
		}
		next()
		if pause := at[1].Sub(at[0]); pause < 54*time.Minute || pause > 66*time.Minute {
			t.Errorf("the second examination comes after %v, want 54 to 66 minutes", pause)
		}
		if got := served(t, r); !slices.Equal(got, want) || age(t, r) < 54*time.Minute {
			t.Errorf("an examination without CPU changes what is served: %q, age %v", got, age(t, r))
		}
		next()
		if pause := at[2].Sub(at[1]); pause > voidPause {
			t.Errorf("an examination without CPU is tried again after %v", pause)
		}
		if got := served(t, r); !slices.Equal(got, []string{"calls_total 8", "period_seconds 3600", "worth well 1"}) || age(t, r) > 2*time.Second {
			t.Errorf("%q is served, age %v", got, age(t, r))
		}
		stop()
		<-ended
		if len(told) != 2 || told[0].Worth != Sick || told[1].Worth != Well {
			t.Errorf("%d reports were told: %+v", len(told), told)
		}
	})
}

// TestRoundsDiffer: nodes that start together do not examine together.
func TestRoundsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		first := make(chan time.Time, 100)
		began := time.Now()
		for range cap(first) {
			r := &Rounds{Every: 10 * time.Minute, Examine: func(context.Context, time.Duration) Report {
				first <- time.Now()
				<-ctx.Done()
				return Report{}
			}}
			go r.Run(ctx)
		}
		minutes := make(map[int]int)
		for range cap(first) {
			minutes[int((<-first).Sub(began).Minutes())]++
		}
		for minute, n := range minutes {
			if n > 40 {
				t.Errorf("%d of 100 nodes examine in minute %d", n, minute)
			}
		}
		stop()
	})
}
