// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package runtime is a hostile container runtime, for tests: the texts of package hostile in its
// names, labels and errors attack every program that prints them.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1" // registers the messages

	"github.com/evented-pleg/evented-pleg/internal/hostile"
)

// Runtime is a runtime between a fake runtime and its clients, and puts venom into the texts of
// every answer and error.
type Runtime struct {
	// Behind is the fake runtime.
	Behind *grpc.ClientConn
	// IDs are poisoned as well, so the client has to send venom back.
	IDs bool

	n atomic.Int64
}

// Server returns a server of the runtime, which serves nothing yet.
func (h *Runtime) Server() *grpc.Server {
	return grpc.NewServer(grpc.UnknownServiceHandler(h.forward))
}

// forward passes a call on, and poisons its answers.
func (h *Runtime) forward(_ any, server grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(server)
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	if err != nil {
		return status.Error(codes.Unimplemented, "no "+full+hostile.Venom)
	}
	call := found.(protoreflect.MethodDescriptor)
	message := func(d protoreflect.MessageDescriptor) proto.Message {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			panic(err)
		}
		return kind.New().Interface()
	}
	desc := grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	client, err := h.Behind.NewStream(server.Context(), &desc, full, grpc.MaxCallRecvMsgSize(1<<30))
	if err != nil {
		return h.fail(err)
	}
	request := message(call.Input())
	if err := server.RecvMsg(request); err != nil {
		return err
	}
	texts(request.ProtoReflect(), func(_ protoreflect.Name, s string) string {
		clean, _, _ := strings.Cut(s, hostile.Venom)
		return clean
	})
	if err := errors.Join(client.SendMsg(request), client.CloseSend()); err != nil {
		return h.fail(err)
	}
	for {
		answer := message(call.Output())
		err := client.RecvMsg(answer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return h.fail(err)
		}
		texts(answer.ProtoReflect(), h.poison)
		if err := server.SendMsg(answer); err != nil {
			return err
		}
	}
}

// identifies names the fields by which a client knows things again.
var identifies = regexp.MustCompile(`(^|_)u?id$|^image`)

// poison returns a text with venom. Some texts get too much venom for any line.
func (h *Runtime) poison(field protoreflect.Name, s string) string {
	if s == "" || identifies.MatchString(string(field)) && !h.IDs {
		return s
	}
	if h.n.Add(1)%50 == 0 {
		return s + hostile.Venom + hostile.Filler
	}
	return s + hostile.Venom
}

func (h *Runtime) fail(err error) error {
	return status.Error(status.Code(err), status.Convert(err).Message()+hostile.Venom+hostile.Filler)
}

// Call makes a call of a hostile client. The name of its method has as much venom as a header may
// have: HTTP/2 refuses control characters of ASCII there. The method must be unknown to the server.
func Call(ctx context.Context, conn *grpc.ClientConn) error {
	method := "/runtime.v1.RuntimeService/evil\u009b31m\u202e" + hostile.Filler[:2*hostile.MostFill]
	err := conn.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty))
	if status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("a method that nobody has: %w", err)
	}
	return nil
}

// texts replaces every text in a message; those of maps by the map's name. Keys stay.
func texts(m protoreflect.Message, replace func(field protoreflect.Name, s string) string) {
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text := d.Kind() == protoreflect.StringKind
		switch {
		case d.IsMap():
			entries := v.Map()
			entries.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if d.MapValue().Kind() == protoreflect.StringKind &&
					!strings.HasPrefix(k.String(), "evented-pleg.io/") &&
					k.String() != "io.kubernetes.pod.uid" {
					entries.Set(k, protoreflect.ValueOfString(replace(d.Name(), v.String())))
				}
				return true
			})
		case d.IsList() && text:
			for i := range v.List().Len() {
				v.List().Set(i, protoreflect.ValueOfString(replace(d.Name(), v.List().Get(i).String())))
			}
		case d.IsList() && d.Message() != nil:
			for i := range v.List().Len() {
				texts(v.List().Get(i).Message(), replace)
			}
		case text:
			m.Set(d, protoreflect.ValueOfString(replace(d.Name(), v.String())))
		case d.Message() != nil:
			texts(v.Message(), replace)
		}
		return true
	})
}
