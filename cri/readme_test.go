// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func watch(ctx context.Context, endpoint string) error {
	client, err := cri.New(cri.Config{Endpoint: endpoint})
	if err != nil {
		return err
	}
	defer client.Close()
	statuses := cache.New(cri.EmptyStatus)
	generator, err := pleg.New(pleg.Config[cri.PodStatus]{Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs})
	if err != nil {
		return err
	}
	go generator.Run(ctx) // ends with ctx, and Watch with it
	for event := range generator.Watch() {
		status, err := statuses.Get(event.Pod) // shows the change already; empty for a pod that has gone
		fmt.Println(event.Type, event.Namespace, event.PodName, len(status.Containers()), err)
	}
	return nil
}

// TestReadme compiles and runs the code shown in the README.
func TestReadme(t *testing.T) {
	page := must(os.ReadFile("../README.md"))
	code := must(os.ReadFile("readme_test.go"))
	snippets := strings.Split(string(page), "```go\n")[1:]
	if len(snippets) != 1 {
		t.Fatalf("the README shows %d pieces of code, want one", len(snippets))
	}
	if shown, _, _ := strings.Cut(snippets[0], "```"); !strings.Contains(string(code), shown) {
		t.Errorf("the README shows code that is not in readme_test.go:\n%s", shown)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watch(ctx, "unix:///nobody/listens/here.sock"); err != nil {
		t.Errorf("an agent that is ended at once: %v", err)
	}
	if err := watch(t.Context(), "http://localhost"); err == nil {
		t.Error("an endpoint that is none is taken")
	}
}
