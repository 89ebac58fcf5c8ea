// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// OnFake returns a client of a fake runtime, which ends with the test.
func OnFake(t testing.TB, profile string, seed uint64) *Client {
	t.Helper()
	p := testkit.Must(fakeruntime.ProfileByName(profile))(t)
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Profile: p, Seed: seed}))(t)
	client := testkit.Must(Dial(Options{Endpoint: "unix://" + onfake.Socket(t, rt), Namespace: "mine", Image: fakeruntime.WorkloadImage}))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// Serve serves a fake runtime until the end of the test, and returns its socket.
func Serve(t testing.TB, rt *fakeruntime.Runtime) (socket string) { return onfake.Socket(t, rt) }
