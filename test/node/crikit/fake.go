// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// OnFake returns a client of a fake runtime, which ends with the test.
func OnFake(t testing.TB, profile string, seed uint64) *Client {
	t.Helper()
	rt := fake(t, profile, seed)
	client := testkit.Must(Dial(Options{Endpoint: "unix://" + onfake.Socket(t, rt), Namespace: "mine", Image: fakeruntime.WorkloadImage}))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// InBubble is OnFake without a socket, for bubbles of virtual time.
func InBubble(t testing.TB, profile string, seed uint64) *Client {
	t.Helper()
	conn := onfake.Connect(t, onfake.Memory(t, fake(t, profile, seed)))
	return &Client{
		RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(conn),
		Options:              Options{Namespace: "mine", Image: fakeruntime.WorkloadImage},
		Conn:                 conn,
	}
}

func fake(t testing.TB, profile string, seed uint64) *fakeruntime.Runtime {
	t.Helper()
	p := testkit.Must(fakeruntime.ProfileByName(profile))(t)
	return testkit.Must(fakeruntime.New(fakeruntime.Config{Profile: p, Seed: seed}))(t)
}

// Serve serves a fake runtime until the end of the test, and returns its socket.
func Serve(t testing.TB, rt *fakeruntime.Runtime) (socket string) { return onfake.Socket(t, rt) }
