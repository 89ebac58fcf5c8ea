// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// TestRuntime names the runtime of the first connection, and after a reconnect the runtime that is
// there then. Between them it asks nothing.
func TestRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older := testkit.Must(fakeruntime.New(fakeruntime.Config{Profile: testkit.Must(fakeruntime.ProfileByName("containerd-2"))(t)}))(t)
		newer := testkit.Must(fakeruntime.New(fakeruntime.Config{Profile: testkit.Must(fakeruntime.ProfileByName("crio"))(t)}))(t)
		dial := onfake.Memory(t, older)
		upgraded := onfake.Memory(t, newer)
		var conn net.Conn
		client := testkit.Must(cri.New(cri.Config{Dialer: func(ctx context.Context) (_ net.Conn, err error) {
			conn, err = dial(ctx)
			return conn, err
		}}))(t)
		r := Of(client)
		wants := func(when, want string) {
			t.Helper()
			got := ""
			r.Gauges(func(name string, _ float64) { got += name })
			if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Follow(ctx)
		}()
		time.Sleep(time.Minute)
		wants("without a connection", "")
		testkit.Must(client.Version(ctx))(t)
		time.Sleep(time.Minute)
		wants("connected", "runtime/containerd/")
		if calls := older.Stats().RPCs["Version"]; calls != 2 {
			t.Errorf("Version was called %d times, want once beside ours", calls)
		}
		dial = upgraded
		_ = conn.Close()
		time.Sleep(time.Minute)
		for range 3 { // the first finds the lost connection
			_, _ = client.Version(ctx)
			time.Sleep(time.Minute)
		}
		wants("after an upgrade", "runtime/cri-o/")
		cancel()
		<-ended
		testkit.Check(t, client.Close())
	})
}

// TestSlashes: a slash in the name shifts nothing into the version, which may have slashes.
func TestSlashes(t *testing.T) {
	r := Of(nil)
	r.name(cri.Version{RuntimeName: "acme/runtime", RuntimeVersion: "v1/2"})
	got := ""
	r.Gauges(func(name string, _ float64) { got += name })
	if want := "runtime/acme_runtime/v1/2"; got != want {
		t.Errorf("the gauge is %q, want %q", got, want)
	}
}
