// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile is a container runtime that attacks whoever prints what it says, for tests: its
// names, labels and errors command a terminal, forge lines of a log and are enormous. [Clean] says
// whether a text was left unharmed.
package hostile

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

	"github.com/evented-pleg/evented-pleg/internal/printable"
)

const (
	// venom sets the title, clears the screen, forges a line and a link, and turns the direction of
	// writing.
	venom = "\x1b]0;owned\a\x1b[2J\r\n" + forged + "\u009b31m\x7f\x1b]8;;http://evil\a\u202e"
	// forged begins a line that the runtime wants to have in a log.
	forged = "E1125 12:00:00 FORGED"
	// mostFill is how much of a long name may be printed.
	mostFill = 5000
)

// filler is what a hostile runtime makes some of its texts long with.
var filler = strings.Repeat("A", 210_000)

// Runtime is a runtime between a fake one and its clients, which puts venom into the texts of every
// answer and error.
type Runtime struct {
	// Behind is the fake one.
	Behind *grpc.ClientConn
	// IDs are poisoned as well, so that the client has to send venom back.
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
		return status.Error(codes.Unimplemented, "no "+full+venom)
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
		clean, _, _ := strings.Cut(s, venom)
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

// poison returns a text with venom, one of many with so much that no line holds it.
func (h *Runtime) poison(field protoreflect.Name, s string) string {
	if s == "" || identifies.MatchString(string(field)) && !h.IDs {
		return s
	}
	if h.n.Add(1)%50 == 0 {
		return s + venom + filler
	}
	return s + venom
}

func (h *Runtime) fail(err error) error {
	return status.Error(status.Code(err), status.Convert(err).Message()+venom+filler)
}

// Call makes a call of a hostile client. The name of its method has the venom that a header may
// have: HTTP/2 refuses control characters of ASCII there. A server must not know it.
func Call(ctx context.Context, conn *grpc.ClientConn) error {
	method := "/runtime.v1.RuntimeService/evil\u009b31m\u202e" + filler[:2*mostFill]
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
				if d.MapValue().Kind() == protoreflect.StringKind && !strings.HasPrefix(k.String(), "evented-pleg.io/") && k.String() != "io.kubernetes.pod.uid" {
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

// Clean returns an error if a text has a character that a terminal obeys, a forged line or a text
// of enormous length.
func Clean(text string) error {
	if n := printable.Count(text); n > 0 {
		i := strings.IndexFunc(text, func(r rune) bool { return printable.Count(string(r)) > 0 })
		return fmt.Errorf("%d characters that are not printable, the first in %q", n, text[max(0, i-100):min(len(text), i+100)])
	}
	if strings.HasPrefix(text, forged) || strings.Contains(text, "\n"+forged) {
		return errors.New("a forged line")
	}
	if strings.Contains(text, filler[:mostFill]) {
		return errors.New("an enormous text")
	}
	return nil
}
