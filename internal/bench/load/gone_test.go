// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// leaver is a connection to a runtime that has the image, and refuses all other calls while it is
// away.
type leaver struct {
	grpc.ClientConnInterface
	back atomic.Bool
}

func (l *leaver) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	answer, asked := reply.(*runtimeapi.ImageStatusResponse)
	if asked {
		answer.Image = &runtimeapi.Image{Id: image}
		return nil
	}
	if l.back.Load() {
		return status.Error(codes.Internal, "no space left")
	}
	return status.Error(codes.Unavailable, "connection refused")
}

// onLeaver is a driver on such a runtime, which is gone after a time.
func onLeaver(l *leaver, onGone func(*load.Gone)) *load.Driver {
	return load.New(load.Config{
		Conn:      l,
		RunID:     "t",
		Pods:      20,
		Image:     image,
		GoneAfter: 15 * time.Second,
		OnGone:    onGone,
	})
}

// TestRuntimeThatIsGone ends the work soon: each call was repeated for half a minute, and each pod
// ten times, which made five minutes.
func TestRuntimeThatIsGone(t *testing.T) {
	for name, work := range map[string]func(context.Context, *load.Driver) error{
		"setup": func(ctx context.Context, d *load.Driver) error { return d.Setup(ctx) },
		"run": func(ctx context.Context, d *load.Driver) error {
			d.Run(ctx, time.Hour)
			return d.Refill(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []error
				d := onLeaver(new(leaver), func(err *load.Gone) { told = append(told, err) })
				begun := time.Now()
				err := work(t.Context(), d)
				if took := time.Since(begun); took < 15*time.Second || took > 17*time.Second {
					t.Errorf("it took %v", took)
				}
				gone, ok := errors.AsType[*load.Gone](err)
				if !ok || status.Code(gone.Last) != codes.Unavailable {
					t.Errorf("%v, want that the runtime is gone, and the last error", err)
				}
				if len(told) != 1 || told[0] != error(gone) {
					t.Errorf("it was told %v, want it once", told)
				}
			})
		})
	}
}

// TestRuntimeThatRestarts is not gone: an answer of its own, a failure as well, ends the time.
func TestRuntimeThatRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(leaver)
		d := onLeaver(l, func(err *load.Gone) { t.Error(err) })
		ctx, cancel := context.WithCancel(t.Context())
		var flaps sync.WaitGroup
		flaps.Go(func() {
			for bench.Sleep(ctx, 10*time.Second) == nil {
				l.back.Store(!l.back.Load())
			}
		})
		d.Run(ctx, 2*time.Minute)
		cancel()
		flaps.Wait()
	})
}

// TestQuietLoad: a load that changes nothing asks a runtime only while the connection is lost, and
// so finds that it is gone as soon as any load does.
func TestQuietLoad(t *testing.T) {
	for _, test := range []struct {
		name      string
		connected bool
		took      time.Duration
		told      int
	}{
		{"connected", true, time.Minute, 0},
		{"gone", false, 15 * time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				d := load.New(load.Config{
					Conn:      new(leaver),
					RunID:     "t",
					Image:     image,
					GoneAfter: 15 * time.Second,
					OnGone:    func(*load.Gone) { told++ },
					Connected: func() bool { return test.connected },
				})
				begun := time.Now()
				d.Run(t.Context(), time.Minute)
				if took := time.Since(begun); took < test.took || took > test.took+2*time.Second || told != test.told {
					t.Errorf("it took %v and told %d times, want %v and %d", took, told, test.took, test.told)
				}
			})
		})
	}
}
