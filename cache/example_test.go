// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// podStatus stands for the status type of an embedder.
type podStatus struct{ State string }

func Example() {
	statuses := cache.New(func(cache.UID) *podStatus { return &podStatus{State: "unknown"} })

	read := time.Now() // a read of the runtime begins …
	statuses.Set("pod-1", &podStatus{State: "running"}, nil, read)

	status, err := statuses.Get("pod-1")
	fmt.Println(status.State, err)

	// An error is kept beside the last good status.
	statuses.Set("pod-1", nil, errors.New("runtime not ready"), time.Now())
	status, err = statuses.Get("pod-1")
	fmt.Println(status.State, err)

	// What is older than the cache is refused.
	fmt.Println(statuses.Set("pod-1", &podStatus{State: "created"}, nil, read))
	// Output:
	// running <nil>
	// running runtime not ready
	// false
}

func ExampleCache_GetNewerThan() {
	statuses := cache.New[podStatus](nil)
	asked := time.Now()

	go func() { // the generator: told of demand, it reads the pods that are waited for
		<-statuses.Demand()
		for uid := range statuses.TakeDemand() {
			began := time.Now()
			statuses.Set(uid, &podStatus{State: "exited"}, nil, began)
		}
	}()

	status, err := statuses.GetNewerThan(context.Background(), "pod-1", asked)
	fmt.Println(status.State, err)
	// Output: exited <nil>
}
