// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

var (
	show = flag.Bool(
		"show",
		false,
		"run TestShow with the sizes of the documents, and write docs/events/shown.md",
	)
	listings = flag.Bool(
		"listings",
		false,
		"make kubectl's listings of docs/events/shown.md anew, and leave its table",
	)
)

// result is the server's content after a scenario: occurrences, and the number of objects.
type result struct {
	occurrences int64
	objects     int
}

func (r result) String() string { return fmt.Sprintf("%d (%d)", r.occurrences, r.objects) }

// stage is a cluster with the scenarios' needs.
type stage struct {
	*cluster
	admin kubernetes.Interface
	node  *rest.Config // with a node's rights, without a limit of the rate
	made  int          // namespaces
	load  string
}

// load is the machine's one-minute load average.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(raw), " ")
	return one
}

// namespace makes a namespace for a scenario and a recorder.
func (s *stage) namespace() string {
	s.made++
	name := fmt.Sprintf("show-%d", s.made)
	makeNamespace(s.t, s.admin, name)
	return name
}

// start starts a recorder; each scenario has an instance of its own, as each node has.
func (s *stage) start(kind, namespace string) *contestant {
	return startRecorder(s.t, kind, clientOf(s.t, s.node), nodeName+"-"+namespace)
}

// stop ends a recorder in order. client-go's Shutdown loses calls under way, so its recorders get
// unlimited time before.
func (s *stage) stop(c *contestant, kind, namespace string) {
	if kind == clientEvents || kind == clientRecord {
		s.settled(namespace, 13) // a call that failed is tried again after 10 s
	}
	c.stop()
}

// result waits until nothing more comes, and counts.
func (s *stage) result(namespace string) result { return s.settled(namespace, 3) }

// settled waits until nothing has come for so many seconds.
func (s *stage) settled(namespace string, seconds int) (r result) {
	for quiet, deadline := 0, time.Now().Add(4*time.Minute); quiet < seconds && time.Now().Before(deadline); time.Sleep(time.Second) {
		l, err := s.admin.CoreV1().Events(namespace).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			continue // it is away
		}
		now := result{objects: len(l.Items)}
		for _, e := range l.Items {
			if e.Series != nil {
				e.Count = e.Series.Count
			}
			now.occurrences += int64(max(e.Count, 1))
		}
		if quiet++; now != r {
			r, quiet = now, 0
		}
	}
	return r
}

func ref(kind, namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind:       kind,
		APIVersion: "v1",
		Namespace:  namespace,
		Name:       name,
		UID:        types.UID("uid-" + name),
	}
}

// scenario is a row of the table.
type scenario struct {
	name        string
	small, full int
	truth       func(n int) result
	run         func(s *stage, kind, namespace string, n int)
	// notExact are our recorders with a difference in this row, for the reason given in the
	// document.
	notExact []string
}

func each(n int) result  { return result{int64(n), n} }
func inOne(n int) result { return result{int64(n), 1} }

var scenarios = []scenario{
	{"storm: events about as many pods", 200, 10_000, each, func(s *stage, kind, ns string, n int) {
		c := s.start(kind, ns)
		for i := range n {
			c.emit(ref("Pod", ns, fmt.Sprint("p", i)), nil, "Normal", "Pulled", "Pull", "image is present")
		}
		s.stop(c, kind, ns)
	}, nil},
	{"hot loop: one event", 5000, 100_000, inOne, func(s *stage, kind, ns string, n int) {
		c := s.start(kind, ns)
		for range n {
			c.emit(ref("Pod", ns, "web"), nil, "Warning", "BackOff", "Restart", "back-off restarting")
		}
		s.stop(c, kind, ns)
	}, nil},
	{"ReplicaSet that creates pods", 60, 500, each, createsAll("ReplicaSet"), []string{oursRecord}},
	{"CronJob: its runs, one after the other", 60, 180, each, createsAll("CronJob"), []string{oursRecord}},
	{
		"kubelet: nine messages under five reasons, three times each",
		3,
		3,
		func(n int) result { return result{int64(9 * n), 9} },
		func(s *stage, kind, ns string, n int) {
			c := s.start(kind, ns)
			for range n {
				for _, e := range podsLife[1:7] {
					c.emit(ref("Pod", ns, "web"), nil, "Warning", e[0], "Act", "%s", e[1])
					time.Sleep(10 * time.Millisecond)
				}
				for _, e := range podsLife[10:13] {
					c.emit(ref("Pod", ns, "web"), nil, "Warning", e[0], "Act", "%s", e[1])
					time.Sleep(10 * time.Millisecond)
				}
			}
			s.stop(c, kind, ns)
		},
		[]string{oursEvents},
	},
	{
		"hand-over: ten restarts in a crash loop, 100 times each",
		11,
		11,
		func(n int) result { return inOne(100 * n) },
		func(s *stage, kind, ns string, n int) {
			for range n {
				c := s.start(kind, ns)
				for range 100 {
					c.emit(ref("Pod", ns, "web"), nil, "Warning", "BackOff", "Restart", "back-off restarting")
				}
				s.stop(c, kind, ns)
			}
		},
		nil,
	},
	{
		"kill -9 in a crash loop, 150 times before and after",
		150,
		150,
		func(n int) result { return inOne(2 * n) },
		func(s *stage, kind, ns string, n int) {
			s.crashLoop(kind, ns, n, true)
			s.crashLoop(kind, ns, n, false)
		},
		[]string{oursEvents, oursRecord},
	},
}

// createsAll is a controller creating objects in a row, with an event about its own object for
// each.
func createsAll(owner string) func(s *stage, kind, ns string, n int) {
	return func(s *stage, kind, ns string, n int) {
		c := s.start(kind, ns)
		for i := range n {
			c.emit(
				ref(owner, ns, "web"),
				ref("Pod", ns, fmt.Sprint("web-", i)),
				"Normal",
				"SuccessfulCreate",
				"Create",
				"Created pod: web-%d",
				i,
			)
			time.Sleep(time.Millisecond)
		}
		s.stop(c, kind, ns)
	}
}

// mortal is the transport of a process that can be killed: no call goes out then.
type mortal struct {
	http.RoundTripper
	dead *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errors.New("killed")
	}
	return m.RoundTripper.RoundTrip(r)
}

// crashLoop emits an event n times and ends the recorder in order, or as kill -9 of its process
// would: by the server alone the two cannot be told apart.
func (s *stage) crashLoop(kind, namespace string, n int, kill bool) {
	s.t.Helper()
	var dead atomic.Bool
	config := rest.CopyConfig(s.node)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return mortal{rt, &dead} })
	c := startRecorder(s.t, kind, clientOf(s.t, config), nodeName+"-"+namespace)
	for range n {
		c.emit(ref("Pod", namespace, "web"), nil, "Warning", "BackOff", "Restart", "back-off restarting")
		time.Sleep(10 * time.Millisecond)
	}
	if dead.Store(kill); kill {
		c.cancel()
	} else {
		c.stop()
	}
}

// outage is a row of its own: the server is away once, for all recorders at a time.
func (s *stage) outage(kinds []string, length time.Duration, pods int) map[string]result {
	type one struct {
		c  *contestant
		ns string
	}
	all := map[string]one{}
	for _, kind := range kinds {
		ns := s.namespace()
		all[kind] = one{s.start(kind, ns), ns}
	}
	testkit.Check(s.t, s.StopServer(syscall.SIGTERM))
	for end, i := time.Now().Add(length), 0; time.Now().Before(end) || i < pods; i++ {
		if i < pods {
			for _, o := range all {
				o.c.emit(
					ref("Pod", o.ns, fmt.Sprint("p", i)),
					nil,
					"Normal",
					"Pulled",
					"Pull",
					"image is present",
				)
			}
		}
		time.Sleep(min(length/time.Duration(pods), max(time.Until(end), 0)))
	}
	s.startServer()
	var wg sync.WaitGroup
	for kind, o := range all {
		wg.Go(func() {
			s.stop(o.c, kind, o.ns)
		})
	}
	wg.Wait()
	out := map[string]result{}
	for kind, o := range all {
		out[kind] = s.result(o.ns)
	}
	return out
}

// TestShow fills the table of docs/events/shown.md from runs against a real API server: the truth,
// and the content stored by this recorder and by client-go's. Ours must be exact, except for the
// reason in the row.
func TestShow(t *testing.T) {
	if !*show && !*listings {
		t.Parallel() // it waits, for the most part
	}
	c := newCluster(t)
	c.nodeClient()
	s := &stage{cluster: c, admin: c.client(adminToken), node: c.Access(nodeToken), load: load()}
	s.node.QPS = -1
	if *listings {
		s.writeListings()
		return
	}
	kinds := recorderKinds
	if !*show { // client-go's figures are for the document; each takes 13 s of silence to be sure of
		kinds = []string{oursEvents, oursRecord}
	}
	var table strings.Builder
	row := func(name string, truth result, of func(kind string) string) {
		fmt.Fprintf(&table, "| %s | %v |", name, truth)
		for _, kind := range kinds {
			fmt.Fprintf(&table, " %s |", of(kind))
		}
		table.WriteString("\n")
	}
	for _, sc := range scenarios {
		n := sc.small
		if *show {
			n = sc.full
		}
		row(sc.name, sc.truth(n), func(kind string) string {
			ns := s.namespace()
			sc.run(s, kind, ns, n)
			got := s.result(ns)
			t.Logf("%s, %s: true %v, stored %v", sc.name, kind, sc.truth(n), got)
			ours := kind == oursEvents || kind == oursRecord
			if ours && !slices.Contains(sc.notExact, kind) && got != sc.truth(n) {
				t.Errorf("%s, %s: stored %v, true %v", sc.name, kind, got, sc.truth(n))
			}
			if ours && strings.HasPrefix(sc.name, "kill") {
				return s.killed(kind, ns, got, n)
			}
			return got.String()
		})
	}
	length, pods := 5*time.Second, 50
	if *show {
		length, pods = 150*time.Second, 500
	}
	away := s.outage(kinds, length, pods)
	row(
		fmt.Sprintf("outage of %v, events about as many pods", length),
		each(pods),
		func(kind string) string { return away[kind].String() },
	)
	for _, kind := range []string{oursEvents, oursRecord} {
		if away[kind] != each(pods) {
			t.Errorf("outage, %s: stored %v of %d", kind, away[kind], pods)
		}
	}
	t.Logf("\n%s", table.String())
	if *show {
		s.write(table.String())
	}
}

// killed checks the storage after a kill: one object, a count no larger than the truth, marked as a
// lower bound.
func (s *stage) killed(kind, namespace string, got result, n int) string {
	l, err := s.admin.EventsV1().Events(namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil || len(l.Items) != 1 || got.occurrences > int64(2*n) || got.occurrences <= int64(n) {
		s.t.Errorf("kill, %s: stored %v of %d: %v", kind, got, 2*n, err)
		return got.String()
	}
	if l.Items[0].Annotations[events.AnnotationAtLeast] != "true" {
		s.t.Errorf("kill, %s: nothing says that the count is a lower bound", kind)
	}
	return "at least " + got.String()
}

// write makes docs/events/shown.md of the table and of kubectl's listings.
func (s *stage) write(table string) {
	var out strings.Builder
	fmt.Fprintf(
		&out,
		"# Shown on a real API server\n\nMade by `make show-events`: kube-apiserver %s, etcd, client-go's recorders of v0.37 and this one, each with the\n"+
			"rights of a node. What is stored: occurrences (objects). *by record*: by the older interface, as a kubelet uses it;\n"+
			"there a ReplicaSet's messages beyond ten are counted together. A killed process takes with it what it had counted\n"+
			"since its last write; the object says that its count is a lower bound.\n\n"+
			"The table is of one run, on %s, with %s on %d processors that other work kept busy too: the load average was\n"+
			"%s when it began and %s when it ended. What client-go's recorders lose in a storm depends on that.\n\n",
		version(),
		time.Now().Format(time.DateOnly),
		runtime.Version(),
		runtime.NumCPU(),
		s.load,
		load(),
	)
	fmt.Fprintf(
		&out,
		"| scenario | true | %s |\n|---|---|---|---|---|---|\n%s",
		strings.Join(recorderKinds, " | "),
		table,
	)
	testkit.Check(s.t, os.WriteFile(shownPage, []byte(out.String()), 0o644))
	s.writeListings()
}

const (
	shownPage = "../../docs/events/shown.md"
	// listingsHead begins the part of the page that writeListings makes.
	listingsHead = "\n## kubectl\n"
)

// writeListings makes the part of docs/events/shown.md with kubectl's listings.
func (s *stage) writeListings() {
	page, _, _ := strings.Cut(string(testkit.Must(os.ReadFile(shownPage))(s.t)), listingsHead)
	var out strings.Builder
	fmt.Fprintf(
		&out,
		"%s%s\nThe life of a pod, and then a crash loop of one event a second for %v: when was it last seen, and how often?\n"+
			"All recorders in one run, on %s.\n",
		page,
		listingsHead,
		listedFor,
		time.Now().Format(time.DateOnly),
	)
	all := s.listings()
	for _, kind := range recorderKinds {
		fmt.Fprintf(&out, "\n### %s\n\n```text\n$ kubectl get events\n%s\n$ kubectl describe pod web\n%s```\n",
			kind, all[kind].get, all[kind].describe)
	}
	testkit.Check(s.t, os.WriteFile(shownPage, []byte(out.String()), 0o644))
}

// listing is what kubectl shows of a pod.
type listing struct{ get, describe string }

// listedFor is the length of the loop in the listings.
const listedFor = 90 * time.Second

// listings returns kubectl's listings of a pod's life and a crash loop, by recorder.
func (s *stage) listings() map[string]listing {
	type one struct {
		*contestant
		namespace string
		pod       *corev1.Pod
	}
	var all []one
	for _, kind := range recorderKinds {
		ns := s.namespace()
		all = append(all, one{s.start(kind, ns), ns, makePod(s.t, s.admin, ns, "web")})
	}
	emit := func(reason, note string) {
		for _, o := range all {
			o.emit(o.pod, nil, "Normal", reason, "Act", "%s", note)
		}
	}
	for i, e := range podsLife {
		for range 1 + i%2 {
			emit(e[0], e[1])
		}
		time.Sleep(50 * time.Millisecond)
	}
	for range int(listedFor.Seconds()) {
		emit("BackOff", podsLife[len(podsLife)-1][1])
		time.Sleep(time.Second)
	}
	out := map[string]listing{}
	for i, o := range all {
		out[recorderKinds[i]] = listing{
			getEvents(s.t, s.admin, o.namespace),
			describePod(s.t, s.admin, o.namespace, "web"),
		}
	}
	for _, o := range all {
		o.stop()
	}
	return out
}
