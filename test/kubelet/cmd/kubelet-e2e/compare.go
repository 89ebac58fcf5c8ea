// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"time"

	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
)

func compare(ctx context.Context, args []string) error {
	flags := newCommon("compare")
	var course scene.Course
	flags.IntVar(&course.Pods, "pods", 200, "pods of the node")
	flags.DurationVar(&course.Settle, "settle", 2*time.Minute, "time for a started node to come to rest")
	flags.DurationVar(&course.Idle, "idle", 5*time.Minute, "time to watch the idle node")
	flags.StringVar(&course.Profile, "profile", "", "folder for a CPU profile of each kubelet, VARIANT.pprof, taken for as long again as -idle after it")
	_ = flags.Parse(args)
	list, err := flags.variants(flags.Args())
	if err != nil {
		return err
	}
	return play(flags, list, func(v scene.Variant) (*scene.Column, error) { return scene.Measure(ctx, v, course) })
}
