// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/kubeconfig"
)

// apiServer returns a client of the API server that the flags name.
func (o *options) apiServer() (*kubernetes.Clientset, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	if err := kubeconfig.CheckMounts(rules); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, cli.Usagef(
			"no way to an API server: %w: name a kubeconfig with --kubeconfig, or print Events with --print or --fake", err)
	}
	config.QPS = o.qps
	config.Burst = o.qpsBurst
	config.UserAgent = "pleg-agent/" + commit
	return kubernetes.NewForConfig(config)
}
