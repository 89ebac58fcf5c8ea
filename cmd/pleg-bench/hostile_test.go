// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evented-pleg/evented-pleg/internal/hostile"
	"github.com/evented-pleg/evented-pleg/internal/hostile/runtime"
)

// serveHostile serves a hostile runtime on a socket, before the runtime on another one.
func serveHostile(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := grpc.NewClient("unix:"+ts.MkAbs(args[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	h := runtime.Runtime{Behind: conn, IDs: len(args) > 2}
	server := h.Server()
	serve(ts, args[0], server.Serve, func() {
		server.Stop()
		_ = conn.Close()
	})
}

// call is a hostile client's.
func call(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := grpc.NewClient("unix:"+ts.MkAbs(args[0]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	ts.Check(runtime.Call(context.Background(), conn))
}

// clean checks that the last output, or files below folders, have none of a hostile runtime's
// venom.
func clean(ts *testscript.TestScript, _ bool, args []string) {
	check := func(name, text string) {
		if err := hostile.Clean(text); err != nil {
			ts.Fatalf("%s: %v", name, err)
		}
	}
	if len(args) == 0 {
		check("stdout", ts.ReadFile("stdout"))
		check("stderr", ts.ReadFile("stderr"))
		if ts.ReadFile("stdout")+ts.ReadFile("stderr") == "" {
			ts.Fatalf("nothing was printed")
		}
	}
	for _, dir := range args {
		files := 0
		ts.Check(filepath.WalkDir(ts.MkAbs(dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			files++
			raw, err := os.ReadFile(path)
			check(path, string(raw))
			return err
		}))
		if files == 0 {
			ts.Fatalf("%s: no file", dir)
		}
	}
}
