// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/environ"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// envAgent makes this program an agent.
const envAgent = "NODE_E2E_AGENT"

var (
	isBounded, errBounded = environ.Switch("NODE_E2E_BOUNDED")

	bounded = flag.Bool(
		"bounded",
		isBounded,
		"run the short form, for CI",
	)
	onNames = flag.String(
		"runtime",
		os.Getenv("NODE_E2E_RUNTIME"),
		"private runtimes, separated by commas, or all; with -endpoint the nearest to that (default "+runtimes.Default().Name+")",
	)
	endpoint = flag.String(
		"endpoint",
		os.Getenv("NODE_E2E_ENDPOINT"),
		"a runtime that is already there, unix:///path",
	)
	imageRef = flag.String(
		"image",
		os.Getenv("NODE_E2E_IMAGE"),
		"the workload image on the runtime that is already there",
	)
	another = flag.String(
		"agent",
		"",
		"a program in place of the agent, which answers the calls of internal/bench/worker",
	)
	results = flag.String(
		"results",
		"",
		"directory for figures.md and the logs of failures (default build/node/results)",
	)

	run struct { // set before the first scenario
		names []string        // of the runtimes
		ctx   context.Context // ends with the run
		dir   string          // for the scenarios' own, with a short name
		root  string          // of the repository
		// abandoned are the directories of killed runs on a runtime in place, until their pods are gone
		abandoned []string
		results   string
		ran       atomic.Int32      // scenarios
		clock     *standstill.Meter // of the waits
	}
)

func TestMain(m *testing.M) {
	if os.Getenv(envAgent) != "" {
		os.Exit(beAgent())
	}
	flag.Parse()
	var err error
	run.names, err = chosen(*onNames, *endpoint)
	err = errors.Join(err, errBounded)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(unshare.ExitCannotRun)
	}
	all := func() int {
		var stop context.CancelFunc
		run.ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		var still func()
		run.clock, still = standstill.Start()
		defer still()
		code := m.Run()
		if run.ctx.Err() != nil {
			return unshare.ExitInterrupted
		}
		return code
	}
	if *endpoint == "" {
		run.dir = unshare.Dir()
		os.Exit(unshare.Main(all))
	}
	// The suite starts nothing but agents, which end with their input.
	if run.dir, run.abandoned, err = unshare.Claim("pleg-in-place-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(unshare.ExitCannotRun)
	}
	code := all()
	os.RemoveAll(run.dir)
	os.Exit(code)
}

// chosen returns the names of the runtimes of -runtime: known ones, each once, and the nearest one
// alone to a runtime in place.
func chosen(of, endpoint string) ([]string, error) {
	names := strings.Split(cmp.Or(of, runtimes.Default().Name), ",")
	switch {
	case endpoint != "" && (of == "all" || len(names) > 1):
		return nil, fmt.Errorf("-runtime %s (NODE_E2E_RUNTIME, RUNTIME): with -endpoint, name the one that is nearest to it", of)
	case of == "all":
		return runtimes.Names(), nil
	}
	for i, name := range names {
		r, err := runtimes.ByName(name)
		if err != nil {
			return nil, fmt.Errorf("-runtime %s (NODE_E2E_RUNTIME, RUNTIME): %w", of, err)
		}
		if slices.Contains(names[:i], r.Name) {
			return nil, fmt.Errorf("-runtime %s (NODE_E2E_RUNTIME, RUNTIME): it names %s twice", of, r.Name)
		}
		names[i] = r.Name
	}
	return names, nil
}

// beAgent answers the calls of the suite until its input ends.
func beAgent() int {
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	if err := errors.Join(logs.Set("v", "2"), worker.Serve(context.Background(), os.Stdin, os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

// A Scenario is a test of the suite.
type Scenario struct {
	// Name is its number in the list and a word.
	Name string
	// Source is the section of KEP-3386, or the observed fact, behind the scenario.
	Source string
	// Private is the reason why the scenario needs a private runtime. Empty: none.
	Private string
	Run     func(*T)
}

const restarts = "it restarts the runtime, and this runtime is not ours to restart"

// scenarios are all of them, in the order in which they run.
var scenarios = []Scenario{
	{
		"01-lifecycle",
		"KEP-3386, Test Plan: the PodLifecycleEvent is generated and the status updated when CRI events come",
		"",
		lifecycle,
	},
	{"02-stress", "KEP-3386, Test Plan: stress test", "", stress},
	{"03-recovery", "KEP-3386, Test Plan: recovery test", "", recovery},
	{"04-restart", "KEP-3386, Test Plan: retry with backoff logic; #129827", restarts, restart},
	{"05-away", "KEP-3386, Test Plan: retry with backoff logic, more than five attempts", restarts, away},
	{
		"06-stale-payloads",
		"KEP-3386, Pod Status update in the Cache; containerd sends older payloads with newer stamps",
		"",
		stale,
	},
	{"07-no-event", "KEP-3386, Risks and Mitigations: kube_pod_missed_events", "", noEvent},
	{
		"08-stalled-agent",
		"KEP-3386, dependencies: degraded performance without an error; containerd blocks on a subscriber that does not read",
		"it stops the runtime for every client by not reading its events",
		stalled,
	},
	{
		"09-replay",
		"containerd gives the backlog of up to 5 minutes to the first subscriber; KEP-3386, Pod Status update in the Cache",
		"",
		replay,
	},
	{
		"10-clients",
		"KEP-3386, Proposal: another entity changes the state of the node; crictl beside the kubelet",
		"",
		clients,
	},
	{
		"11-killed",
		"KEP-3386, Proposal: the state changes without the kubelet; a killed shim tells of its container late",
		"it kills shims of the runtime",
		killed,
	},
	{"12-wire", "KEP-3386, Design Details: errors in the grpc connection; the stream's quirks", "", wire},
	{
		"13-static-pod",
		"#120941, #121003, #121349, #123087: static pods started twice or never; an old sandbox's DELETED",
		"",
		static,
	},
	{"14-wall-clock", "KEP-3386, Timestamp of the Pod Status: two clocks in one field", "", clock},
	{"15-newer-than", "KEP-3386, Risks and Mitigations: pod workers stuck at GetNewerThan; #124704", "", newer},
	{"16-idle-cost", "KEP-3386, Goals: reduce steady-state CPU usage", "", idle},
	{
		"17-conformance",
		"what the fake runtime's profiles claim of the real ones",
		"its transcript is that of one version",
		conform,
	},
	{
		"19-content",
		"a status is more than a phase: in-place resize (KEP-1287), a reason that comes after the end",
		"",
		content,
	},
	{
		"20-why",
		"kubernetes#38532, #69676, #126474: an Event for each end of a container, with its code and reason",
		restarts,
		why,
	},
	{"21-hung-lists", "containerd/containerd#9770: one hung container hangs every list", "", hungLists},
	{
		"18-soak",
		"KEP-3386, Test Plan: retry with backoff logic, for as long as you like (NODE_E2E_SOAK=30m)",
		restarts,
		soak,
	},
}

// An env is shared by the scenarios on a runtime.
type env struct {
	set components.Set
	// kind is the runtime, or the known runtime nearest to the runtime in place.
	kind runtimes.Runtime
	// image is the reference of the workload image.
	image string
	// version is the runtime's name and version, known after the first node.
	version string
	// letter begins the names of its scenarios' directories.
	letter string
	rows   []string // of the table of figures
}

func TestNode(t *testing.T) {
	var err error
	if run.root, err = components.FindRoot(); err != nil {
		t.Fatal(err)
	}
	run.results = cmp.Or(*results, filepath.Join(run.root, "build", "node", "results"))
	testkit.Check(t, errors.Join(os.RemoveAll(run.results), os.MkdirAll(run.results, 0o755)))
	var rows struct {
		sync.Mutex
		all []string
	}
	for i, name := range run.names {
		t.Run(name, func(t *testing.T) {
			e := prepare(t, name)
			e.letter = string(rune('a' + i))
			t.Parallel() // as many as -test.parallel: scenarios mostly wait
			for _, s := range scenarios {
				t.Run(s.Name, func(t *testing.T) { e.run(t, s) })
			}
			rows.Lock()
			defer rows.Unlock()
			rows.all = append(rows.all, e.rows...)
		})
	}
	t.Cleanup(func() { // once all have run
		if run.ran.Load() == 0 && !t.Failed() {
			t.Errorf("RUN or -test.run chooses no scenario by %q; there are:\n%s", flag.Lookup("test.run").Value, list())
		}
		table := "| runtime | scenario | outcome | took | figures |\n|---|---|---|---|---|\n" + strings.Join(
			rows.all,
			"",
		)
		if err := os.WriteFile(filepath.Join(run.results, "figures.md"), []byte(table), 0o644); err != nil {
			t.Error(err)
		}
	})
}

// list returns the names of the scenarios.
func list() string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

// prepare builds the programs for a run on a runtime; for a runtime in place only ours.
func prepare(t *testing.T, name string) *env {
	t.Helper()
	kind := testkit.Must(runtimes.ByName(name))(t)
	if *endpoint != "" {
		removeAbandoned(t)
		name = ""
	}
	set := testkit.Must(components.Build(run.ctx, name, t.Output()))(t)
	if *endpoint != "" && *imageRef == "" {
		archive := filepath.Join(run.results, "workload-image.tar")
		testkit.Check(t, image.PackFile(archive, set.Workload(), image.DefaultRef))
		t.Fatalf("load the workload image %s into the runtime with its own tool, then run again with NODE_E2E_IMAGE=%s",
			archive, image.DefaultRef)
	}
	return &env{set: set, kind: kind, image: cmp.Or(*imageRef, image.DefaultRef)}
}

// removeAbandoned removes what killed runs have left on the runtime in place.
func removeAbandoned(t *testing.T) {
	t.Helper()
	client := testkit.Must(crikit.Dial(crikit.Options{Endpoint: *endpoint}))(t)
	defer client.Close()
	if _, err := client.Version(run.ctx, &runtimeapi.VersionRequest{}); err != nil {
		t.Fatalf("no runtime answers at %s (-endpoint, NODE_E2E_ENDPOINT): %v", *endpoint, err)
	}
	for _, dir := range run.abandoned {
		removed, err := client.RemoveAbandoned(run.ctx, filepath.Base(dir)+"-")
		t.Logf("%d pods of the abandoned run %s are removed", removed, dir)
		testkit.Check(t, errors.Join(err, os.RemoveAll(dir)))
	}
	run.abandoned = nil
}

// limit bounds a scenario.
const limit = 15 * time.Minute

// run runs a scenario as a test, and adds its row to the table of figures.
func (e *env) run(t *testing.T, s Scenario) {
	began := time.Now()
	st := &T{T: t, Dir: filepath.Join(run.dir, e.letter+s.Name[:2]), Traits: e.kind.Traits, env: e}
	t.Cleanup(func() { // the last
		outcome := "PASS"
		if t.Failed() {
			outcome = "FAIL"
			st.keep()
		} else if t.Skipped() {
			outcome = "N/A"
		}
		if st.converged > 0 {
			st.Figure("converged at most", "%s", bench.Short(st.converged))
		}
		e.rows = append(
			e.rows,
			fmt.Sprintf(
				"| %s | %s | %s | %.1f s | %s |\n",
				e.version,
				s.Name,
				outcome,
				time.Since(began).Seconds(),
				strings.ReplaceAll(strings.Join(st.figures, " · "), "|", "\\|"),
			),
		)
	})
	t.Log(s.Source)
	run.ran.Add(1)
	if *endpoint != "" && s.Private != "" {
		t.Skip("not applicable: " + s.Private)
	}
	testkit.Check(t, os.MkdirAll(st.Dir, 0o755))
	soaking, _ := time.ParseDuration(os.Getenv(envSoak)) // 18-soak refuses a bad value
	var cancel context.CancelFunc
	st.ctx, cancel = context.WithTimeoutCause(
		run.ctx,
		limit+2*soaking,
		fmt.Errorf("the scenario did not end within %v", limit+2*soaking),
	)
	t.Cleanup(cancel)
	st.start()
	s.Run(st)
}
