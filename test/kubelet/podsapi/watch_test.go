// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func message(t *testing.T, what Type, pod *corev1.Pod) []byte {
	t.Helper()
	m := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(what))
	m = protowire.AppendVarint(protowire.AppendTag(m, 9, protowire.VarintType), 7) // a field of a later version
	if pod != nil {
		data, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		m = protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), data)
	}
	return m
}

func TestWatchTellsWhatTheServerSends(t *testing.T) {
	dir, err := os.MkdirTemp("", "pa") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	sends := [][]byte{message(t, Added, pod), message(t, Synced, nil), message(t, Deleted, pod)}
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "v1alpha1.Pods", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "WatchPods", ServerStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(new([]byte)); err != nil {
				return err
			}
			for _, m := range sends {
				if err := stream.SendMsg(&m); err != nil {
					return err
				}
			}
			return nil
		},
	}}}, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	defer func() {
		server.Stop()
		<-served
	}()

	var got []Type
	err = Watch(context.Background(), socket, func(what Type, p *corev1.Pod) {
		got = append(got, what)
		if (p == nil) != (what == Synced) || p != nil && (p.UID != "uid" || p.Status.Phase != corev1.PodRunning) {
			t.Errorf("%v came with the pod %v", what, p)
		}
	})
	if err == nil || !slices.Equal(got, []Type{Added, Synced, Deleted}) {
		t.Errorf("told %v, ended with %v", got, err)
	}
}

func TestMalformedEventsAreErrors(t *testing.T) {
	whole := message(t, Added, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}})
	for _, m := range [][]byte{{0x80}, whole[:len(whole)-1], protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{0xff})} {
		if what, pod, err := decode(m); err == nil {
			t.Errorf("%x is taken for %v %v", m, what, pod)
		}
	}
}
