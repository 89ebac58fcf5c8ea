// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLifeOfCommands(t *testing.T) {
	for _, tt := range []struct {
		command string // split at spaces, | is a space within an argument
		want    Life
		fails   bool
	}{
		{command: "", want: Life{}},
		{command: "nginx -g daemon|off;", want: Life{}},
		{command: "sleep 5", want: After(5*time.Second, 0)},
		{command: "sleep 0", want: After(0, 0)},
		{command: "sleep 0.25", want: After(250*time.Millisecond, 0)},
		{command: "/bin/sleep 1m30s 7", want: After(90*time.Second, 7)},
		{command: "sleep infinity", want: Life{}},
		{command: "sleep inf 3", want: Life{}},
		{command: "exit 9", want: After(0, 9)},
		{command: "exit", want: After(0, 0)},
		{command: "true", want: After(0, 0)},
		{command: "/bin/false", want: After(0, 1)},
		{command: "/tool sleep 2s 4", want: After(2*time.Second, 4)},
		{command: "/tool exit 4", want: After(0, 4)},
		{command: "sh -c sleep|1;|exit|3", want: After(time.Second, 3)},
		{command: "bash -c exit|2;|sleep|9", want: After(0, 2)},
		{command: "sh -c ", want: After(0, 0)},
		{command: "sh script.sh", want: Life{}},
		{command: "sleep", fails: true},
		{command: "sleep abc", fails: true},
		{command: "sleep -1", fails: true},
		{command: "sleep 1e300", fails: true},
		{command: "sleep NaN", fails: true},
		{command: "sleep 1 256", fails: true},
		{command: "sleep 1 2 3", fails: true},
		{command: "exit -1", fails: true},
		{command: "sh -c sleep|x", fails: true},
		{command: "sh -c sleep|1;|nginx;|exit|3", want: Life{}},
		{command: "sh -c sleep|1|&&|exit|3", want: Life{}},
		{command: "echo sleep 1", want: After(0, 0)},
	} {
		var argv []string
		if tt.command != "" {
			for arg := range strings.SplitSeq(tt.command, " ") {
				argv = append(argv, strings.ReplaceAll(arg, "|", " "))
			}
		}
		got, err := runAhead(argv)
		if tt.fails != (err != nil) || err == nil && got.life != tt.want {
			t.Errorf("%q: %+v, %v; want %+v", argv, got, err, tt.want)
		}
	}
}

func TestLifeOfAnnotations(t *testing.T) {
	for _, tt := range []struct {
		lifetime, code, command string
		want                    Life
		fails                   string
	}{
		{lifetime: "3s", want: After(3*time.Second, 0)},
		{lifetime: "3", code: "5", want: After(3*time.Second, 5)},
		{code: "5", command: "sleep 1", want: After(time.Second, 5)},
		{lifetime: "2s", command: "sleep 1 9", want: After(2*time.Second, 0)},
		{lifetime: "infinity", command: "sleep 1", want: Life{}},
		{lifetime: "2s", command: "sleep soon", want: After(2*time.Second, 0)}, // the annotation counts
		{lifetime: "soon", fails: AnnotationLifetime},
		{lifetime: "-3s", fails: AnnotationLifetime},
		{code: "300", fails: AnnotationExitCode},
		{command: "sleep soon", fails: "command"},
	} {
		annotations := map[string]string{}
		if tt.lifetime != "" {
			annotations[AnnotationLifetime] = tt.lifetime
		}
		if tt.code != "" {
			annotations[AnnotationExitCode] = tt.code
		}
		got, err := programOf(&runtimeapi.ContainerConfig{Command: strings.Fields(tt.command), Annotations: annotations}, nil)
		switch {
		case tt.fails != "":
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%+v: %v", tt, err)
			}
		case err != nil || got.life != tt.want:
			t.Errorf("%+v: %+v, %v", tt, got, err)
		}
	}
}

// Any command is a possible life of a container, or an error.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"sleep 5 1", "sh -c\x00sleep 1; exit 3", "exit 255", "sleep 1e17", "bash\x00-c\x00sleep inf && exit 1", "a\x00sleep\x001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, argv := range [][]string{strings.Fields(s), strings.Split(s, "\x00"), {"sh", "-c", s}} {
			p, err := runAhead(argv)
			if err != nil {
				continue
			}
			life := p.life
			if err := life.validate(); err != nil {
				t.Errorf("%q: %+v: %v", argv, life, err)
			}
			if !life.Ends && life.For != 0 {
				t.Errorf("%q: %+v never ends after some time", argv, life)
			}
		}
	})
}
