// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"flag"
	"fmt"
	"time"
)

// Config configures an agent. Durations of zero are the generator's defaults.
type Config struct {
	// Endpoint is the CRI socket for the PLEG, unix:///path.
	Endpoint string
	// Truth is the CRI socket that pod workers compare with. Empty: no workers.
	Truth string
	// Namespace bounds the cache's view and the workers to pods of that
	// namespace. Empty: all.
	Namespace string
	// Address is where HTTP is served. Default 127.0.0.1:0.
	Address string
	// Generic leaves the event stream out: polling, for comparison.
	Generic bool
	// WorkerPeriod is about how often each pod worker syncs without an event.
	WorkerPeriod time.Duration

	RelistBase, RelistMax, Grace                 time.Duration
	ReconnectBase, ReconnectMax, ReconnectSteady time.Duration
	StableAfter, RelistThreshold, InspectTimeout time.Duration
	RelistTimeout                                time.Duration
	Capacity                                     int
}

// Flags binds the configuration to flags.
func (c *Config) Flags(flags *flag.FlagSet) {
	flags.StringVar(&c.Endpoint, "endpoint", "", "CRI socket of the runtime, unix:///path")
	flags.StringVar(&c.Truth, "truth", "", "CRI socket that simulated pod workers compare with; empty: no workers")
	flags.StringVar(&c.Namespace, "namespace", "", "show and sync only pods of this namespace")
	flags.StringVar(&c.Address, "address", "127.0.0.1:0", "loopback address of the HTTP interface")
	flags.BoolVar(&c.Generic, "generic", false, "poll, without the event stream")
	flags.DurationVar(&c.WorkerPeriod, "worker-period", time.Second, "how often a pod worker syncs without an event")
	for name, d := range map[string]*time.Duration{
		"relist-base": &c.RelistBase, "relist-max": &c.RelistMax, "grace": &c.Grace,
		"reconnect-base": &c.ReconnectBase, "reconnect-max": &c.ReconnectMax, "reconnect-steady": &c.ReconnectSteady,
		"stable-after": &c.StableAfter, "relist-threshold": &c.RelistThreshold, "inspect-timeout": &c.InspectTimeout,
		"relist-timeout": &c.RelistTimeout,
	} {
		flags.DurationVar(d, name, 0, "the generator's setting of that name; 0: its default")
	}
	flags.IntVar(&c.Capacity, "capacity", 0, "size of the Watch channel; 0: the generator's default")
}

func (c Config) validate() error {
	if c.Endpoint == "" {
		return fmt.Errorf("agent: --endpoint is empty: name the runtime's CRI socket, unix:///path")
	}
	if c.Truth != "" && c.WorkerPeriod <= 0 {
		return fmt.Errorf("agent: --worker-period is %v: want more than 0", c.WorkerPeriod)
	}
	return nil
}
