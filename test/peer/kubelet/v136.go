// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !v137

package kubelet

import (
	"context"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	noop "go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"
)

const (
	name                = agent.Kubelet136
	eventedRelistPeriod = 300 * time.Second
	eventedThreshold    = 10 * time.Minute
)

// newManager returns the runtime manager with what listing and inspecting need; the rest of it is
// for running pods.
func newManager(ctx context.Context, service internalapi.RuntimeService, root string) (kuberuntime.KubeGenericRuntime, error) {
	m, _, err := kuberuntime.NewKubeGenericRuntimeManager(ctx, record.NewFakeRecorder(1), nil, nil, nil, root, root, &cadvisorapi.MachineInfo{}, nil, 110,
		kubecontainer.RealOS{}, nil, nil, flowcontrol.NewBackOff(time.Second, time.Minute), true, nil, 5, 10, string(kubeletconfig.NeverVerify), nil, "", "",
		nil, true, metav1.Duration{Duration: 100 * time.Millisecond}, service, nil, cm.NewStubContainerManager(), nil, nil, false, "", nil, 0, "", nil,
		noop.NewTracerProvider(), nil, nil, nil)
	return m, err
}

// begin starts the PLEG that the kubelet would.
func (k *kubelet) begin(evented bool) error {
	base := &pleg.RelistDuration{RelistPeriod: genericRelistPeriod, RelistThreshold: genericThreshold}
	period := base
	if evented {
		period = &pleg.RelistDuration{RelistPeriod: eventedRelistPeriod, RelistThreshold: eventedThreshold}
	}
	generic := pleg.NewGenericPLEG(logr.Discard(), k.manager, k.watch, period, k.cache, clock.RealClock{})
	k.generic = generic.(*pleg.GenericPLEG)
	if k.manual {
		return nil
	}
	generic.Start()
	if !evented {
		return nil
	}
	e, err := pleg.NewEventedPLEG(logr.Discard(), k.manager, k.service, k.watch, k.cache, generic, streamRetries, base, clock.RealClock{})
	if err != nil {
		return err
	}
	e.Start()
	return nil
}

func (k *kubelet) relist() { k.generic.Relist() }

func (k *kubelet) requestRelist(uid types.UID) { k.generic.RequestRelist(uid) }
