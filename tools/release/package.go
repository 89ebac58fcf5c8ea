// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one entry of an archive. A folder has no data, and a name that ends with a slash.
type file struct {
	name string
	mode int64
	data []byte
}

// archive returns a tar of the files, which depends on them and the time alone.
func archive(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(f.name, "/") {
			kind = tar.TypeDir
		}
		header := &tar.Header{Typeflag: kind, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// compress returns data as gzip, without a time or a name.
func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// debian writes a Debian package of the program, its man pages and its licence, in the format of
// deb(5).
func (r release) debian(b binary, man map[string][]byte) error {
	data, err := os.ReadFile(b.file)
	if err != nil {
		return err
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	files := []file{{"./usr/bin/" + program, 0o755, data}, {"./usr/share/doc/" + program + "/copyright", 0o644, licence}}
	for _, name := range slices.Sorted(maps.Keys(man)) {
		page, err := compress(man[name])
		if err != nil {
			return err
		}
		files = append(files, file{"./usr/share/man/man1/" + name + ".gz", 0o644, page})
	}
	size, sums := 0, ""
	for _, f := range files {
		size += len(f.data)
		sums += fmt.Sprintf("%x  %s\n", md5.Sum(f.data), strings.TrimPrefix(f.name, "./"))
	}
	version := strings.Replace(strings.TrimPrefix(r.version, "v"), "-", "~", 1) // a pre-release sorts before its release
	control := fmt.Sprintf(`Package: %s
Version: %s
Architecture: %s
Maintainer: The Evented PLEG Authors <evented-pleg@example.invalid>
Installed-Size: %d
Section: admin
Priority: optional
Homepage: https://github.com/evented-pleg/evented-pleg
Description: diagnose the event stream of a container runtime
 pleg-bench watches the CRI event stream of containerd or CRI-O, says whether
 an agent may rely on it, and measures what that saves. It also serves a fake
 container runtime.
`, program, version, b.arch, (size+1023)/1024)
	members := []file{{name: "debian-binary", data: []byte("2.0\n")}}
	for name, content := range map[string][]file{
		"control.tar.gz": {{"./control", 0o644, []byte(control)}, {"./md5sums", 0o644, []byte(sums)}},
		"data.tar.gz":    withFolders(files),
	} {
		tar, err := archive(content, r.time)
		if err != nil {
			return err
		}
		if tar, err = compress(tar); err != nil {
			return err
		}
		members = append(members, file{name: name, data: tar})
	}
	slices.SortFunc(members[1:], func(a, b file) int { return strings.Compare(a.name, b.name) })
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, r.time.Unix(), 0, 0, "100644", len(m.data))
		deb.Write(m.data)
		if len(m.data)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("%s_%s_%s.deb", program, version, b.arch)), deb.Bytes(), 0o644)
}

// withFolders adds the folders of the files before them.
func withFolders(files []file) []file {
	folders := map[string]bool{}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.name)); dir != "."; dir = path.Dir(dir) {
			folders["./"+dir+"/"] = true
		}
	}
	out := []file{{name: "./", mode: 0o755}}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		out = append(out, file{name: dir, mode: 0o755})
	}
	return append(out, files...)
}
