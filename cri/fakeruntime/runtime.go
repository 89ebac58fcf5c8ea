// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/processors"
)

// Config is the configuration of a [Runtime]. Its zero value is a well-behaved containerd 2.4.
type Config struct {
	// Profile is the family of runtimes to behave like. The zero Profile means containerd-2; any other
	// needs a Name.
	Profile Profile
	// Faults are the misbehaviours to start with; [Runtime.SetFaults] changes them later.
	Faults Faults
	// Seed determines every ID and every decision of a fault.
	Seed uint64
	// ContainerBytes is the padded size of the status of a container made by [Runtime.AddContainer]
	// or [Runtime.Populate]. Default 1500. Below about 1000 there is nothing to pad.
	ContainerBytes int
	// HistoryLimit bounds the number of changes kept for [Runtime.History], and of writings for
	// [Runtime.Contents]; the oldest go first. Default 100,000; negative keeps all.
	HistoryLimit int
	// ConnectionAge is the age, give or take a tenth, at which the server tells a client that it goes
	// away (a GOAWAY frame of HTTP/2): calls under way end on the old connection, and new ones go to
	// a new one. 0 means never.
	ConnectionAge time.Duration
	// ConnectionGrace is how long after that the old connection is closed with all that is still
	// under way on it, as a stream of events always is. 0 means never.
	ConnectionGrace time.Duration
}

const maxPayloadBytes = 1 << 20

func (c Config) withDefaults() Config {
	if c.Profile.Name == "" && c.Profile == (Profile{}) {
		c.Profile = profiles[0]
	}
	c.ContainerBytes = cmp.Or(c.ContainerBytes, 1500)
	c.HistoryLimit = cmp.Or(c.HistoryLimit, 100_000)
	return c
}

func (c Config) validate() error {
	errs := []error{c.Profile.validate(), c.Faults.Validate()}
	if c.ContainerBytes < 0 || c.ContainerBytes > maxPayloadBytes {
		errs = append(
			errs,
			fmt.Errorf(
				"fakeruntime: Config.ContainerBytes is %d: use 0 to %d",
				c.ContainerBytes,
				maxPayloadBytes,
			),
		)
	}
	for name, d := range map[string]time.Duration{"ConnectionAge": c.ConnectionAge, "ConnectionGrace": c.ConnectionGrace} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("fakeruntime: Config.%s is %v: use 0 or a longer time", name, d))
		}
	}
	if c.ConnectionGrace > 0 && c.ConnectionAge == 0 {
		errs = append(
			errs,
			fmt.Errorf(
				"fakeruntime: Config.ConnectionGrace is %v without a ConnectionAge: it counts from there",
				c.ConnectionGrace,
			),
		)
	}
	return errors.Join(errs...)
}

// A Runtime is a virtual container runtime, made by [New]. All its methods can be called from any
// goroutine, and no method that changes pods or containers waits for a client.
type Runtime struct {
	cfg           Config
	containerTail *tail
	rootUser      []byte // of containers made by the direct methods, encoded

	// mu guards everything below, and is never held while something is sent or waited for.
	mu     sync.Mutex
	faults Faults
	ids    ids
	store  store
	// images holds each image by its ID, its tag and its digests, all as full names.
	images  map[string]*image
	history history
	hub     hub
	sched   scheduler
	rpcs    map[string]uint64
	ips     uint64
	begun   time.Time

	restarts int

	emptyLists uint64 // lists that a fault had show nothing, although there was something

	// leftovers are removed containers that lists still show, oldest first.
	leftovers []*container
	fresh     map[string]bool // the methods of lists not called since the last restart
	contents  contents
	cpu       processors.Processors
	unseen    []*container // those that ended while the runtime was down

	// process and incarnation: see restart.go.
	process     process
	incarnation chan struct{}
	listeners   map[*listener]struct{}
	closed      bool
	closing     chan struct{}
}

// New returns a runtime without pods. It starts nothing: no goroutine runs before [Runtime.Serve],
// but containers with a lifetime end by themselves, driven by a timer.
func New(cfg Config) (*Runtime, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	rt := &Runtime{
		cfg:         cfg,
		faults:      cfg.Faults,
		ids:         ids{seed: mix(cfg.Seed)},
		rpcs:        map[string]uint64{},
		incarnation: make(chan struct{}),
		listeners:   map[*listener]struct{}{},
		closing:     make(chan struct{}),
		begun:       time.Now(),
	}
	rt.store.pods = map[string]*pod{}
	rt.hub.most = backlogBytes
	rt.history.limit = cfg.HistoryLimit
	rt.contents.limit = cfg.HistoryLimit
	rt.cpu.Set(processorsOf(&cfg.Faults))
	rt.sched.rt = rt
	rt.containerTail = containerTail(cfg.ContainerBytes)
	rt.rootUser, _ = cfg.Profile.userOf(nil)
	rt.addDefaultImages()
	return rt, nil
}

// Close ends every stream, every [Runtime.Serve] and every pending lifetime, for good: later calls
// fail. It returns at once; Serve returns when its part has ended.
func (rt *Runtime) Close() {
	rt.lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return
	}
	rt.closed = true
	rt.process = processDown
	close(rt.closing)
	rt.endIncarnation()
	rt.sched.stop()
}

// Profile returns the profile in use.
func (rt *Runtime) Profile() Profile { return rt.cfg.Profile }

// Faults returns the faults in force.
func (rt *Runtime) Faults() Faults {
	rt.lock()
	defer rt.mu.Unlock()
	return rt.faults
}

// SetFaults replaces the faults in force. Earlier decisions stay: a delayed event still comes late,
// a stalled stream stays stalled.
func (rt *Runtime) SetFaults(f Faults) error {
	if err := f.Validate(); err != nil {
		return err
	}
	rt.lock()
	defer rt.mu.Unlock()
	rt.faults = f
	if f.StaysListed == 0 {
		rt.leftovers = nil
	}
	rt.cpu.Set(processorsOf(&f))
	return nil
}

// stamp is the wall clock of the runtime, in nanoseconds since 1970, as distorted by the faults.
func (rt *Runtime) stamp() int64 {
	t := time.Now().Add(rt.faults.ClockSkew)
	if every := cmp.Or(rt.faults.ClockStepEvery, 10*time.Second); time.Since(rt.begun)/every%2 == 1 {
		t = t.Add(rt.faults.ClockStep)
	}
	return t.UnixNano()
}
