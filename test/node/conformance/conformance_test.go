// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// A difference is a known difference of the fake from its real runtimes, in a step.
type difference struct {
	runtimes   []string
	step       string
	fake, real []string
}

// differences reads the table.
func differences(t *testing.T) (table []difference) {
	for line := range strings.Lines(read(t, "differences")) {
		line = strings.TrimSuffix(line, "\n")
		sign, rest, _ := strings.Cut(line, " ")
		switch last := len(table) - 1; sign {
		case "", "#":
		case "@":
			names, step, _ := strings.Cut(rest, ": ")
			table = append(table, difference{runtimes: strings.Fields(names), step: step})
		case "-":
			table[last].fake = append(table[last].fake, rest)
		case "+":
			table[last].real = append(table[last].real, rest)
		default:
			t.Fatalf("the table of differences has the line %q", line)
		}
	}
	return table
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := testkit.Must(os.ReadFile(filepath.Join("testdata", name+".txt")))(t)
	return string(text)
}

// without returns the lines without the given, each of which must be there. A final … stands for
// all lines with this beginning.
func without(t *testing.T, lines, given []string) []string {
	t.Helper()
	lines = slices.Clone(lines)
	for _, g := range given {
		before := len(lines)
		if begin, several := strings.CutSuffix(g, "…"); several {
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, begin) })
		} else if at := slices.Index(lines, g); at >= 0 {
			lines = slices.Delete(lines, at, at+1)
		}
		if len(lines) == before {
			t.Errorf("the known difference %q is not there any more", g)
		}
	}
	return lines
}

// TestFakeIsWhatItStandsFor runs the script on the fake with each profile: the transcript must
// equal the real runtime's but for the differences of the table, all of which must still exist.
func TestFakeIsWhatItStandsFor(t *testing.T) {
	table := differences(t)
	for _, r := range runtimes.All() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			real := testkit.Must(Parse(read(t, r.Name)))(t)
			var fake Transcript
			// Each profile waits for what must not come, here in virtual time.
			synctest.Test(t, func(t *testing.T) { fake = recordFake(t, r) })
			for _, d := range table {
				if !slices.Contains(d.runtimes, r.Name) {
					continue
				}
				at := slices.IndexFunc(real, func(s Step) bool { return s.Name == d.step })
				fake[at].Lines = without(t, fake[at].Lines, d.fake)
				real[at].Lines = without(t, real[at].Lines, d.real)
			}
			want, got := strings.Split(real.String(), "\n"), strings.Split(fake.String(), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf(
					"the profile %s differs from %s %s (-real +fake):\n%s",
					r.Profile,
					r.Family,
					r.Version,
					diff,
				)
			}
		})
	}
}

func recordFake(t *testing.T, r runtimes.Runtime) Transcript {
	t.Helper()
	client := crikit.InBubble(t, r.Profile, 1)
	client.Namespace, client.Image = "conformance", "example.local/tool:1"
	pull := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: client.Image}}
	testkit.Must(client.Images().PullImage(t.Context(), pull))(t)
	got, err := Record(t.Context(), client, r.Traits, 250*time.Millisecond)
	if err != nil {
		t.Fatalf("%v, after\n%s", err, got)
	}
	return got
}

// TestStreamingListsByTheNewestCRI reads the fake's streaming lists by the CRI's own client. The
// root module is also built against a CRI without them, and describes them itself.
func TestStreamingListsByTheNewestCRI(t *testing.T) {
	c, ctx := crikit.OnFake(t, "containerd-2", 1), t.Context()
	pod := testkit.Must(c.RunPod(ctx, "u", "p", 0))(t)
	id := testkit.Must(c.CreateAndStart(ctx, pod, crikit.Spec{Name: "c"}))(t)
	sandboxes, err := c.StreamPodSandboxes(
		ctx,
		&runtimeapi.StreamPodSandboxesRequest{Filter: &runtimeapi.PodSandboxFilter{}},
	)
	count(t, "sandboxes", 1, sandboxes, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
	for filter, want := range map[string]int{"": 1, id: 1, missing: 0} {
		containers, err := c.StreamContainers(
			ctx,
			&runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: filter}},
		)
		count(t, "containers", want, containers, err, (*runtimeapi.StreamContainersResponse).GetContainers)
	}
	stats, err := c.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{})
	count(t, "container stats", 1, stats, err, (*runtimeapi.StreamContainerStatsResponse).GetContainerStats)
	podStats, err := c.StreamPodSandboxStats(ctx, &runtimeapi.StreamPodSandboxStatsRequest{})
	count(t, "sandbox stats", 1, podStats, err, (*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	images, err := c.Images().StreamImages(ctx, &runtimeapi.StreamImagesRequest{})
	count(t, "images", 2, images, err, (*runtimeapi.StreamImagesResponse).GetImages)
}

// count reads a stream to its end and compares the number of its items.
func count[Batch, Item any](
	t *testing.T,
	what string,
	want int,
	stream grpc.ServerStreamingClient[Batch],
	err error,
	items func(*Batch) []Item,
) {
	t.Helper()
	got := 0
	for err == nil {
		var batch *Batch
		if batch, err = stream.Recv(); err == nil {
			got += len(items(batch))
		}
	}
	if !errors.Is(err, io.EOF) || got != want {
		t.Errorf("%s: %d, want %d; %v", what, got, want, err)
	}
}
