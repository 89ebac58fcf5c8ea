// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/yaml"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

const controller = "evented-pleg.dev/test"

// agent is a process recording events about pods of a namespace.
type agent struct {
	*events.Broadcaster
	clientevents.EventRecorderLogger
	t         *testing.T
	namespace string
	stop      context.CancelFunc
}

// quick is a schedule short enough for a test: the six minutes are three seconds, the half hour is
// ten.
func quick() events.Options {
	return events.Options{
		Instance:    nodeName,
		FinishAfter: 3 * time.Second,
		Heartbeat:   10 * time.Second,
		BackoffBase: 100 * time.Millisecond,
		BackoffMax:  time.Second,
	}
}

func newAgent(t *testing.T, client kubernetes.Interface, namespace string, o events.Options) *agent {
	t.Helper()
	if o.Instance == nodeName { // each part is a node of its own: it reads no other part's roster
		o.Instance += "-" + namespace
	}
	b := testkit.Must(events.NewForClient(client, o))(t)
	ctx, cancel := context.WithCancel(t.Context())
	a := &agent{
		Broadcaster:         b,
		EventRecorderLogger: b.NewRecorder(scheme.Scheme, controller),
		t:                   t,
		namespace:           namespace,
		stop:                cancel,
	}
	testkit.Check(t, b.StartRecordingToSinkWithContext(ctx))
	return a
}

func (a *agent) emit(pod string, n int) {
	obj := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: pod, UID: types.UID("uid-" + pod)},
	}
	for i := range n {
		a.Eventf(obj, nil, corev1.EventTypeWarning, "BackOff", "Restarting", "attempt %d", i)
	}
}

// end shuts down and wants nothing left.
func (a *agent) end() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := a.ShutdownWithContext(ctx); err != nil {
		a.t.Error(err)
	}
	a.stop()
	s := a.Stats()
	if s.Emitted != s.Acknowledged {
		a.t.Errorf("the books: %+v", s)
	}
}

// stored lists a namespace as the administrator, who may.
func stored(t *testing.T, admin kubernetes.Interface, namespace string) map[string]*eventsv1.Event {
	t.Helper()
	l := testkit.Must(admin.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{}))(t)
	out := map[string]*eventsv1.Event{}
	for i := range l.Items {
		e := &l.Items[i]
		if e.Annotations[events.AnnotationRoster] != "" {
			continue
		}
		if out[e.Regarding.Name] != nil {
			t.Errorf("two events about %s", e.Regarding.Name)
		}
		out[e.Regarding.Name] = e
	}
	return out
}

func told(e *eventsv1.Event) string {
	switch {
	case e == nil:
		return "nothing"
	case e.Series == nil:
		return "single"
	}
	return fmt.Sprintf("%s ×%d", e.Annotations[events.AnnotationState], e.Series.Count)
}

// wantTold waits until the event about a pod says so.
func wantTold(t *testing.T, admin kubernetes.Interface, namespace, pod, want string) {
	t.Helper()
	eventually(t, pod+" should say "+want, func(ctx context.Context) (bool, string) {
		l, err := admin.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + pod})
		if err != nil {
			return false, err.Error()
		}
		var all []string
		for i := range l.Items {
			all = append(all, told(&l.Items[i]))
		}
		return len(all) == 1 && all[0] == want, strings.Join(all, ", ")
	})
}

func makeNamespace(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	testkit.Must(admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}))(t)
}

// bindNode gives the node kube-apiserver's own role for nodes.
func bindNode(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	eventually(t, "the role system:node should be there", func(ctx context.Context) (bool, string) {
		_, err := admin.RbacV1().ClusterRoles().Get(ctx, "system:node", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-nodes"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "bench:nodes"}},
	}
	_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // of another test
		t.Fatal(err)
	}
}

func TestRecorder(t *testing.T) {
	c := newCluster(t)
	admin, node := c.client(adminToken), c.nodeClient()

	t.Run("a node may not list events", func(t *testing.T) {
		_, err := node.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fatalf("listing says %v: the tests below would prove nothing", err)
		}
	})

	t.Run("life of a series", func(t *testing.T) {
		makeNamespace(t, admin, "life")
		o := quick()
		o.Heartbeat = 2 * time.Second
		a := newAgent(t, node, "life", o)
		a.emit("a", 1)
		wantTold(t, admin, "life", "a", "single")
		a.emit("a", 1)
		wantTold(t, admin, "life", "a", "Ongoing ×2")
		a.emit("a", 998)
		wantTold(t, admin, "life", "a", "Ongoing ×1000") // by a timer, in the series' first minute
		last := time.Now()
		a.emit("a", 1)
		wantTold(t, admin, "life", "a", "Finished ×1001")
		if d := time.Since(last); d < o.FinishAfter {
			t.Errorf("finished after %v", d)
		}
		calls := a.Stats().Calls
		// The counts 2, 1000 and 1001 by timers, and the end: fewer if the machine is slow.
		if calls["create"] != 1 || calls["patch"] < 3 || calls["patch"] > 4 || calls["read"] > 50 ||
			calls["roster"] > 10 {
			t.Errorf("calls: %v", calls)
		}
		e := stored(t, admin, "life")["a"]
		if e.Note != "attempt 0" || e.ReportingController != controller ||
			e.ReportingInstance != nodeName+"-life" ||
			e.Series.LastObservedTime.Time.Before(last.Add(-time.Second)) {
			t.Errorf("stored: %+v", e)
		}
		a.emit("a", 1) // another series, another object
		eventually(t, "there should be two events", func(ctx context.Context) (bool, string) {
			l, err := admin.EventsV1().Events("life").List(ctx, metav1.ListOptions{})
			return err == nil && len(l.Items) == 2, fmt.Sprint(err)
		})
		a.end()
	})

	t.Run("a namespace that is going away", func(t *testing.T) {
		makeNamespace(t, admin, "going") // nobody finalizes it here: it stays Terminating
		testkit.Check(t, admin.CoreV1().Namespaces().Delete(t.Context(), "going", metav1.DeleteOptions{}))
		a := newAgent(t, node, "going", quick())
		a.emit("a", 100)
		eventually(t, "it should be refused", func(context.Context) (bool, string) {
			s := a.Stats()
			return s.Rejected["NamespaceTerminating"] == 1 &&
					s.Dropped[events.DropRejected] == 100, fmt.Sprintf(
					"%+v",
					s,
				)
		})
		a.namespace = "never-made"
		a.emit("a", 1)
		eventually(t, "it should be refused", func(context.Context) (bool, string) {
			s := a.Stats()
			return s.Rejected["NamespaceNotFound"] == 1, fmt.Sprintf("%+v", s)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := a.ShutdownWithContext(ctx); err != nil {
			t.Error(err)
		}
		a.stop()
	})

	t.Run("kill -9 in the middle of writes", func(t *testing.T) {
		makeNamespace(t, admin, "kill")
		o := quick()
		o.FinishAfter = time.Hour
		o.Heartbeat = 100 * time.Millisecond // so that there is always something being written
		a := newAgent(t, node, "kill", o)
		const pods = 40
		rounds := 0
		for range 3 {
			for range 12 {
				for i := range pods {
					a.emit(fmt.Sprint("p", i), 1)
				}
				rounds++
				time.Sleep(20 * time.Millisecond)
			}
			testkit.Check(t, c.StopServer(syscall.SIGKILL))
			c.startServer()
		}
		a.end()
		all := stored(t, admin, "kill")
		if len(all) != pods {
			t.Errorf("%d events", len(all))
		}
		for i := range pods {
			if got := told(all[fmt.Sprint("p", i)]); got != fmt.Sprintf("Unknown ×%d", rounds) {
				t.Errorf("p%d says %s, want ×%d", i, got, rounds)
			}
		}
	})
}

// TestTTL: events live for 20 s here. A series with heartbeats stays; one without tokens for
// further writes expires, and returns with the whole count.
func TestTTL(t *testing.T) {
	t.Parallel() // it waits, for the most part
	c := newCluster(t, "--event-ttl=20s")
	admin := c.client(adminToken)
	makeNamespace(t, admin, "ttl")
	beating := quick()
	beating.FinishAfter, beating.Heartbeat, beating.Instance = time.Minute, 5*time.Second, "beating"
	silent := quick()
	silent.FinishAfter, silent.Instance = time.Minute, "silent"
	silent.Heartbeat, silent.Burst = time.Hour, 2
	a, b := newAgent(t, admin, "ttl", beating), newAgent(t, admin, "ttl", silent)
	a.emit("beating", 10)
	b.emit("silent", 10)
	wantTold(t, admin, "ttl", "silent", "Ongoing ×10")
	for end := time.Now().Add(35 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		a.emit("beating", 1)
		b.emit("silent", 1)
		if all := stored(t, admin, "ttl"); all["beating"] == nil {
			t.Fatal("the one with a heartbeat has expired")
		}
	}
	if all := stored(t, admin, "ttl"); all["silent"] != nil {
		t.Fatalf("the silent one has not expired: %s", told(all["silent"]))
	}
	emitted := b.Stats().Emitted
	b.end()
	wantTold(t, admin, "ttl", "silent", fmt.Sprintf("Unknown ×%d", emitted))
	emitted = a.Stats().Emitted
	a.end()
	wantTold(t, admin, "ttl", "beating", fmt.Sprintf("Unknown ×%d", emitted))
	if n := b.Stats().Transitions["renewed"]; n != 1 {
		t.Errorf("renewed %d times", n)
	}
}

// TestRoleOfTheDocuments: the role in docs/events.md suffices; without a role events are refused.
func TestRoleOfTheDocuments(t *testing.T) {
	c := newCluster(t)
	admin, plain := c.client(adminToken), c.client(plainToken)
	makeNamespace(t, admin, "role")
	without := newAgent(t, plain, "role", quick())
	without.emit("a", 20)
	eventually(t, "the events should be refused", func(context.Context) (bool, string) {
		s := without.Stats()
		return s.Rejected["Forbidden"] == 1 && s.Dropped[events.DropRejected] == 20, fmt.Sprintf("%+v", s)
	})
	if err := without.ShutdownWithContext(t.Context()); err != nil {
		t.Error(err)
	}
	without.stop()

	data := testkit.Must(os.ReadFile("../../docs/events-role.yaml"))(t)
	role := &rbacv1.ClusterRole{}
	testkit.Check(t, yaml.UnmarshalStrict(data, role))
	testkit.Must(admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "plain"}},
	}
	testkit.Must(admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	eventually(t, "the binding should be in force", func(ctx context.Context) (bool, string) {
		_, err := plain.CoreV1().Events("role").Patch(ctx, "none", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	for n := range int64(2) { // the second continues what the first left
		a := newAgent(t, plain, "role", quick())
		a.emit("a", 3)
		a.end()
		wantTold(t, admin, "role", "a", fmt.Sprintf("Unknown ×%d", 3*(n+1)))
	}
}
