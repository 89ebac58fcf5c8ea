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
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// runtime is the runtime of the world's containers.
type runtime interface {
	socket() string
	// logs is its folder for logs of containers without a log path, empty if there is none.
	logs() string
	// news returns the changes since the last call, in order.
	news(context.Context) ([]bench.Change, error)
	// restart takes the runtime away for a moment, as a crash would; containers live on.
	restart(context.Context) error
	// disturb disturbs the event stream until further notice.
	disturb(context.Context, disturbance) error
	// usage returns the CPU time of the runtime in seconds, and its calls by method.
	usage(context.Context) (float64, map[string]uint64, error)
	close() error
}

// disturbance is a fault of an event stream.
type disturbance string

const (
	undisturbed disturbance = ""
	cut         disturbance = "cut"    // ends after each event, for ever
	deaf        disturbance = "deaf"   // stays open and silent
	silent      disturbance = "silent" // events are left out
)

// Variant is a kubelet to play with.
type Variant struct {
	Name, Binary string
	// Version is the version of Kubernetes, without the v.
	Version string
	Gates   map[string]bool
	// Ours: the evented PLEG is installed and on.
	Ours bool
	// Runtime is its private real runtime, by its name in package runtimes. Empty: the fake runtime.
	Runtime string
	// API is the folder with etcd and kube-apiserver. With it, an API server binds pods to the node;
	// without, they are static.
	API string
	// MaxPods and LogInterval are the kubelet's, if they are not to be the harness's own.
	MaxPods     int
	LogInterval time.Duration
}

// traits are the known traits of the runtime: the fake runtime has no faults.
func (v *Variant) traits() runtimes.Traits {
	r, err := runtimes.ByName(v.Runtime)
	if err != nil {
		return runtimes.Traits{}
	}
	return r.Traits
}

// privileged makes the containers of all pods privileged. With a runc without seccomp containerd
// runs a sandbox only of a pod with a privileged container: for others a kubelet asks for the
// runtime's profile, which CRI-O then leaves out. And a privileged container in CRI-O needs more
// than some machines allow.
func (v *Variant) privileged() bool { return !v.traits().PrivilegedTakesAll }

// World is a node with its runtime.
type World struct {
	Variant Variant
	Kubelet *standalone.Kubelet
	runtime runtime
	node    *standalone.Node
	tracker *Tracker
	book    *book
	dir     string
	cgroup  string // of the kubelet and its pods; empty for none

	api      *API              // nil without an API server
	nodeName string            // of the node's object
	uids     map[string]string // pod UIDs to names, with an API server
	there    map[string]bool   // pods with a manifest
	removed  map[string]int64  // removal times of the other manifests, until their pods' ends are timed
	full     []string          // the pods of a full node
	serial   int               // of the next batch of names

	// Summary is the result so far.
	Summary Summary
	leak    leak     // of the present kubelet
	lives   counters // of the kubelets before it
}

// NewWorld starts the runtime and the kubelet. The folder, in the system's temporary folder because
// its sockets need short names, goes with Close.
func NewWorld(ctx context.Context, v Variant) (w *World, err error) {
	dir, err := os.MkdirTemp("", "kn")
	if err != nil {
		return nil, err
	}
	w = &World{Variant: v, dir: dir, book: newBook(), there: make(map[string]bool), removed: make(map[string]int64), uids: make(map[string]string), nodeName: standalone.NodeName,
		Summary: Summary{Variant: v.Name}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	node := standalone.Config{Dir: dir, MaxPods: v.MaxPods, LogInterval: v.LogInterval}
	if v.Runtime != "" {
		w.cgroup = "kubelet-e2e-" + filepath.Base(dir)
		node.CgroupRoot = w.cgroup
		if err = standalone.MakeCgroup(node.CgroupRoot); err != nil {
			return w, err
		}
		w.runtime, err = startReal(ctx, v.Runtime, dir, node.CgroupRoot)
	} else {
		w.runtime, err = startFake(dir)
	}
	if err != nil {
		w.runtime = nil // not a nil pointer in an interface
		return w, err
	}
	node.RuntimeEndpoint, node.RuntimeLogs = w.runtime.socket(), w.runtime.logs()
	if v.API != "" {
		if w.api, err = StartAPI(ctx, v.API, dir, "127.0.0.1", "--disable-admission-plugins=ServiceAccount"); err != nil {
			w.api = nil
			return w, err
		}
		node.Kubeconfig = w.api.Kubeconfig
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

// StartKubelet starts the kubelet, at first or after a kill.
func (w *World) StartKubelet(ctx context.Context) (err error) {
	gates := map[string]bool{"PodsAPI": true}
	maps.Copy(gates, w.Variant.Gates)
	w.leak = leak{}
	w.Kubelet, err = w.node.Start(ctx, w.Variant.Binary, gates)
	return err
}

// killKubelet kills the kubelet, as a crash would.
func (w *World) killKubelet(ctx context.Context) error {
	if w.Variant.Ours {
		c, err := w.counters(ctx)
		if err != nil {
			return err
		}
		w.lives = c // the next kubelet counts from zero
	}
	w.Summary.KubeletKills++
	return w.Kubelet.Kill()
}

// restartRuntime takes the runtime away for a moment.
func (w *World) restartRuntime(ctx context.Context) error {
	w.Summary.RuntimeKills++
	return w.runtime.restart(ctx)
}

// Close ends everything and removes the folder.
func (w *World) Close() error {
	var errs []error
	if w.tracker != nil {
		w.tracker.close()
	}
	if w.Kubelet != nil && w.Kubelet.Alive() {
		errs = append(errs, w.Kubelet.Stop(20*time.Second))
	}
	if w.api != nil {
		w.api.Close()
	}
	if w.runtime != nil {
		errs = append(errs, w.runtime.close())
	}
	if keep := os.Getenv("KUBELET_E2E_KEEP"); keep != "" {
		errs = append(errs, os.Rename(filepath.Join(w.dir, "kubelet.log"), filepath.Join(keep, filepath.Base(w.dir)+".log")))
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// look enters the latest changes into the book, with pods by name.
func (w *World) look(ctx context.Context) error {
	changes, err := w.runtime.news(ctx)
	if err != nil {
		return err
	}
	for i := range changes {
		if name, ok := w.uids[changes[i].Pod]; ok {
			changes[i].Pod = name
		}
	}
	w.book.enter(changes)
	return nil
}

// pods returns the pods with the kubelet's reported status, by name: from the API server, or from
// the kubelet.
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

// eventually waits until what returns nil, or returns its last error.
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
