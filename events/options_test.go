// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// scene is what is left of half a minute without a server, then ten minutes of a loop beside twenty
// single events about another object.
type scene struct {
	stored, combined int
	dropped          map[string]int64
	calls            int64
}

// playScene returns the scene under the given options, or what New says against them.
func playScene(t *testing.T, change func(*Options)) (end scene, err error) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		opts := Options{Sink: server.Sink(), Instance: "node-1"}
		change(&opts)
		_, err = New(opts)
		if err != nil {
			return
		}
		r := newRig(t, server, func(o *Options) { *o = opts })
		server.SetFault(during(30*time.Second, errAway))
		for i := range 20 {
			r.rec.Eventf(podRef("p"), nil, corev1.EventTypeNormal, "R", fmt.Sprint("A", i), "n")
		}
		for range 600 {
			r.pod("loop", 1)
			pass(time.Second)
		}
		for _, e := range server.Events() {
			if e.Reason != "EventSeriesKept" {
				end.stored++
			}
			if strings.HasPrefix(e.Note, combinedNote) {
				end.combined++
			}
		}
		end.dropped = r.Stats().Dropped
		end.calls, _ = server.Count()
	})
	return end, err
}

// TestLargeOptions sets each number and time to large values, up to the largest of its type: such a
// value means "no bound". It works as well as the default, or New names the option.
func TestLargeOptions(t *testing.T) {
	usual, err := playScene(t, func(*Options) {})
	noError(t, err)
	options := reflect.TypeFor[Options]()
	tried := 0
	for i := range options.NumField() {
		field := options.Field(i)
		if field.Type.Kind() != reflect.Int && field.Type.Kind() != reflect.Int64 {
			continue
		}
		tried++
		least := int64(1 << 12)
		if field.Type == reflect.TypeFor[time.Duration]() {
			least = int64(time.Hour)
		}
		for v := int64(math.MaxInt64); v > least; v >>= 4 {
			name := fmt.Sprint(field.Name, "=", v)
			got, err := playScene(t, func(o *Options) { reflect.ValueOf(o).Elem().Field(i).SetInt(v) })
			switch {
			case err != nil && !strings.Contains(err.Error(), field.Name):
				t.Errorf("%s: New does not name the option: %v", name, err)
			case err != nil:
			case got.stored != usual.stored || got.combined > 0 || len(got.dropped) > 0:
				t.Errorf("%s: the scene ends as %+v, and by default as %+v", name, got, usual)
			case got.calls > 2*usual.calls:
				t.Errorf("%s: %d calls, and by default %d", name, got.calls, usual.calls)
			}
		}
	}
	if tried < 9 {
		t.Errorf("%d options are numbers or times: the test proves nothing", tried)
	}
}
