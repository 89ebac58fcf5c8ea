// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

// runtime is what the world's containers are on.
type runtime interface {
	socket() string
	// history returns all that has happened, in order.
	history(context.Context) ([]bench.Change, error)
	// restart takes the runtime away for a moment, as a crash would; containers live on.
	restart(context.Context) error
	// cutStream lets no more events through, or lets them through again.
	cutStream(ctx context.Context, cut bool) error
	// usage returns the CPU time of the runtime in seconds, and its calls by method if it counts them.
	usage(context.Context) (float64, map[string]uint64, error)
	close() error
}

// Variant is one kubelet to play with.
type Variant struct {
	Name, Binary string
	Gates        map[string]bool
	// Ours says that the evented PLEG is in it and on.
	Ours bool
	// Containerd says that it runs on a containerd of its own instead of the fake runtime.
	Containerd bool
	// API is the folder with etcd and kube-apiserver. With it, pods are bound to the node by an API server; without, they are static.
	API string
}

// World is a node with its runtime.
type World struct {
	Variant Variant
	Kubelet *standalone.Kubelet
	runtime runtime
	node    *standalone.Node
	tracker *Tracker
	dir     string

	api      *api              // nil without an API server
	nodeName string            // of the node's object
	uids     map[string]string // pod UIDs to names, with an API server
	there    map[string]bool   // pods whose manifests are there
	full     []string          // the pods of a full node
	serial   int               // of the next batch of names
}

// NewWorld starts the runtime and the kubelet. The folder, in the system's temporary one because its sockets need short names, goes with Close.
func NewWorld(ctx context.Context, v Variant) (w *World, err error) {
	dir, err := os.MkdirTemp("", "kn")
	if err != nil {
		return nil, err
	}
	w = &World{Variant: v, dir: dir, there: make(map[string]bool), uids: make(map[string]string), nodeName: standalone.NodeName}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	node := standalone.Config{Dir: dir}
	if v.Containerd {
		node.CgroupRoot = "kubelet-e2e-" + filepath.Base(dir)
		if err = standalone.MakeCgroup(node.CgroupRoot); err != nil {
			return w, err
		}
		w.runtime, err = startContainerd(ctx, dir, node.CgroupRoot)
	} else {
		w.runtime, err = startFake(dir)
	}
	if err != nil {
		w.runtime = nil // not a nil pointer in an interface
		return w, err
	}
	node.RuntimeEndpoint = w.runtime.socket()
	if v.API != "" {
		if w.api, err = startAPI(ctx, v.API, dir); err != nil {
			w.api = nil
			return w, err
		}
		node.Kubeconfig = w.api.kubeconfig
	}
	if w.node, err = standalone.NewNode(node); err != nil {
		return w, err
	}
	if err = w.StartKubelet(ctx); err != nil {
		return w, err
	}
	w.tracker = newTracker(w.node.PodsSocket())
	return w, nil
}

// StartKubelet starts the kubelet, at first or after it was killed.
func (w *World) StartKubelet(ctx context.Context) (err error) {
	gates := map[string]bool{"PodsAPI": true}
	maps.Copy(gates, w.Variant.Gates)
	w.Kubelet, err = w.node.Start(ctx, w.Variant.Binary, gates)
	return err
}

// Close ends everything and removes the folder.
func (w *World) Close() error {
	var errs []error
	if w.tracker != nil {
		w.tracker.close()
	}
	if w.Kubelet != nil && w.Kubelet.Alive() {
		errs = append(errs, w.Kubelet.Stop())
	}
	if w.api != nil {
		errs = append(errs, w.api.close())
	}
	if w.runtime != nil {
		errs = append(errs, w.runtime.close())
	}
	if keep := os.Getenv("KUBELET_E2E_KEEP"); keep != "" {
		errs = append(errs, os.Rename(filepath.Join(w.dir, "kubelet.log"), filepath.Join(keep, filepath.Base(w.dir)+".log")))
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// history is the runtime's, with pods by name.
func (w *World) history(ctx context.Context) ([]bench.Change, error) {
	changes, err := w.runtime.history(ctx)
	for i := range changes {
		if name, ok := w.uids[changes[i].Pod]; ok {
			changes[i].Pod = name
		}
	}
	return changes, err
}

// pods returns the pods with the status that the kubelet reports, by name: to the API server, or to those who ask it.
func (w *World) pods(ctx context.Context) (map[string]corev1.PodStatus, error) {
	byName := make(map[string]corev1.PodStatus)
	if w.api != nil {
		list, err := w.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			byName[p.Name] = p.Status
		}
		return byName, nil
	}
	list, err := w.Kubelet.Pods(ctx)
	for _, p := range list {
		byName[strings.TrimSuffix(p.Name, "-"+standalone.NodeName)] = p.Status
	}
	return byName, err
}

// eventually waits until what returns nil, or returns what it returned last.
func eventually(ctx context.Context, within time.Duration, what func() error) error {
	end := time.Now().Add(within)
	for {
		err := what()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %w", within, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
