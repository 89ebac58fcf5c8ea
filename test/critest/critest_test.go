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
	{
		`Mount Propagation|support (non-)?recursive readonly mounts|starting container with volume`,
		"lists a mounted directory",
	},
	{`NamespaceOption|NamespaceMode_(POD|NODE)`, "reads namespaces in /proc"},
	{
		`sysctls|MaskedPaths|ReadonlyPaths|DNS config|set hostname`,
		"reads a file, or the kernel's state, in the container",
	},
	{`capabilit|Privileged is true`, "changes the network by a program"},
	{`SeccompProfilePath|NoNewPrivs`, "needs the kernel's seccomp, or a setuid program"},
	{`OOMKilled`, "fills memory"},
	{`execSync with timeout`, "looks for processes"},
	{`Streaming`, "there is no streaming server: Exec, Attach and PortForward are Unimplemented"},
	{`port mapping|Multiple Containers.*network`, "there is no web server behind a pod's IP"},
	{`Privileged is false`, "any refused program satisfies it"},
	{`support RunAs|support SupplementalGroups|SupplementalGroupsPolicy`, "runs id in the container"},
	{
		`pulled from different registries|Uid\|Username|3 repoTags|removing image (by one tag|from one registry)`,
		"needs images with users, or with several names",
	},
	{
		`reject a recursive readonly|UserNamespaces.*should fail`,
		"wants a refusal: the request's features are not checked",
	},
	{`support container log$|reopening|execSync \[|ReadOnlyRootfs`, "needs a whole shell"},
}

// vacuous are those of the table that pass without what they test.
var vacuous = regexp.MustCompile(
	`Privileged is false|blocks setting hostname with SYS_ADMIN|HostNetwork is false|support non-recursive readonly mounts`,
)

// outcome keeps ginkgo from judging.
type outcome struct{}

func (outcome) Fail() {}

func TestValidation(t *testing.T) {
	rt, err := fakeruntime.New(fakeruntime.Config{})
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
				t.Errorf(
					"passes, though a runtime without processes cannot: take it out of the table: %s",
					name,
				)
			}
		default:
			if reason == "" {
				t.Errorf("%v: %s\n%s", spec.State, name, spec.FailureMessage())
			}
		}
		t.Logf("%-8v %-8s %s", spec.State, spec.RunTime.Round(1e8), name)
	}
	if rows[""] < 38 {
		t.Errorf("%d specs were to pass, and there were 38", rows[""])
	}
	for _, row := range impossible {
		if rows[row.reason] == 0 {
			t.Errorf("no spec is called %q", row.specs)
		}
		t.Logf("%3d not possible: %s", rows[row.reason], row.reason)
	}
	t.Logf("%d passed, of %d that can", passed, rows[""])
}
