// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
)

const (
	// DefaultMaxMessageSize is the default of [Config.MaxMessageSize]: 256 MiB, which is 100,000
	// containers of 2.6 KB in one message.
	DefaultMaxMessageSize = 256 << 20
	// DefaultMaxStatusCalls is the default of [Config.MaxStatusCalls].
	DefaultMaxStatusCalls = 16
)

// Config configures a [Client]. Endpoint or Dialer is required; every other field's zero value is
// its default.
type Config struct {
	// Endpoint is the runtime's unix socket: "unix:///run/containerd/containerd.sock", or the bare
	// absolute path.
	Endpoint string
	// Dialer, when set, connects to the runtime instead of dialing the socket that Endpoint names;
	// Endpoint is then only a name for messages. It is called again for every reconnect.
	Dialer func(ctx context.Context) (net.Conn, error)
	// MaxMessageSize bounds one message of the runtime, in bytes. It matters for runtimes without
	// the streaming lists, which send all containers in one message. Memory is taken as the message
	// arrives, not up front. Default [DefaultMaxMessageSize].
	MaxMessageSize int
	// MaxStatusCalls bounds the PodSandboxStatus and ContainerStatus calls that this client has in
	// flight at once, so that a mass inspection leaves the runtime room for the calls of others.
	// Default [DefaultMaxStatusCalls].
	MaxStatusCalls int
	// OnEvent, when set, is given every message of the event stream as the runtime sent it, an
	// encoded CRI ContainerEventResponse, before the client takes the message apart; broken ones
	// too. It is for tools that judge a runtime. Calls come one after another for each
	// subscription; the stream waits for them. The bytes are the client's and must not be kept or
	// changed.
	OnEvent func(message []byte)
}

// withDefaults returns the configuration with every zero field at its default.
func (c Config) withDefaults() Config {
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = DefaultMaxMessageSize
	}
	if c.MaxStatusCalls == 0 {
		c.MaxStatusCalls = DefaultMaxStatusCalls
	}
	return c
}

// validate reports every field, of a configuration with its defaults filled in, that cannot work,
// by name and value.
func (c Config) validate() error {
	var errs []error
	if c.Endpoint == "" && c.Dialer == nil {
		errs = append(errs, errors.New(`cri: Config.Endpoint is empty: name the runtime's socket, such as "unix:///run/containerd/containerd.sock"`))
	}
	if c.MaxMessageSize < 0 {
		errs = append(errs, fmt.Errorf("cri: Config.MaxMessageSize is %d: it must not be negative (zero means %d)", c.MaxMessageSize, DefaultMaxMessageSize))
	}
	if c.MaxStatusCalls < 0 {
		errs = append(errs, fmt.Errorf("cri: Config.MaxStatusCalls is %d: it must not be negative (zero means %d)", c.MaxStatusCalls, DefaultMaxStatusCalls))
	}
	if c.Endpoint != "" && c.Dialer == nil {
		if _, err := socketPath(c.Endpoint); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
