// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// askAtOnce is the number of kubelets asked at a time.
const askAtOnce = 20

// kubeletConfig is the part of a kubelet's configz that names its runtime. The kubelet fills the
// field from its flag, its configuration or kubeadm's file on the node, whichever decides.
// kubeadm 1.36 no longer writes the socket to the Node.
type kubeletConfig struct {
	KubeletConfig struct {
		ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	} `json:"kubeletconfig"`
}

// runtimeOf asks the kubelet of a node for its runtime's socket.
func (c cluster) runtimeOf(ctx context.Context, node string) (socket string, err error) {
	text, err := bounded(ctx, func(ctx context.Context) ([]byte, error) {
		return c.configz(ctx, node)
	})
	if err != nil {
		return "", err
	}
	var config kubeletConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("its configz is no JSON: %w", err)
	}
	if config.KubeletConfig.ContainerRuntimeEndpoint == "" {
		return "", errors.New("its configz names no containerRuntimeEndpoint")
	}
	return socketPath(config.KubeletConfig.ContainerRuntimeEndpoint), nil
}

// guarded is the outcome of asking the kubelets of chosen nodes.
type guarded struct {
	// chosen are the nodes whose runtime is another or not known. left are the nodes whose kubelet
	// uses the endpoint.
	chosen []string
	left   []NodeReason
	// unknown counts the chosen nodes with an unknown runtime, and why is the first node's reason.
	// Their pods refuse a kubelet's runtime by themselves: they find their own sandbox there.
	unknown int
	why     NodeReason
}

// guard leaves out the nodes whose kubelet uses the endpoint.
func (c cluster) guard(ctx context.Context, nodes []string, endpoint string) (g guarded) {
	type answer struct {
		socket string
		err    error
	}
	answers := make([]answer, len(nodes))
	turns := make(chan struct{}, askAtOnce)
	var asking sync.WaitGroup
	for i, node := range nodes {
		turns <- struct{}{}
		asking.Go(func() {
			answers[i].socket, answers[i].err = c.runtimeOf(ctx, node)
			<-turns
		})
	}
	asking.Wait()
	for i, node := range nodes {
		a := answers[i]
		if a.err == nil && a.socket == socketPath(endpoint) {
			g.left = append(g.left, NodeReason{node, "the endpoint is the kubelet's runtime, by the kubelet's configuration"})
			continue
		}
		if a.err != nil {
			g.unknown++
			g.why = cmp.Or(g.why, NodeReason{node, a.err.Error()})
		}
		g.chosen = append(g.chosen, node)
	}
	return g
}

// notice says for how many nodes the runtime is not known; empty for none.
func (g guarded) notice() string {
	if g.unknown == 0 {
		return ""
	}
	return fmt.Sprintf("the runtime of %d of %s is not known, as of %s: %s. "+
		"A pod that finds itself on the endpoint's runtime refuses it", g.unknown, bench.Count(len(g.chosen), "kubelet"), g.why.Node, g.why.Reason)
}
