// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func BenchmarkPeer(b *testing.B) {
	klog.SetLogger(logr.Discard())
	metrics.Register()
	agent.Bench(b, name, func() agent.Driver { return new(kubelet) })
}
