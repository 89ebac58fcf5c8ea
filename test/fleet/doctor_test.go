// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// examinedEvery is how often the watches of the test examine their runtimes.
const examinedEvery = "10s"

// examineOften makes the watches of a kustomization examine their runtimes within the test's time.
const examineOften = `- target: {kind: DaemonSet}
  patch: |-
    - {op: test, path: /spec/template/spec/containers/0/args/4, value: --doctor-every=10m}
    - {op: replace, path: /spec/template/spec/containers/0/args/4, value: --doctor-every=` + examinedEvery + `}
`

// examinations is what the verdict says of them.
type examinations struct {
	Sick, Well, Without int
	Findings            []struct {
		ID, Grade string
		Now       int
		Examples  []string
	}
	Unseen []struct {
		Area  string
		Nodes int
	} `json:"not_looked_at"`
}

// doctor checks that the examinations find the statistics of n1 hanging, on n1 alone, that the
// verdict gathers them, and that the log of n1's watch has the evidence. On every node doctor says
// what it cannot see from inside the pod.
func (c *cluster) doctor(pods []corev1.Pod) {
	var d examinations
	c.await("doctor is on all nodes, and finds what hangs on n1 alone", func(ctx context.Context) error {
		d = c.examinations(ctx)
		if d.Sick == 0 || d.Sick+d.Well != len(c.nodes) || d.Without != 0 {
			return fmt.Errorf("%+v", d)
		}
		return d.only("n1")
	})
	unseen := make(map[string]int)
	for _, u := range d.Unseen {
		unseen[u.Area] = u.Nodes
	}
	for _, area := range []string{"processes", "clients", "disks", "kubelet"} {
		if unseen[area] != len(c.nodes) {
			c.t.Errorf(
				"%s were not looked at on %d nodes, want %d: a pod cannot see them",
				area,
				unseen[area],
				len(c.nodes),
			)
		}
	}
	for _, p := range pods {
		log := c.kubectl("--namespace", namespace, "logs", p.Name)
		told := strings.Contains(log, `"type":"Doctor"`) &&
			strings.Contains(log, `"node":"`+p.Spec.NodeName+`"`)
		evidence := strings.Contains(log, "ContainerStats is not answered")
		if !told || evidence != (p.Spec.NodeName == "n1") {
			c.t.Errorf(
				"the log of the watch on %s: an examination %v, evidence %v",
				p.Spec.NodeName,
				told,
				evidence,
			)
		}
	}
	c.step(fmt.Sprintf("the verdict gathers doctor: %+v", d))
}

// examinations asks for the verdict.
func (c *cluster) examinations(ctx context.Context) examinations {
	out, complaints, err := c.run(
		ctx,
		c.Bench,
		"fleet",
		"verdict",
		"--prometheus",
		prometheusURL,
		"--window",
		"5m",
		"-o",
		"json",
	)
	c.do("fleet verdict: "+complaints, err)
	var verdict struct{ Doctor examinations }
	c.do("read the verdict", json.Unmarshal([]byte(out), &verdict))
	return verdict.Doctor
}

// ofTheMachine are findings about the machine that the nodes of the test share.
var ofTheMachine = []string{"pressure", "call-slow", "disk-full"}

// only reports an error unless calls or containers hang now on one node, and nothing else is wrong
// on any. How many calls hang depends on what runs there.
func (d examinations) only(node string) error {
	hangs := false
	for _, f := range d.Findings {
		if f.Grade != "sick" || f.Now == 0 || slices.Contains(ofTheMachine, f.ID) {
			continue
		}
		hangs = f.ID == "call-hangs" || f.ID == "item-hangs"
		if !hangs || f.Now != 1 || f.Examples[0] != node {
			return fmt.Errorf("doctor has found %+v, want what hangs on %s alone", f, node)
		}
	}
	if !hangs {
		return fmt.Errorf("doctor has found nothing that hangs: %+v", d)
	}
	return nil
}
