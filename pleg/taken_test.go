// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// fickle is a runtime whose lists of everything show what its other reads do not.
type fickle struct {
	*toyRuntime
	mu    sync.Mutex
	lists int
	twist func(pods []Pod, lists int) []Pod
}

func (f *fickle) List(ctx context.Context, since Revision) (Listing, error) {
	l, err := f.toyRuntime.List(ctx, since)
	if err != nil {
		return l, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	l.Pods = f.twist(l.Pods, f.lists)
	return l, nil
}

// TestWhatIsTakenBackIsNotMissed: what one list shows and a later read takes back, be it an ID that
// is not there or a state that is not so, is no missed event and no sign of a mute stream. It is
// counted as taken back, and the stream, which has told all there was to tell, keeps its trust.
func TestWhatIsTakenBackIsNotMissed(t *testing.T) {
	for name, twist := range map[string]func([]Pod, int) []Pod{
		"an ID that is not there": func(pods []Pod, n int) []Pod {
			ghost := Item{ID: fmt.Sprint("ghost", n), Kind: Container, Phase: PhaseRunning}
			return append(pods, Pod{UID: cache.UID(fmt.Sprint("q", n)), Items: []Item{ghost}})
		},
		"an end that was none": func(pods []Pod, n int) []Pod {
			for i := range pods {
				for j := range pods[i].Items {
					if it := &pods[i].Items[j]; it.ID == "c" && n%2 == 0 {
						it.Phase = PhaseExited
					}
				}
			}
			return pods
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := &notes{}
			inBubble(t, func(c *Config[status], toy *toyRuntime) {
				toy.set("p", Container, "c", PhaseRunning)
				c.Source, c.Recorder, c.RelistMax = &fickle{toyRuntime: toy, twist: twist}, recorder, 32*time.Second
			}, func(b *bed) {
				time.Sleep(10 * time.Minute)
				s := b.gen.Stats()
				if s.Missed+s.MissedCreations+s.MissedRemovals+s.Unheard+s.Reconnects != 0 || s.RelistPeriod != 32*time.Second {
					t.Errorf("the stream has told all: %+v", s)
				}
				if s.Regressions < 10 {
					t.Errorf("%d phases are said to be taken back", s.Regressions)
				}
				for _, reason := range []Reason{ReasonEventsMissed, ReasonChangesUnheard, ReasonStreamLost} {
					if n := recorder.count(reason); n != 0 {
						t.Errorf("%d reports %s: %+v", n, reason, recorder.last(reason))
					}
				}
				b.events()
			})
		})
	}
}
