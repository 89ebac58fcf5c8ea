// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/hostile"
	"github.com/evented-pleg/evented-pleg/internal/hostile/runtime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestHostileRuntime runs an agent for a minute on a runtime whose names, labels and errors
// command a terminal, forge lines of a log and are enormous: none of that is in what the agent
// prints, logs, serves and remembers, in both forms of its output.
func TestHostileRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { hostileRuntime(t, false, false) })
	synctest.Test(t, func(t *testing.T) { hostileRuntime(t, true, true) })
}

func hostileRuntime(t *testing.T, ids, asJSON bool) {
	state := filepath.Join(t.TempDir(), "reported.json")
	var printed, logged bytes.Buffer
	logger := cli.SetLogger(&logged, slog.Level(-10))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	dial, stop, err := startFake(ctx)
	testkit.Check(t, err)
	defer stop()
	behind := testkit.Must(grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })))(t)
	defer behind.Close()
	h := runtime.Runtime{Behind: behind, IDs: ids}
	server := h.Server()
	listener := bufconn.Listen(1 << 16)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }() // ends with Stop
	defer func() {
		server.Stop()
		<-served
	}()

	o := testkit.Must(config(t, "--fake", "--node", "n1", "--state", state))(t)
	a := testkit.Must(newAgent(o, parts{
		sink: newPrinter(&printed, asJSON),
		dial: listener.DialContext,
	}))(t)
	ended := make(chan error)
	go func() { ended <- a.run(ctx) }()
	time.Sleep(time.Minute)
	served200 := 0
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		answer := httptest.NewRecorder()
		a.handler().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		if answer.Code == http.StatusOK {
			served200++
		}
		if err := hostile.Clean(answer.Body.String()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"printed":    printed.String(),
		"logged":     logged.String(),
		"remembered": string(testkit.Must(os.ReadFile(state))(t)),
	} {
		if err := hostile.Clean(text); err != nil {
			t.Errorf("ids %v, JSON %v: %s: %v", ids, asJSON, name, err)
		}
	}
	if served200 == 0 || !strings.Contains(printed.String(), "owned") {
		t.Errorf("the agent has served %d pages, and printed %d bytes without the venom's words: nothing was tried", served200, printed.Len())
	}
}
