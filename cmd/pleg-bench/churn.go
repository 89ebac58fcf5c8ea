// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

// churn makes pods on the runtime behind the socket and changes them until ctx ends.
func churn(ctx context.Context, socket string, pods, containers int, rate float64, seed uint64) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Close()
	driver, err := load.New(load.Config{
		Conn: conn, RunID: "churn" + strconv.FormatInt(time.Now().UnixMilli(), 36), Pods: pods, Containers: containers, Rate: rate, Seed: seed,
		Image: run.FakeImage, Logger: klog.FromContext(ctx),
		LogDirectory: filepath.Join(filepath.Dir(socket), "logs"), // the fake runtime writes none
	})
	if err != nil {
		return err
	}
	if err := driver.Setup(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	driver.Run(ctx, math.MaxInt64)
	return nil
}
