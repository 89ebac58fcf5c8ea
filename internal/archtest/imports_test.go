// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the tests of the repository's form: imports between packages, and the
// parts of every file.
package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/metrics"
)

const module = "github.com/evented-pleg/evented-pleg"

// rule is the allowed dependencies of a package's non-test code.
type rule struct {
	// ours are the allowed packages of this module, direct or not; "..." allows all.
	ours []string
	// never are prefixes of forbidden packages, direct or not.
	never []string
	why   string
}

// heavy are dependencies that an embedder of the core must not get.
var heavy = []string{
	"google.golang.org/",
	"k8s.io/cri-api",
	"k8s.io/client-go",
	"k8s.io/api/",
	"k8s.io/apimachinery",
	"k8s.io/component-base",
	"k8s.io/kubernetes",
	"github.com/prometheus",
}

var rules = map[string]rule{
	"cache": {
		never: append([]string{"k8s.io/"}, heavy...),
		why:   "the cache knows nothing but times and UIDs",
	},
	"pleg": {
		ours:  []string{"cache"},
		never: heavy,
		why:   "a kubelet fork plugs its own runtime in; the core must not bring another one",
	},
	"pleg/plegtest": {
		ours:  []string{"pleg", "cache"},
		never: heavy,
		why:   "an embedder's tests judge any source of statuses",
	},
	"cmd/pleg-bench": {
		ours:  []string{"..."},
		never: []string{"k8s.io/client-go", "k8s.io/api/", "k8s.io/kubernetes"},
		why:   "the first command of the README compiles everything that the tool imports",
	},
	"cmd/pleg-bench-fleet": {
		ours: []string{
			"pleg",
			"pleg/plegtest",
			"cache",
			"internal/bench",
			"internal/bench/report",
			"internal/bench/stream",
			"cri/criphase",
			"internal/cli",
			"internal/deadmount",
			"internal/doctor/findings",
			"internal/kubeconfig",
			"internal/printable",
			"internal/standstill",
		},
		never: []string{"k8s.io/kubernetes"},
		why:   "it asks Prometheus and an API server, and no runtime",
	},
	"cri": {
		ours: []string{"pleg", "cache", "cri/criphase"},
		never: []string{
			"k8s.io/client-go",
			"k8s.io/component-base",
			"k8s.io/kubernetes",
			"github.com/prometheus",
		},
		why: "the client implements pleg's sources and nothing else",
	},
	"cri/criphase": {
		ours: []string{"pleg", "cache"},
		never: []string{
			"k8s.io/client-go",
			"k8s.io/component-base",
			"k8s.io/kubernetes",
			"github.com/prometheus",
		},
		why: "it maps values of the CRI to phases, and nothing else",
	},
	"cri/fakeruntime": {
		ours:  []string{"cri/fakeruntime/processors"},
		never: []string{"k8s.io/client-go", "k8s.io/kubernetes", "github.com/prometheus"},
		why:   "the fake shares no code with the client, so that it cannot share its bugs",
	},
	"events": {
		never: []string{"google.golang.org/grpc", "k8s.io/cri-api", "k8s.io/kubernetes"},
		why:   "any node agent may use the recorder",
	},
	"exits": {
		ours: []string{"pleg", "cache", "cri", "cri/criphase"},
		never: []string{
			"k8s.io/client-go",
			"k8s.io/component-base",
			"k8s.io/kubernetes",
			"github.com/prometheus",
		},
		why: "it joins a generator and a recorder, and any recorder of Events will do",
	},
	"cmd/pleg-agent": {
		ours: []string{
			"pleg",
			"pleg/plegtest",
			"cache",
			"cri",
			"cri/fakeruntime",
			"cri/fakeruntime/processors",
			"metrics",
			"events",
			"exits",
			"cri/criphase",
			"embed",
			"embed/ledger",
			"internal/bench",
			"internal/bench/report",
			"internal/bench/stream",
			"internal/cli",
			"internal/deadmount",
			"internal/identity",
			"internal/kubeconfig",
			"internal/printable",
			"internal/standstill",
		},
		never: []string{"k8s.io/kubernetes"},
		why:   "it runs on every node",
	},
	"embed": {
		ours:  []string{"pleg", "cache", "cri/criphase", "embed/ledger"},
		never: []string{"k8s.io/component-base", "k8s.io/kubernetes", "github.com/prometheus"},
		why:   "it is what all kubelets share; what needs one version of Kubernetes is in the modules below",
	},
	"embed/ledger": {
		ours: []string{"pleg", "cache", "cri/criphase"},
		never: []string{
			"k8s.io/client-go",
			"k8s.io/component-base",
			"k8s.io/kubernetes",
			"github.com/prometheus",
		},
		why: "it is rules about list items of the CRI, and nothing else",
	},
	"metrics": {
		never: []string{"google.golang.org/grpc", "k8s.io/cri-api", "k8s.io/client-go", "k8s.io/kubernetes"},
		why:   "metrics are matched by structure, not by import",
	},
}

func TestImportsPointOneWay(t *testing.T) {
	for pkg, r := range rules {
		t.Run(pkg, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}}", module+"/"+pkg).CombinedOutput()
			if err != nil {
				t.Fatalf("go list %s: %v\n%s", pkg, err, out)
			}
			for dep := range strings.FieldsSeq(string(out)) {
				if own, ok := strings.CutPrefix(dep, module+"/"); ok && own != pkg && !slices.Contains(r.ours, own) && !slices.Contains(r.ours, "...") {
					t.Errorf("%s depends on our %s: %s", pkg, own, r.why)
				}
				for _, p := range r.never {
					if strings.HasPrefix(dep, p) {
						t.Errorf("%s depends on %s: %s", pkg, dep, r.why)
					}
				}
			}
		})
	}
}

// asks are the modules named by the root module besides their own requirements. Each concerns all
// users of the libraries: adding pleg to an agent must not raise the agent's modules.
var asks = map[string]string{
	"google.golang.org/grpc":              "cri",
	"k8s.io/component-base":               "metrics",
	"k8s.io/cri-api":                      "cri",
	"k8s.io/klog/v2":                      "pleg",
	"github.com/prometheus/client_golang": "metrics",
	"google.golang.org/protobuf":          "cri; cri-api and grpc need the same",
	"github.com/google/go-cmp":            "tests; grpc and component-base need the same",
	"github.com/prometheus/client_model":  "tests; component-base needs the same",
	"go.uber.org/goleak":                  "tests; client-go needs the same",
}

func TestRootModuleAsksForLittle(t *testing.T) {
	file, err := modfile.Parse("go.mod", read(t, root+"/go.mod"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Require) == 0 || len(file.Replace) > 0 || len(file.Tool) > 0 {
		t.Errorf(
			"go.mod has %d requirements, %d replacements and %d tools, want some, none and none",
			len(file.Require),
			len(file.Replace),
			len(file.Tool),
		)
	}
	for _, r := range file.Require {
		if asks[r.Mod.Path] == "" && !r.Indirect {
			t.Errorf(
				"the root module requires %s: it belongs in a module of its own, or in one of those that go.work names",
				r.Mod.Path,
			)
		}
	}
}

// Package events compiles against client-go v0.36 too, which does not have this interface: hence
// here.
var _ clientevents.AnnotatedEventRecorder = (*events.Recorder)(nil)

// The modules of both know nothing of each other.
var _ = func(r metrics.Registry, b *events.Broadcaster) error { return metrics.NewEvents(r, b.Metrics) }

// TestTenReasonsOfANode: the pace of embed.Recorder stays within client-go's limit for ten, see
// TestEveryReasonIsTold there.
func TestTenReasonsOfANode(t *testing.T) {
	if n := strings.Count(string(read(t, root+"/pleg/config.go")), " Reason = \""); n != 10+1 {
		t.Errorf("%d reasons, want ten of a node and one of pods", n)
	}
}
