// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
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
		"a zero cache":   {func(c *Config[status]) { c.Cache = new(cache.Cache[status]) }, []string{"make it with cache.New"}},
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
		"jitter that is no number":   {func(c *Config[status]) { c.Jitter = math.NaN() }, []string{"Jitter is NaN"}},
		"reconnect order":            {func(c *Config[status]) { c.ReconnectBase, c.ReconnectMax = 2*time.Minute, time.Minute }, []string{"ReconnectMax is 1m0s"}},
		"a unit forgotten":           {func(c *Config[status]) { c.RelistBase = 5 }, []string{"RelistBase is 5ns", "5*time.Second"}},
		"a unit forgotten of a time that may be negative": {
			func(c *Config[status]) { c.EndSettle, c.Reread = 1, 600 }, []string{"EndSettle is 1ns", "Reread is 600ns"},
		},
		"a source of a nil pointer": {
			func(c *Config[status]) { c.Source = (*toyRuntime)(nil) }, []string{"Source is a nil *pleg.toyRuntime"},
		},
		"a stream of a nil pointer": {
			func(c *Config[status]) { c.Stream = (*toyRuntime)(nil) }, []string{"Stream is a nil *pleg.toyRuntime", "leave the field out"},
		},
		"metrics of a nil pointer": {
			func(c *Config[status]) { c.Metrics = (*timings)(nil) }, []string{"Metrics is a nil *pleg.timings", "leave the field out"},
		},
		"a recorder of a nil pointer": {
			func(c *Config[status]) { c.Recorder = (*reportLog)(nil) }, []string{"Recorder is a nil *pleg.reportLog", "leave the field out"},
		},
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

// One error names one fault: what follows from a field that is refused already is not said.
func TestConfigSaysEachFaultOnce(t *testing.T) {
	for name, change := range map[string]func(*Config[status]){
		"RelistBase":    func(c *Config[status]) { c.RelistBase = -time.Second },
		"RelistMax":     func(c *Config[status]) { c.RelistMax = -time.Second },
		"RetryMax":      func(c *Config[status]) { c.RetryMax = -time.Second },
		"ReconnectMax":  func(c *Config[status]) { c.ReconnectMax = -time.Second },
		"CallSettle":    func(c *Config[status]) { c.CallSettle = -time.Second },
		"ReconnectBase": func(c *Config[status]) { c.ReconnectBase = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config[status]{Source: newToy(), Cache: cache.New[status](nil)}
			change(&cfg)
			_, err := New(cfg)
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "Config."+name+" is ") {
				t.Errorf("error %v: want one line about %s", err, name)
			}
		})
	}
}

// "Never" is often written as the longest duration: times made from it do not overflow.
func TestConfigOfTheLongestDurations(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for _, base := range []time.Duration{longest, longest / 2, longest / 3, longest / 4} {
		cfg := Config[status]{Source: newToy(), Cache: cache.New[status](nil), RelistBase: base}
		if _, err := New(cfg); err != nil {
			t.Fatal(err)
		}
		cfg = cfg.withDefaults()
		if l := cfg.limits(); l.CallBurst < longest-5 {
			t.Errorf("RelistBase %v: five times that is %v, want about the longest duration", base, l.CallBurst)
		}
	}
}

// TestWaitsAreShort: a pod that needs a read waits for no list, and a pod in teardown for no look,
// much longer than a tenth of a second, however rarely the agent polls.
func TestWaitsAreShort(t *testing.T) {
	for base, want := range map[time.Duration]time.Duration{
		time.Millisecond: 100 * time.Microsecond,
		time.Second:      100 * time.Millisecond,
		5 * time.Minute:  100 * time.Millisecond,
	} {
		cfg := Config[status]{RelistBase: base}.withDefaults()
		l := cfg.limits()
		if l.ListFirst != want || l.TeardownAgain != want {
			t.Errorf("RelistBase %v: a list is waited for for %v, and a removal for %v, want %v", base, l.ListFirst, l.TeardownAgain, want)
		}
	}
}

// TestAWaiterBesideAHungList: who waits for a status while a list hangs has a read within a second,
// however rarely the agent polls.
func TestAWaiterBesideAHungList(t *testing.T) {
	cfg := Config[benchStatus]{
		Cache:      cache.New[benchStatus](nil),
		Source:     deadSource{},
		RelistBase: time.Minute,
	}
	d := newDriver(cfg, clock{epoch: time.Now()})
	now := firstInstant
	d.start(now)
	d.tick(now) // the list begins
	d.core.want("p", wanted{phases: now.add(-1)}, now)
	p := d.core.pods["p"]
	if at := p.nextRead(&d.core.records, &d.core.cfg, &d.core.lists); !d.core.lists.inflight || at > now.add(time.Second) {
		t.Errorf("the pod is read after %v, beside a list: %v", at.sub(now), d.core.lists.inflight)
	}
}
