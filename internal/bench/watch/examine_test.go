// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// spoken is an output that ends a watch once it has said something.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
	word string
	then func(all string)
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if s.word != "" && strings.Contains(s.text.String(), s.word) {
		s.word = ""
		s.then(s.text.String())
	}
	return len(b), nil
}

// TestWatchExamines runs a watch with examinations on a runtime with a container that hangs: the
// finding is printed in either form and served as a metric.
func TestWatchExamines(t *testing.T) {
	t.Parallel()
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 3}))(t)
	dial := onfake.Memory(t, rt)
	testkit.Check(t, rt.SetFaults(testkit.Must(fakeruntime.ParseFaults("hang-item=0.2"))(t)))
	testkit.Must(rt.Populate(fakeruntime.Population{Pods: 10, Containers: 1}))(t)
	// What is found at first on a busy machine may be a call that this program did not get to make.
	for form, word := range map[string]string{"text": "hangs: ContainerStatus is not answered", "json": `"id":"item-hangs"`} {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		var metrics string
		said := &spoken{word: word, then: func(all string) {
			if address := regexp.MustCompile(`http://\S+/metrics`).FindString(all); address != "" {
				metrics = get(t, address)
			}
			stop()
		}}
		summary, err := Run(ctx, Options{
			Endpoint:    "unix:///run/fake.sock",
			Dialer:      dial,
			Mode:        worker.Evented,
			Quiet:       true,
			DoctorEvery: 2 * time.Second,
			MetricsAddr: "127.0.0.1:0",
			Output:      form,
			Out:         said,
			Err:         said,
		})
		if err != nil || summary == nil {
			t.Fatalf("%s: %v", form, err)
		}
		text := said.text.String()
		if form == "text" {
			testkit.Says(
				t,
				"the text",
				text,
				"! doctor: sick",
				"hangs: ContainerStatus is not answered → crictl inspect",
			)
			testkit.Says(
				t,
				"the metrics",
				metrics,
				`evented_pleg_doctor_findings{finding="item-hangs",grade="sick"}`,
				`evented_pleg_doctor_worth{worth="sick"} 1`,
				`evented_pleg_doctor_period_seconds 2`,
			)
			continue
		}
		hangs := func(f doctor.Finding) bool { return f.ID == "item-hangs" }
		told := 0
		for candidate := range strings.Lines(text) {
			if !strings.Contains(candidate, `"type":"Doctor"`) {
				continue
			}
			var line doctorLine
			testkit.Check(t, json.Unmarshal([]byte(candidate), &line))
			if line.Doctor.Worth == doctor.Sick && line.Doctor.Schema == doctor.Schema &&
				slices.ContainsFunc(line.Doctor.Findings, hangs) {
				told++
			}
		}
		if told == 0 {
			t.Errorf("no examination tells of the container that hangs: %s", text)
		}
	}
}

// get reads a page.
func get(t *testing.T, address string) string {
	answer, err := http.Get(address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestExaminedIsToldOnce: each report of a sick node is printed, and of others those that differ.
func TestExaminedIsToldOnce(t *testing.T) {
	tap := newTap(false)
	for _, worth := range []doctor.Worth{doctor.Well, doctor.Well, doctor.Sick, doctor.Sick, doctor.Unknown, doctor.Unknown, doctor.Well} {
		tap.examined(doctor.Report{Worth: worth})
	}
	var got []doctor.Worth
	for _, what := range tap.take(time.Now()) {
		got = append(got, what.(doctor.Report).Worth)
	}
	if want := "[well sick sick unknown well]"; fmt.Sprint(got) != want {
		t.Errorf("told %v, want %s", got, want)
	}
}

// TestConnectedFromTheStart: what was before the watch's start is no time of its connection.
func TestConnectedFromTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	p := &printer{
		options:   Options{Meter: new(standstill.Meter)},
		lookedAt:  began.Add(-time.Second),
		connected: time.Hour,
	}
	testkit.Check(t, p.start(ctx))
	if p.connected != 0 || p.lookedAt.Before(began) {
		t.Errorf("connected for %v, looked at %v before the start", p.connected, began.Sub(p.lookedAt))
	}
}

// TestHostileFindings: what a runtime has written commands no terminal and forges no line.
func TestHostileFindings(t *testing.T) {
	venom := "\x1b]0;owned\a\r\nE1125 FORGED\u009b31m\u202e" + strings.Repeat("A", 210_000)
	for _, form := range []string{"text", "json"} {
		var out bytes.Buffer
		p := &printer{options: Options{Output: form, Out: &out, Err: &out}}
		testkit.Check(t, p.examination(doctor.Report{Worth: doctor.Sick, Node: venom, Runtime: venom, Findings: []doctor.Finding{
			{ID: "call-fails", Grade: doctor.Ill, Sentence: venom, Evidence: []string{venom}, Change: venom},
		}, Unseen: []doctor.Unseen{{Area: "items", Why: venom}}}, time.Now()))
		if n := printable.Count(out.String()); n > 0 || strings.Contains(out.String(), "\nE1125") || out.Len() > 40_000 || !strings.Contains(out.String(), "owned") {
			t.Errorf("%s: %d characters that are not printable in %d bytes: %.500q", form, n, out.Len(), out.String())
		}
	}
}

// TestTurns: a list waits for the other, and not for ever.
func TestTurns(t *testing.T) {
	var none turn
	none.take(t.Context())()
	synctest.Test(t, func(t *testing.T) {
		turns := make(turn, 1)
		done := turns.take(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		turns.take(ctx)() // goes on without the turn
		second := make(chan func(), 1)
		go func() { second <- turns.take(t.Context()) }()
		synctest.Wait()
		if len(second) > 0 {
			t.Error("two have the turn")
		}
		done()
		(<-second)()
		turns.take(t.Context())()
	})
}
