// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
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
	// usage returns the CPU time of the runtime, and its calls by method.
	usage(context.Context) (spent, map[string]uint64, error)
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

	// StatsPeriod is containerd's stats_collect_period; empty: its default.
	StatsPeriod string
	// FileCheck is the kubelet's fileCheckFrequency; zero: its default of 20 s. No node of an API
	// server decodes manifests again and again.
	FileCheck time.Duration

	logInterval time.Duration // of the kubelet, if it is not to be the harness's own
}

// Feature gates of a kubelet with this PLEG.
const (
	Generator = "EventDrivenPLEG"
	Lists     = "EventDrivenPLEGServeLists"
	Volumes   = "EventDrivenVolumePopulator"
	Cleanups  = "EventDrivenHousekeeping"
)

// spent is CPU time in seconds: of the runtime, and of its shims or monitors.
type spent struct{ daemon, monitors float64 }

func (s spent) all() float64 { return s.daemon + s.monitors }

// traits are the known traits of the runtime: the fake runtime has no faults.
func (v *Variant) traits() runtimes.Traits {
	r, err := runtimes.ByName(v.Runtime)
	if err != nil {
		return runtimes.Traits{}
	}
	return r.Traits
}

// World is a node with its runtime.
type World struct {
	Variant Variant
	Kubelet *standalone.Kubelet
	ctx     context.Context // of all steps
	runtime runtime
	node    *standalone.Node
	tracker *Tracker
	book    *book
	dir     string
	cgroup  string          // the path of that of the kubelet and its pods; empty for none
	gates   map[string]bool // of the next kubelets, in place of the variant's

	api     *control.Plane    // nil without an API server
	uids    map[string]string // pod UIDs to names, with an API server
	there   map[string]bool   // pods with a manifest
	removed map[string]int64  // removal times of the other manifests, until their pods' ends are timed
	full    []string          // the pods of a full node
	serial  int               // of the next batch of names

	// Summary is the result so far.
	Summary Summary
	leak    leak     // of the present kubelet
	lives   counters // of the kubelets before it
}

// NewWorld starts the runtime and the kubelet. The folder goes with the run, as a runtime's mounts
// do.
func NewWorld(ctx context.Context, v Variant) (*World, error) {
	dir, err := os.MkdirTemp(unshare.Dir(), "kn")
	if err != nil {
		return nil, err
	}
	w := &World{
		Variant: v,
		ctx:     ctx,
		dir:     dir,
		book:    newBook(),
		there:   make(map[string]bool),
		removed: make(map[string]int64),
		uids:    make(map[string]string),
	}
	if err := attempt(w.start); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *World) start() {
	node := standalone.Config{
		Dir:         w.dir,
		LogInterval: w.Variant.logInterval,
		FileCheck:   w.Variant.FileCheck,
	}
	if w.Variant.Runtime != "" {
		node.CgroupRoot = "kubelet-e2e-" + filepath.Base(w.dir)
		w.cgroup = "/" + node.CgroupRoot
		do(unshare.MakeCgroup(node.CgroupRoot))
		slice := node.CgroupRoot + "-runtime.slice"
		do(unshare.MakeCgroup(slice))
		w.runtime = must(startReal(w.ctx, &w.Variant, w.dir, slice))
	} else {
		w.runtime = must(startFake(w.dir))
	}
	node.RuntimeEndpoint = w.runtime.socket()
	node.RuntimeLogs = w.runtime.logs()
	if w.Variant.API != "" {
		w.api = must(control.Start(w.ctx, control.Config{
			Binaries: w.Variant.API, Dir: w.dir, Address: "127.0.0.1",
			Flags: []string{"--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount"},
		}))
		node.Kubeconfig = w.api.Kubeconfig
	}
	w.node = must(standalone.NewNode(node))
	w.startKubelet()
	w.tracker = newTracker(w.node.PodsSocket())
}

// startKubelet starts the kubelet, at first or after a kill.
func (w *World) startKubelet() {
	gates := map[string]bool{"PodsAPI": true}
	maps.Copy(gates, w.Variant.Gates)
	maps.Copy(gates, w.gates)
	w.leak = leak{}
	w.Kubelet = must(w.node.Start(w.ctx, w.Variant.Binary, gates))
}

// killKubelet kills the kubelet, as a crash would.
func (w *World) killKubelet() {
	w.lives = w.counters() // the next kubelet counts from zero
	w.Summary.KubeletKills++
	do(w.Kubelet.Kill())
}

// Close ends everything.
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
		kept := filepath.Join(keep, filepath.Base(w.dir)+".log") // maybe on another file system
		errs = append(
			errs,
			os.MkdirAll(keep, 0o755),
			exec.Command("mv", filepath.Join(w.dir, "kubelet.log"), kept).Run(),
		)
	}
	return errors.Join(errs...)
}

// look enters the latest changes into the book, with pods by name.
func (w *World) look() {
	changes := must(w.runtime.news(w.ctx))
	for i := range changes {
		changes[i].Pod = cmp.Or(w.uids[changes[i].Pod], changes[i].Pod)
	}
	w.book.enter(changes)
}

// pods returns the pods with the kubelet's reported status, by name: from the API server, or from
// the kubelet.
func (w *World) pods() map[string]corev1.PodStatus {
	byName := make(map[string]corev1.PodStatus)
	if w.api != nil {
		for _, p := range must(w.podsAPI().List(w.ctx, metav1.ListOptions{})).Items {
			byName[p.Name] = p.Status
		}
		return byName
	}
	for _, p := range must(w.Kubelet.Pods(w.ctx)) {
		byName[strings.TrimSuffix(p.Name, "-"+standalone.NodeName)] = p.Status
	}
	return byName
}

// metrics returns the kubelet's metrics.
func (w *World) metrics() map[string]float64 { return must(w.Kubelet.Metrics(w.ctx)) }
