// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

func TestConfigNamesWhatIsWrong(t *testing.T) {
	toy := newToy()
	good := func() Config[status] { return Config[status]{Source: toy, Cache: cache.New[status](nil)} }
	if _, err := New(good()); err != nil {
		t.Fatalf("the zero configuration is refused: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*Config[status])
		want   []string
	}{
		"no source":      {func(c *Config[status]) { c.Source = nil }, []string{"Source is nil"}},
		"no cache":       {func(c *Config[status]) { c.Cache = nil }, []string{"Cache is nil"}},
		"negative":       {func(c *Config[status]) { c.Grace = -time.Second }, []string{"Grace is -1s"}},
		"max below base": {func(c *Config[status]) { c.RelistBase, c.RelistMax = 10*time.Second, time.Second }, []string{"RelistMax is 1s", "RelistBase, 10s"}},
		"two at once":    {func(c *Config[status]) { c.Capacity, c.SweepAt = -1, -2 }, []string{"Capacity is -1", "SweepAt is -2"}},
		"a count beyond all memory": {
			func(c *Config[status]) { c.Capacity, c.InspectWorkers, c.OwedMax = 1<<30, 1<<30, 1<<30 },
			[]string{"Capacity is 1073741824", "InspectWorkers is 1073741824", "OwedMax is 1073741824"},
		},
		"settling calls for longer than polling": {
			func(c *Config[status]) { c.RelistBase, c.CallSettle = time.Second, 2*time.Second }, []string{"CallSettle is 2s", "RelistBase, 1s"},
		},
		"negative settling of calls": {func(c *Config[status]) { c.CallSettle = -1 }, []string{"CallSettle is -1ns"}},
		"jitter above one":           {func(c *Config[status]) { c.Jitter = 1.5 }, []string{"Jitter is 1.5"}},
		"reconnect order":            {func(c *Config[status]) { c.ReconnectBase, c.ReconnectMax = 2*time.Minute, time.Minute }, []string{"ReconnectMax is 1m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			tc.change(&cfg)
			_, err := New(cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
	cfg := good()
	cfg.RelistBase = 10 * time.Minute // longer than the default maximum: the default follows
	if _, err := New(cfg); err != nil {
		t.Errorf("a base above the default maximum: %v", err)
	}
}
