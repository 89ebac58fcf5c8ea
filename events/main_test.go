// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// TestMain keeps the log of thousands of virtual outages out of the output, and looks for
// goroutines left behind outside of bubbles.
func TestMain(m *testing.M) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for k, v := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(k, v); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(discard{})
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
