// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	fakecorev1 "k8s.io/client-go/kubernetes/typed/core/v1/fake"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	fakeeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1/fake"
	kubetest "k8s.io/client-go/testing"
)

// FakeClientset is client-go's fake clientset with the two groups that have Events; calls of other
// groups panic. The whole of it has 56 packages that nothing else here needs, and to compile them
// takes as long as the tests of this package.
type FakeClientset struct {
	kubernetes.Interface
	fake kubetest.Fake
}

// NewFakeClientset returns a fake clientset without objects.
func NewFakeClientset() *FakeClientset {
	c := &FakeClientset{}
	tracker := kubetest.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	c.fake.AddReactor("*", "*", kubetest.ObjectReaction(tracker))
	return c
}

func (c *FakeClientset) CoreV1() typedcorev1.CoreV1Interface {
	return &fakecorev1.FakeCoreV1{Fake: &c.fake}
}

func (c *FakeClientset) EventsV1() typedeventsv1.EventsV1Interface {
	return &fakeeventsv1.FakeEventsV1{Fake: &c.fake}
}
