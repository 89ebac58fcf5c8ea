// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

// A Difference is a difference of the fake from its real runtime, with the reason for leaving it.
type Difference struct {
	// Runtimes are those with the difference. None: all.
	Runtimes []string
	Step     string
	// Real and Fake are the lines of the two. Empty: no such line. A Fake with a final … is all
	// consecutive lines with this beginning. A line of the real runtime alone stands before Before.
	Real, Fake, Before string
	// Append: the real runtime has the fake's lines with the beginning of Fake before its …, with
	// this at their end, except those in Except.
	Append string
	Except []string
	Why    string
}

// Lines of the step "create in it", and the reason why containerd's profiles follow the newest
// version.
const (
	notLate    = "lists: ends=EXITED gentle=EXITED new=EXITED pod-1=READY pod=NOTREADY runs=EXITED"
	late       = "lists: ends=EXITED gentle=EXITED late=CREATED new=EXITED pod-1=READY pod=NOTREADY runs=EXITED"
	isNewest   = "the profile is that of containerd 2.4; Profile.StreamBatch 0 makes it theirs"
	isNewest2  = "the profile is that of containerd 2.4, and who relies on the older code has no version to tell it by"
	podWhy     = "containerd 2.3 has no metrics of a pod one of whose containers does not run; the profile is that of 2.4"
	metricsWhy = "containerd has metrics from 2.2 on; the profile is that of 2.4, since no kubelet asks an older one"
	lateWhy    = "containerd before 2.2 creates containers in a stopped sandbox; the profile is that of 2.4, since no kubelet asks for that"
)

var (
	before24 = []string{"containerd-2.0", "containerd-2.1", "containerd-2.2", "containerd-2.3"}
	before23 = []string{"containerd-2.0", "containerd-2.1", "containerd-2.2"}
	before22 = []string{"containerd-2.0", "containerd-2.1"}
	only23   = []string{"containerd-2.3"}
	only20   = []string{"containerd-2.0"}
)

// Differences are all known differences. The test fails for a vanished difference.
var Differences = slices.Concat(metricsOf22(), []Difference{
	{Runtimes: before24, Step: "statuses", Real: "streaming list: Unimplemented", Fake: "streaming list: OK", Why: isNewest},
	{
		Runtimes: before23, Step: "what it can do", Why: "user namespaces in the host's network came with containerd 2.3",
		Real: "features: policy of supplemental groups true, user namespaces in the host's network false, mount options false",
		Fake: "features: policy of supplemental groups true, user namespaces in the host's network true, mount options false",
	},
	{Runtimes: before22, Step: "metrics", Real: "descriptors: Unimplemented", Fake: "descriptors: OK", Why: metricsWhy},
	{Runtimes: before22, Step: "metrics", Real: "metrics: none", Fake: "metrics: …", Why: metricsWhy},
	{Runtimes: before22, Step: "metrics", Real: "metrics of all pods: Unimplemented", Fake: "metrics of all pods: OK", Why: metricsWhy},
	{Runtimes: before22, Step: "metrics", Fake: "of the sandbox: none", Why: metricsWhy},
	{Runtimes: before22, Step: "metrics", Fake: "of runs: …", Why: metricsWhy},
	{Runtimes: only23, Step: "metrics", Fake: "of the sandbox: none", Why: podWhy},
	{Runtimes: only23, Step: "metrics", Fake: "of runs: …", Why: podWhy},
	{Runtimes: only20, Step: "names in use", Real: "create: Unknown", Fake: "create: FailedPrecondition", Why: isNewest2},
	{Runtimes: only20, Step: "names in use", Real: "run: Unknown", Fake: "run: FailedPrecondition", Why: isNewest2},
	{Runtimes: before22, Step: "create in it", Real: "create: OK", Fake: "create: Unknown", Why: lateWhy},
	{
		Runtimes: before22, Step: "create in it", Before: notLate, Why: lateWhy,
		Real: "event CREATED late {pod=NOTREADY ends=EXITED gentle=EXITED late=CREATED runs=EXITED}",
	},
	{Runtimes: before22, Step: "create in it", Real: late, Fake: notLate, Why: lateWhy},
	{Runtimes: before22, Step: "remove it", Real: "event DELETED late", Before: "event DELETED pod", Why: lateWhy},
})

// metricsOf22 are the differences of containerd 2.2's metrics. It describes two labels of every
// metric and sends four, so those after the second stand under another key, or under none.
func metricsOf22() []Difference {
	const (
		why     = "containerd 2.2 gives its metrics more labels than it describes, so that nobody can tell which is which; the profile is that of 2.4"
		later   = "metrics that containerd describes in 2.2 only, or sends from 2.3 on; the profile is that of 2.4"
		of      = "of runs: "
		labels  = ` id="runs" name="pod" without a key="NAMESPACE" without a key="ID of runs"`
		device  = ` id="runs" name="pod" device="NAMESPACE" without a key="ID of runs"`
		failure = ` id="runs" name="pod" failure_type="NAMESPACE" scope="ID of runs" without a key="%" without a key="container"`
		sends   = `of runs: 34 with pod="pod" namespace="NAMESPACE" container="runs" id="ID of runs" image="IMAGE"`
	)
	all := []Difference{
		{Real: "metrics: 58 with id name", Fake: "metrics: 49 with pod namespace container id image", Why: why},
		{Fake: of + "container_threads GAUGE", Why: later},
	}
	for _, m := range [][2]string{
		{"io_current", "limit_bytes"}, {"io_time_seconds_total", "limit_bytes"}, {"io_time_weighted_seconds_total", "limit_bytes"},
		{"read_seconds_total", "reads_bytes_total"}, {"reads_merged_total", "reads_total"},
		{"sector_reads_total", "usage_bytes"}, {"sector_writes_total", "usage_bytes"},
		{"write_seconds_total", "writes_bytes_total"}, {"writes_merged_total", "writes_total"},
	} {
		described := func(name string) string { return "metrics: container_fs_" + name + " device" }
		all = append(all, Difference{Real: described(m[0]), Before: described(m[1]), Why: later})
	}
	// these have no label at all
	except := []string{sends, of + "container_last_seen GAUGE", of + "container_start_time_seconds GAUGE"}
	for _, name := range []string{"inodes_free", "inodes_total", "limit_bytes", "usage_bytes"} {
		fake := of + "container_fs_" + name + " GAUGE"
		all = append(all, Difference{Real: fake + device, Fake: fake + ` device="/"`, Why: why})
		except = append(except, fake+device)
	}
	for _, kind := range []string{"pgfault", "pgmajfault"} {
		fake := of + "container_memory_failures_total COUNTER"
		real := fake + strings.ReplaceAll(failure, "%", kind)
		all = append(all, Difference{Real: real, Fake: fake + ` failure_type="` + kind + `" scope="container"`, Why: why})
		except = append(except, real)
	}
	all = append(all,
		Difference{Fake: of + "…", Append: labels, Except: except, Why: why},
		Difference{Real: "of runs: 33 with ", Fake: sends, Why: why})
	for i := range all {
		all[i].Runtimes, all[i].Step = []string{"containerd-2.2"}, "metrics"
	}
	return all
}
