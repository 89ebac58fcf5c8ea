// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

// token is the token of the API server's only user, who may do all.
const token = "all"

// API is an API server with its etcd, and what else is spawned. Its only user may do all.
type API struct {
	*kubernetes.Clientset
	// Kubeconfig is the path of the access to the server, Key the path of the key that signs service
	// accounts' tokens.
	Kubeconfig, Key string
	dir, binaries   string
	processes       []*standalone.Process
}

// StartAPI starts etcd and kube-apiserver of the folder binaries on an address of this machine,
// with data and logs in dir, and waits until the server is ready.
func StartAPI(ctx context.Context, binaries, dir, address string, flags ...string) (a *API, err error) {
	a = &API{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Key: filepath.Join(dir, "sa.key"),
		dir: dir, binaries: binaries,
	}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	ports, err := standalone.FreePorts(3)
	if err != nil {
		return a, err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	if err := a.Spawn("etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", ports[1]), "--unsafe-no-fsync", "--log-level=error"); err != nil {
		return a, err
	}
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return a, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := errors.Join(keyutil.WriteKey(a.Key, key), os.WriteFile(tokens, []byte(token+",admin,1,system:masters\n"), 0o600)); err != nil {
		return a, err
	}
	if err := a.Spawn("kube-apiserver", append([]string{"--etcd-servers=" + etcd,
		"--bind-address=" + address, fmt.Sprintf("--secure-port=%d", ports[2]), "--advertise-address=" + address,
		"--endpoint-reconciler-type=none", "--cert-dir=" + filepath.Join(dir, "api-certs"), "--token-auth-file=" + tokens,
		"--authorization-mode=AlwaysAllow", "--service-account-issuer=https://test",
		"--service-account-key-file=" + a.Key, "--service-account-signing-key-file=" + a.Key,
		"--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged"}, flags...)...); err != nil {
		return a, err
	}
	url := fmt.Sprintf("https://%s:%d", address, ports[2])
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: %q}}]\n", url, token)
	if err := os.WriteFile(a.Kubeconfig, []byte(config), 0o600); err != nil {
		return a, err
	}
	if a.Clientset, err = kubernetes.NewForConfig(&rest.Config{Host: url, BearerToken: token, QPS: 500, Burst: 500, Timeout: 20 * time.Second,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}); err != nil { // signs its own certificate, on loopback
		return a, err
	}
	return a, eventually(ctx, patience, func() {
		must(a.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx))
	})
}

// Spawn starts another program of the folder until Close, with a log of its name.
func (a *API) Spawn(program string, args ...string) error {
	p, err := standalone.Spawn(exec.Command(filepath.Join(a.binaries, program), args...), filepath.Join(a.dir, program+".log"))
	if err != nil {
		return fmt.Errorf("%w (the build script in test/apiserver makes it)", err)
	}
	a.processes = append(a.processes, p)
	return nil
}

// Close ends all programs, the last first, by force if need be.
func (a *API) Close() {
	for _, p := range slices.Backward(a.processes) {
		_ = p.Stop(15 * time.Second)
	}
}

// podsAPI is the API of the node's pods.
func (w *World) podsAPI() clientcorev1.PodInterface { return w.api.CoreV1().Pods("default") }

// create binds a pod to the node.
func (w *World) create(p *corev1.Pod) {
	p = p.DeepCopy()
	p.UID, p.Spec.NodeName, p.Spec.AutomountServiceAccountToken = "", standalone.NodeName, new(false)
	made := must(w.podsAPI().Create(w.ctx, p, metav1.CreateOptions{}))
	w.uids[string(made.UID)] = p.Name
}

// erase deletes pods and waits for their end.
func (w *World) erase(names ...string) {
	for _, name := range names {
		if err := w.podsAPI().Delete(w.ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			do(err)
		}
	}
	w.eventually(patience, func() {
		for _, p := range must(w.podsAPI().List(w.ctx, metav1.ListOptions{})).Items {
			if slices.Contains(names, p.Name) {
				fail("%s is still there", p.Name)
			}
		}
	})
}

// resize changes the CPU of running containers twice; nothing may restart, and the status must show
// the new resources.
func resize(w *World) {
	if w.Variant.Runtime == "" {
		fail("a kubelet that makes no cgroups does not resize: %w", errors.ErrUnsupported)
	}
	all := w.batch("one-resized", 5)
	w.putAll(all, cpu("100m"))
	w.await(ready, all...)
	for _, want := range []string{"200m", "50m"} {
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%[1]q},"limits":{"cpu":%[1]q}}}]}}`, want)
		for _, name := range all {
			must(w.podsAPI().Patch(w.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"))
		}
		start := time.Now()
		w.await(func(s corev1.PodStatus) error {
			c := s.ContainerStatuses[0]
			if c.RestartCount != 0 {
				return fmt.Errorf("restarted %d times", c.RestartCount)
			}
			if c.Resources == nil || c.Resources.Limits.Cpu().String() != want {
				return fmt.Errorf("resources %v, want %s", c.Resources, want)
			}
			for _, condition := range s.Conditions {
				if strings.HasPrefix(string(condition.Type), "PodResize") {
					return fmt.Errorf("%s: %s %s", condition.Type, condition.Reason, condition.Message)
				}
			}
			return nil
		}, all...)
		if took := time.Since(start); took > time.Minute {
			fail("to %s: took %v: it waited for a periodic sync", want, took.Round(time.Second))
		}
	}
	w.remove(all...)
}

// sameName deletes a pod and makes a pod of its name right after its end.
func sameName(w *World) {
	name := w.batch("one-again", 1)[0]
	for i := range 15 {
		w.put(name)
		if i%3 == 0 {
			w.await(ready, name)
		} else {
			w.sleep(time.Duration(i) * 30 * time.Millisecond)
		}
		w.remove(name)
	}
}

// streamEvents looks for the Events of the runtime's restarts. Stock kubelets send none.
func streamEvents(w *World) {
	if w.Variant.Ours {
		w.nodeEvents("ContainerEventStreamLost", "ContainerEventStreamRestored")
	}
}

// nodeEvents waits until Events with these reasons are on the node.
func (w *World) nodeEvents(reasons ...string) {
	w.eventually(patience, func() {
		missing := slices.Clone(reasons)
		for _, e := range must(w.api.CoreV1().Events("").List(w.ctx, metav1.ListOptions{})).Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == standalone.NodeName {
				missing = slices.DeleteFunc(missing, func(r string) bool { return r == e.Reason })
			}
		}
		if len(missing) > 0 {
			fail("no Events on the node with the reasons %v", missing)
		}
	})
}
