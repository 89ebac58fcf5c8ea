// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command bill writes what a program is made of: a CycloneDX bill of materials with the hash and
// the licence of every module, and the texts of the licences. It reads the modules from the program
// and the texts from the module cache. A module without a known licence, or with one that forbids
// what a release does, is an error. The script release calls it. Without files it checks only, and
// then leaves out the modules of the workspace. The files depend on the arguments alone.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// allowed are the licences under which a release may be given away with their texts.
var allowed = []string{
	"Apache-2.0",
	"BSD-2-Clause",
	"BSD-3-Clause",
	"ISC",
	"MIT",
	"MPL-2.0",
	"Unicode-DFS-2016",
}

// licenceFile matches the files of a module that a copy of it must come with.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// development is the version of a module of the workspace in which a program was built.
const development = "(devel)"

// bill is what the command is asked for.
type bill struct {
	// version is that of the program, empty for a check; at is the time of the release.
	version string
	at      time.Time
	// cache is GOMODCACHE, goroot GOROOT.
	cache, goroot string
}

// part is a module of the program, or Go's standard library.
type part struct {
	path, version string
	// sum is the module's hash in hexadecimal, of the kind h1, a SHA-256; empty for the library.
	sum string
	// ids are SPDX identifiers, sorted; texts are the files by name.
	ids   []string
	names []string
	texts map[string][]byte
}

func main() {
	var b bill
	flag.StringVar(&b.version, "version", "", "version of the program")
	flag.StringVar(&b.cache, "cache", "", "GOMODCACHE")
	flag.StringVar(&b.goroot, "goroot", "", "GOROOT")
	seconds := flag.Int64("time", 0, "Unix time of the release")
	materials := flag.String("sbom", "", "file for the bill of materials")
	texts := flag.String("licences", "", "file for the texts of the licences")
	flag.Parse()
	b.at = time.Unix(*seconds, 0).UTC()
	if err := b.write(flag.Arg(0), *materials, *texts); err != nil {
		fmt.Fprintln(os.Stderr, "bill:", err)
		os.Exit(1)
	}
}

func (b bill) write(program, materials, texts string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	parts, err := b.parts(info)
	if err != nil || materials == "" && texts == "" {
		return err
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	document, err := json.MarshalIndent(b.document(info, parts, sha256.Sum256(raw)), "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(materials, append(document, '\n'), 0o644),
		os.WriteFile(texts, licences(parts), 0o644))
}

// parts returns the standard library and the modules of others, with their licences.
func (b bill) parts(info *debug.BuildInfo) (parts []part, err error) {
	library := part{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}
	errs := []error{library.read(b.goroot)}
	parts = append(parts, library)
	for _, dep := range info.Deps {
		m := cmp.Or(dep.Replace, dep)
		if m.Version == development && b.version == "" {
			continue
		}
		escaped, wrong := module.EscapePath(m.Path)
		p := part{path: m.Path, version: m.Version}
		if p.sum, err = hexSum(m.Sum); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Path, err))
		}
		dir := filepath.Join(b.cache, filepath.FromSlash(escaped)+"@"+m.Version)
		errs = append(errs, wrong, p.read(dir))
		parts = append(parts, p)
	}
	return parts, errors.Join(errs...)
}

// hexSum returns the SHA-256 of an h1 sum in hexadecimal.
func hexSum(sum string) (string, error) {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return "", fmt.Errorf("its sum %q is not of the kind h1", sum)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(raw), err
}

// read reads the licence files in dir. A module of a repository with several has the repository's
// files, which its zip includes.
func (p *part) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	p.texts = make(map[string][]byte)
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		p.names = append(p.names, entry.Name())
		p.texts[entry.Name()] = text
		for _, match := range licensecheck.Scan(text).Match {
			if !slices.Contains(p.ids, match.ID) && !match.IsURL {
				p.ids = append(p.ids, match.ID)
			}
		}
	}
	slices.Sort(p.ids)
	if len(p.ids) == 0 {
		return fmt.Errorf("%s %s has no licence that is known: %q in %s", p.path, p.version, p.names, dir)
	}
	for _, id := range p.ids {
		if !slices.Contains(allowed, id) && !strings.HasPrefix(id, "GooglePatent") {
			return fmt.Errorf(
				"%s %s has the licence %s, which tools/bill does not allow",
				p.path,
				p.version,
				id,
			)
		}
	}
	return nil
}

// licences returns the texts of all parts, one after another.
func licences(parts []part) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "This program contains Go's standard library and %d modules of others. "+
		"Their licences follow.\n", len(parts)-1)
	for _, p := range parts {
		for _, name := range p.names {
			fmt.Fprintf(&out, "\n%s\n%s %s: %s (%s)\n%[1]s\n\n", strings.Repeat("=", 78), p.path, p.version,
				name, strings.Join(p.ids, ", "))
			out.Write(bytes.TrimSpace(p.texts[name]))
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// document returns the bill in CycloneDX 1.6.
func (b bill) document(info *debug.BuildInfo, parts []part, program [sha256.Size]byte) any {
	type object = map[string]any
	hash := func(sum string) []object {
		return []object{{"alg": "SHA-256", "content": sum}}
	}
	url := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	main := object{
		"bom-ref":  url(info.Main.Path, b.version),
		"type":     "application",
		"name":     info.Main.Path,
		"version":  b.version,
		"purl":     url(info.Main.Path, b.version),
		"hashes":   hash(hex.EncodeToString(program[:])),
		"licenses": []object{{"license": object{"id": "Apache-2.0"}}},
	}
	var components []object
	var refs []string
	for _, p := range parts {
		c := object{
			"bom-ref": url(p.path, p.version),
			"type":    "library",
			"name":    p.path,
			"version": p.version,
			"purl":    url(p.path, p.version),
		}
		if p.sum != "" {
			c["hashes"] = hash(p.sum)
		}
		var list []object
		for _, id := range p.ids {
			if strings.HasPrefix(id, "GooglePatent") { // no SPDX identifier
				list = append(list, object{"license": object{"name": id}})
			} else {
				list = append(list, object{"license": object{"id": id}})
			}
		}
		c["licenses"] = list
		components = append(components, c)
		refs = append(refs, url(p.path, p.version))
	}
	return object{
		"bomFormat":    "CycloneDX",
		"specVersion":  "1.6",
		"version":      1,
		"metadata":     object{"timestamp": b.at.Format(time.RFC3339), "component": main},
		"components":   components,
		"dependencies": []object{{"ref": main["bom-ref"], "dependsOn": refs}},
	}
}
