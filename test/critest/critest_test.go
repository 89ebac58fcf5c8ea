// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"flag"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"sigs.k8s.io/cri-tools/pkg/framework"
	_ "sigs.k8s.io/cri-tools/pkg/validate"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

var all = flag.Bool("all", false, "run the specs of the table too; they must fail")

func init() { framework.RegisterFlags() }

// impossible are the specs that a runtime without processes cannot pass, or not honestly.
var impossible = []struct{ specs, reason string }{
	{`AppArmor`, "needs a kernel with AppArmor; skips itself elsewhere"},
	{`Mount Propagation|support (non-)?recursive readonly mounts|starting container with volume`, "lists a mounted directory"},
	{`NamespaceOption|NamespaceMode_(POD|NODE)`, "reads namespaces in /proc"},
	{`sysctls|MaskedPaths|ReadonlyPaths|DNS config|set hostname`, "reads a file, or the kernel's state, in the container"},
	{`capabilit|Privileged is true`, "changes the network by a program"},
	{`SeccompProfilePath|NoNewPrivs`, "needs the kernel's seccomp, or a setuid program"},
	{`OOMKilled`, "fills memory"},
	{`execSync with timeout`, "looks for processes"},
	{`Streaming`, "there is no streaming server: Exec, Attach and PortForward are Unimplemented"},
	{`port mapping|Multiple Containers.*network`, "there is no web server behind a pod's IP"},
	{`Privileged is false`, "any refused program satisfies it"},
}

// vacuous are those of the table that pass without what they test.
var vacuous = regexp.MustCompile(
	`Privileged is false|blocks setting hostname with SYS_ADMIN|HostNetwork is false|support non-recursive readonly mounts`)

// images are those of the suite whose content matters to a spec.
var images = []fakeruntime.Image{
	{Names: []string{"gcr.io/k8s-staging-cri-tools/test-image-user-uid"}, User: "1002"},
	{Names: []string{"gcr.io/k8s-staging-cri-tools/test-image-user-uid-group"}, User: "1003:users"},
	{Names: []string{"gcr.io/k8s-staging-cri-tools/test-image-user-username"}, User: "www-data", Users: []fakeruntime.ImageUser{webUser}},
	{Names: []string{"gcr.io/k8s-staging-cri-tools/test-image-user-username-group"}, User: "www-data:www-data", Users: []fakeruntime.ImageUser{webUser}},
	{
		Names: []string{"gcr.io/k8s-staging-cri-tools/test-image-predefined-group"},
		Users: []fakeruntime.ImageUser{{Name: "default-user", UID: 1000, GID: 1000, Groups: []int64{50000}}},
	},
	{Names: []string{
		"gcr.io/k8s-staging-cri-tools/test-image-tags:1", "gcr.io/k8s-staging-cri-tools/test-image-tags:2", "gcr.io/k8s-staging-cri-tools/test-image-tags:3",
	}},
	{Names: []string{"registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"}, Command: []string{"/pause"}},
	{
		Names:   []string{"registry.k8s.io/e2e-test-images/httpd:2.4.39-4"},
		Command: []string{"sh", "-c", "echo 'httpd -D FOREGROUND' >&2; sleep infinity"},
	},
}

var webUser = fakeruntime.ImageUser{Name: "www-data", UID: 33, GID: 33}

// outcome keeps ginkgo from judging.
type outcome struct{}

func (outcome) Fail() {}

func TestValidation(t *testing.T) {
	rt, err := fakeruntime.New(fakeruntime.Config{Images: images})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := rt.Serve(ctx, lis); err != nil {
			t.Error(err)
		}
	})
	defer func() { cancel(); wg.Wait(); rt.Close() }()
	framework.TestContext.RuntimeServiceAddr, framework.TestContext.ImageServiceAddr = "unix://"+socket, ""

	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.SkipStrings = []string{"benchmark"}
	if !*all {
		for _, row := range impossible {
			suite.SkipStrings = append(suite.SkipStrings, row.specs)
		}
	}
	var specs types.SpecReports
	ginkgo.ReportAfterSuite("results", func(r ginkgo.Report) { specs = r.SpecReports })
	ginkgo.RunSpecs(outcome{}, "validation", suite, reporter)

	passed, rows := 0, map[string]int{}
	for _, spec := range specs.WithLeafNodeType(types.NodeTypeIt) {
		name := strings.ReplaceAll(spec.FullText(), "[k8s.io] ", "")
		if strings.Contains(name, "benchmark") {
			continue
		}
		reason := ""
		for _, row := range impossible {
			if regexp.MustCompile(row.specs).MatchString(name) {
				reason = row.reason
				break
			}
		}
		rows[reason]++
		switch spec.State {
		case types.SpecStatePassed:
			passed++
			if reason != "" && !vacuous.MatchString(name) {
				t.Errorf("passes, though a runtime without processes cannot: take it out of the table: %s", name)
			}
		default:
			if reason == "" {
				t.Errorf("%v: %s\n%s", spec.State, name, spec.FailureMessage())
			}
		}
		t.Logf("%-8v %-8s %s", spec.State, spec.RunTime.Round(1e8), name)
	}
	if rows[""] < 60 {
		t.Errorf("%d specs were to pass, and there were 60 and more", rows[""])
	}
	for _, row := range impossible {
		if rows[row.reason] == 0 {
			t.Errorf("no spec is called %q", row.specs)
		}
		t.Logf("%3d not possible: %s", rows[row.reason], row.reason)
	}
	t.Logf("%d passed, of %d that can", passed, rows[""])
}
