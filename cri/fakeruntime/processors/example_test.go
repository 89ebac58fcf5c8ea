// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package processors_test

import (
	"context"
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/processors"
)

// A call with an hour of work, on a processor of its own, ends with its context, and at once when
// the runtime has no processors to be waited for any more.
func ExampleProcessors() {
	var cpu processors.Processors
	cpu.Set(1)
	served := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- cpu.Serve(ctx, time.Hour) }()
	cancel()
	fmt.Println(<-served)
	go func() { served <- cpu.Serve(context.Background(), time.Hour) }()
	cpu.Set(0)
	fmt.Println(<-served)
	// Output:
	// context canceled
	// <nil>
}
