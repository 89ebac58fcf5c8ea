// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// This file has trouble of one tenant: its rate limit, its webhook. Events of other namespaces must
// be stored at once.

// eventRateLimit configures the admission plugin of that name, for each namespace.
const eventRateLimit = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Namespace, qps: 1, burst: 20, cacheSize: 1000}
`

// newTenants starts a cluster with the plugin EventRateLimit, and returns an administrator's access
// to it without a limit of the client's own.
func newTenants(t *testing.T) *rest.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admission.yaml")
	testkit.Check(t, os.WriteFile(path, []byte(eventRateLimit), 0o600))
	c := newCluster(t, "--enable-admission-plugins=EventRateLimit", "--admission-control-config-file="+path)
	access := c.Access(adminToken)
	access.QPS = -1
	return access
}

// storedEvents returns the number of events in the namespaces with a prefix, without rosters.
func storedEvents(ctx context.Context, admin kubernetes.Interface, prefix string) (n int, err error) {
	l, err := admin.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for i := range l.Items {
		e := &l.Items[i]
		if strings.HasPrefix(e.Namespace, prefix) && e.InvolvedObject.Kind == "Pod" {
			n++
		}
	}
	return n, nil
}

// useUp creates events in a namespace, as a neighbour without any restraint, until the end.
func useUp(ctx context.Context, client kubernetes.Interface, namespace string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprint("noise-", i)
		_, _ = client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{ // refused, for the most part
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
			InvolvedObject: *ref("Noise", namespace, name),
			Reason:         "Noise",
		}, metav1.CreateOptions{})
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestEventRateLimit: a neighbour uses up the limit of a namespace in which each recorder has
// events, too. Those in other namespaces are stored within a few seconds by ours, as by client-go's
// recorders in the same run.
func TestEventRateLimit(t *testing.T) {
	t.Parallel()
	access := newTenants(t)
	admin := clientOf(t, access)
	makeNamespace(t, admin, "noisy")
	const others = 10
	prefix := func(kind string) string { return strings.ReplaceAll(kind, " ", "-") + "-other-" }
	for _, kind := range recorderKinds {
		for i := range others {
			makeNamespace(t, admin, fmt.Sprint(prefix(kind), i))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var neighbour sync.WaitGroup
	neighbour.Go(func() { useUp(ctx, clientOf(t, access), "noisy") })
	defer neighbour.Wait()
	defer cancel()
	time.Sleep(3 * time.Second) // 60 calls: the limit is used up

	all := map[string]*contestant{}
	for _, kind := range recorderKinds {
		all[kind] = startRecorder(t, kind, clientOf(t, access), nodeName+"-"+prefix(kind)+"limit")
		defer all[kind].cancel()
	}
	for kind, r := range all {
		for i := range 20 {
			r.emit(
				ref("Pod", "noisy", fmt.Sprint(prefix(kind), i)),
				nil,
				"Normal",
				"Pulled",
				"Pull",
				"image is present",
			)
		}
	}
	time.Sleep(time.Second)
	for i := range 3 * others {
		for kind, r := range all {
			namespace := fmt.Sprint(prefix(kind), i%others)
			r.emit(
				ref("Pod", namespace, fmt.Sprint("p", i)),
				nil,
				"Normal",
				"Pulled",
				"Pull",
				"image is present",
			)
		}
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(5 * time.Second)
	noisy := testkit.Must(storedEvents(t.Context(), admin, "noisy"))(t)
	if noisy > 40 {
		t.Errorf(
			"%d events of the recorders are stored in the noisy namespace: its limit is not used up",
			noisy,
		)
	}
	for _, kind := range recorderKinds {
		n := testkit.Must(storedEvents(t.Context(), admin, prefix(kind)))(t)
		t.Logf("%s: %d of %d events in other namespaces are stored", kind, n, 3*others)
		if strings.HasPrefix(kind, "ours") && n != 3*others {
			t.Errorf("%s: %d of %d events in other namespaces are stored", kind, n, 3*others)
		}
	}
}

// hookTrouble is what a tenant's validating webhook does.
type hookTrouble struct {
	name  string
	serve http.HandlerFunc // nil: nobody listens
}

var hookTroubles = []hookTrouble{
	{"down", nil},
	{
		"500",
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) },
	},
	{"429", func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID,
			Result: &metav1.Status{
				Code:   http.StatusTooManyRequests,
				Reason: metav1.StatusReasonTooManyRequests,
			},
		}
		_ = json.NewEncoder(w).Encode(review)
	}},
	{"hangs", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}},
}

// hook registers a validating webhook for the events of a namespace, and waits until it is in
// force.
func hook(t *testing.T, admin kubernetes.Interface, trouble hookTrouble, namespace string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server := httptest.NewUnstartedServer(trouble.serve)
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.StartTLS()
	end := func() {
		cancel() // ends the calls that hang
		server.Close()
	}
	if trouble.serve == nil {
		end()
	} else {
		t.Cleanup(end)
	}
	url := server.URL
	fail := admissionregistrationv1.Fail
	none := admissionregistrationv1.SideEffectClassNone
	seconds := int32(10)
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{
				Name: namespace + ".example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					URL: &url,
					CABundle: pem.EncodeToMemory(
						&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw},
					),
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
					Rule: admissionregistrationv1.Rule{
						APIGroups:   []string{"", "events.k8s.io"},
						APIVersions: []string{"v1"},
						Resources:   []string{"events"},
					},
				}},
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace},
				},
				FailurePolicy:           &fail,
				SideEffects:             &none,
				TimeoutSeconds:          &seconds,
				AdmissionReviewVersions: []string{"v1"},
			},
		},
	}
	testkit.Must(admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), config, metav1.CreateOptions{}))(t)
	eventually(t, "the webhook of "+namespace+" should be in force", func(ctx context.Context) (bool, string) {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := admin.CoreV1().Events(namespace).Create(short, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "try-"},
			InvolvedObject: *ref("Noise", namespace, "try"),
		}, metav1.CreateOptions{})
		return err != nil, "events are taken"
	})
}

// firstEvent waits for an event in a namespace, for half a minute at most, and returns the time
// from the beginning.
func firstEvent(t *testing.T, admin kubernetes.Interface, namespace string, begin time.Time) time.Duration {
	t.Helper()
	for time.Since(begin) < 30*time.Second {
		n := testkit.Must(storedEvents(t.Context(), admin, namespace))(t)
		if n > 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(begin).Round(10 * time.Millisecond)
}

// TestWebhookOfOneNamespace: after 100 events in a namespace with a webhook in trouble, the first
// event of another namespace is stored within seconds. With -show, client-go's two recorders stand
// beside ours, each for half a minute at most.
func TestWebhookOfOneNamespace(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	access := c.Access(adminToken)
	access.QPS = -1
	admin := clientOf(t, access)
	kinds := []string{oursEvents, oursRecord}
	if *show {
		kinds = recorderKinds
	}
	for i, trouble := range hookTroubles {
		bad := fmt.Sprint("bad-", i)
		makeNamespace(t, admin, bad)
		hook(t, admin, trouble, bad)
		for j, kind := range kinds {
			good := fmt.Sprint("good-", i, "-", j)
			makeNamespace(t, admin, good)
			r := startRecorder(t, kind, clientOf(t, access), nodeName+"-"+good)
			for n := range 100 {
				r.emit(ref("Pod", bad, fmt.Sprint("p", n)), nil, "Normal", "Pulled", "Pull", "image is present")
			}
			time.Sleep(time.Second)
			begin := time.Now()
			r.emit(ref("Pod", good, "p"), nil, "Normal", "Pulled", "Pull", "image is present")
			took := firstEvent(t, admin, good, begin)
			r.cancel()
			t.Logf("%s, %s: the first event of another namespace is stored after %v", trouble.name, kind, took)
			if strings.HasPrefix(kind, "ours") && took > 10*time.Second {
				t.Errorf("%s, %s: the first event of another namespace comes late", trouble.name, kind)
			}
		}
	}
}

// TestRoleOfOneGroup: a role covers the events of one API group only, as of users who have moved to
// events.k8s.io. Ours store all events in the group that is allowed, and continue a series there.
// Each of client-go's recorders writes one group.
func TestRoleOfOneGroup(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	admin := c.client(adminToken)
	const pods = 10
	for _, group := range []string{"", "events.k8s.io"} {
		for i, kind := range recorderKinds {
			namespace := fmt.Sprint("role-", len(group), "-", i)
			makeNamespace(t, admin, namespace)
			allow(t, c, namespace, group)
			r := startRecorder(t, kind, c.client(plainToken), nodeName+"-"+namespace)
			for range 3 {
				for p := range pods {
					r.emit(
						ref("Pod", namespace, fmt.Sprint("p", p)),
						nil,
						"Normal",
						"Pulled",
						"Pull",
						"image is present",
					)
				}
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Second)
			r.stop()
			want := result{3 * pods, pods}
			got := count(t, admin, namespace)
			t.Logf("role of the group %q, %s: %v of %v", group, kind, got, want)
			if strings.HasPrefix(kind, "ours") && got != want {
				t.Errorf("role of the group %q, %s: stored %v of %v", group, kind, got, want)
			}
		}
	}
}

// allow gives the user without rights a role in a namespace for the events of an API group, and
// waits until the role is in force.
func allow(t *testing.T, c *cluster, namespace, group string) {
	t.Helper()
	admin, plain := c.client(adminToken), c.client(plainToken)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "events"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{group},
			Resources: []string{"events"},
			Verbs:     []string{"create", "patch"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "events"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "plain"}},
	}
	testkit.Must(admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}))(t)
	testkit.Must(admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	eventually(t, "the binding should be in force", func(ctx context.Context) (bool, string) {
		patch := func(core bool) error {
			if core {
				_, err := plain.CoreV1().Events(namespace).Patch(ctx, "none", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
				return err
			}
			_, err := plain.EventsV1().Events(namespace).Patch(ctx, "none", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		}
		err := patch(group == "")
		other := patch(group != "")
		return apierrors.IsNotFound(err) &&
				apierrors.IsForbidden(other), fmt.Sprint(
				err,
				"; the other group: ",
				other,
			)
	})
}

// count returns the occurrences and objects in a namespace, without rosters.
func count(t *testing.T, admin kubernetes.Interface, namespace string) (r result) {
	t.Helper()
	l := testkit.Must(admin.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{}))(t)
	for i := range l.Items {
		e := &l.Items[i]
		if e.InvolvedObject.Kind != "Pod" {
			continue
		}
		n := max(e.Count, 1)
		if e.Series != nil {
			n = e.Series.Count
		}
		r.occurrences += int64(n)
		r.objects++
	}
	return r
}
