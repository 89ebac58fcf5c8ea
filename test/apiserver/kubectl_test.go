// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/describe"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// getEvents returns the output of `kubectl get events`: the server's own table, printed by
// kubectl's printer.
func getEvents(t *testing.T, c kubernetes.Interface, namespace string) string {
	t.Helper()
	raw, err := c.CoreV1().RESTClient().Get().Namespace(namespace).Resource("events").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	testkit.Check(t, json.Unmarshal(raw, table))
	var out bytes.Buffer
	testkit.Check(t, printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, &out))
	return out.String()
}

// describePod is the list of Events at the end of `kubectl describe pod`.
func describePod(t *testing.T, c kubernetes.Interface, namespace, pod string) string {
	t.Helper()
	d := describe.PodDescriber{Interface: c}
	out := testkit.Must(d.Describe(namespace, pod, describe.DescriberSettings{ShowEvents: true, ChunkSize: 500}))(t)
	_, events, ok := strings.Cut(out, "Events:")
	if !ok {
		t.Fatalf("kubectl describe shows no events:\n%s", out)
	}
	return "Events:" + events
}

// podsLife records the events of a pod: the scheduler's event, and the kubelet's.
var podsLife = [][2]string{
	{"Scheduled", "Successfully assigned a pod to node-1"},
	{"FailedMount", "MountVolume.SetUp failed for volume \"config\": configmap \"web\" not found"},
	{"FailedMount", "MountVolume.SetUp failed for volume \"certs\": secret \"web\" not found"},
	{"Pulling", "Pulling image \"web:1\""},
	{"Failed", "Failed to pull image \"web:1\": not found"},
	{"Failed", "Error: ErrImagePull"},
	{"Failed", "Error: ImagePullBackOff"},
	{"Pulled", "Successfully pulled image \"web:1\" in 120ms"},
	{"Created", "Container created"},
	{"Started", "Container started"},
	{"Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500"},
	{"Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"},
	{"Killing", "Container web failed liveness probe, will be restarted"},
	{"BackOff", "Back-off restarting failed container web"},
}

// makePod stores a pod, which kubectl wants to describe.
func makePod(t *testing.T, admin kubernetes.Interface, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	stored := testkit.Must(admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	return stored
}

// TestKubectlShowsTheOrderOfTime: both listings show our Events in the order of occurrence, also
// over a restart of the process. client-go's listings stand beside ours in docs/events/shown.md,
// see TestShow.
func TestKubectlShowsTheOrderOfTime(t *testing.T) {
	c := sharedCluster(t)
	admin, node := c.client(adminToken), c.nodeClient()
	for _, kind := range []string{oursEvents, oursRecord} {
		t.Run(kind, func(t *testing.T) {
			namespace := "order-" + strings.ReplaceAll(kind, " ", "-")
			makeNamespace(t, admin, namespace)
			pod := makePod(t, admin, namespace, "web")
			r := startRecorder(t, kind, node, nodeName)
			for i, e := range podsLife {
				if i == 7 { // the kubelet restarts
					r.stop()
					r = startRecorder(t, kind, node, nodeName)
				}
				for range 1 + i%2 {
					r.emit(pod, nil, corev1.EventTypeNormal, e[0], "Act", "%s", e[1])
				}
				time.Sleep(
					20 * time.Millisecond,
				) // as far apart as a kubelet's are; client-go starts a goroutine for each
			}
			r.stop()
			get, desc := getEvents(t, admin, namespace), describePod(t, admin, namespace, "web")
			t.Logf("kubectl get events, %s:\n%s\nkubectl describe pod:\n%s", kind, get, desc)
			var want []string
			for _, e := range podsLife {
				if kind == oursRecord ||
					!slices.Contains(want, e[0]) { // the newer interface: one series for a reason
					want = append(want, e[0])
				}
			}
			for listing, column := range map[string]int{get: 2, desc: 1} {
				if got := reasonsOf(listing, column); !slices.Equal(got, want) {
					t.Errorf("%s shows %v\nwant %v", kind, got, want)
				}
			}
		})
	}
}

// reasonsOf is a column of a listing, without its head.
func reasonsOf(listing string, column int) (out []string) {
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		if len(fields) <= column || fields[0] == "LAST" || fields[0] == "Type" ||
			strings.HasPrefix(fields[0], "--") ||
			fields[0] == "Events:" {
			continue
		}
		out = append(out, fields[column])
	}
	return out
}

// TestKubectlShowsUsBesideOthers: kubectl describe sorts by lastTimestamp alone. Events of
// client-go's older recorder (an attach-detach controller, say) and of this recorder are listed in
// the order of occurrence.
func TestKubectlShowsUsBesideOthers(t *testing.T) {
	c := sharedCluster(t)
	admin, node := c.client(adminToken), c.nodeClient()
	makeNamespace(t, admin, "beside")
	pod := makePod(t, admin, "beside", "web")
	ours, other := startRecorder(t, oursRecord, node, nodeName), startRecorder(t, clientRecord, admin, "controller")
	reasons := []string{"Scheduled", "Attached", "Pulled", "Scaled", "Started"}
	for i, reason := range reasons {
		r := ours
		if i%2 == 1 {
			r = other
		}
		r.emit(pod, nil, corev1.EventTypeNormal, reason, "Act", "%s", reason)
		time.Sleep(1100 * time.Millisecond) // lastTimestamp has seconds
	}
	eventually(t, "all should be there", func(ctx context.Context) (bool, string) {
		l, err := admin.CoreV1().Events("beside").List(ctx, metav1.ListOptions{})
		return err == nil && len(l.Items) == len(reasons), fmt.Sprint(err)
	})
	desc := describePod(t, admin, "beside", "web")
	if got := reasonsOf(desc, 1); !slices.Equal(got, reasons) {
		t.Errorf("kubectl describe shows %v\nwant %v\n%s", got, reasons, desc)
	}
	ours.stop()
	other.stop()
}
