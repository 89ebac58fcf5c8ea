// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// view is how a page is looked at.
type view struct {
	width int
	dark  bool
}

func (v view) String() string {
	return fmt.Sprintf("%d px, %s", v.width, map[bool]string{false: "light", true: "dark"}[v.dark])
}

var views = []view{{375, false}, {375, true}, {1400, false}, {1400, true}}

// viewBound is how long one look may take.
const viewBound = 30 * time.Second

// leastInk is how many pixels of a chart must have a color: a short line has so many.
const leastInk = 50

// browser is a Chromium and its profile.
type browser struct{ path, profile string }

// run starts the Chromium, which can reach nothing but files, and returns its output and its log.
func (b browser) run(ctx context.Context, v view, args ...string) (out, log []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, viewBound)
	defer cancel()
	scheme := map[bool]int{true: 0, false: 1}[v.dark]
	cmd := exec.CommandContext(ctx, b.path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir=" + b.profile,
		"--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--allow-file-access-from-files",
		"--enable-logging=stderr", "--virtual-time-budget=10000", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme),
	}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w\n%s", b.path, err, stderr.Bytes())
	}
	return stdout.Bytes(), stderr.Bytes(), nil
}

// seen is what the page tells of itself; see look.js.
type seen struct {
	Width, Wanted int
	Wide          []string
	Charts        []struct {
		ID    string
		Inked int
		Text  string
	}
	Bands     int
	Faint     []string
	Dark      bool
	Requested []string
}

//go:embed look.js
var lookScript string

// frame is a page that holds a report in a frame of some width, evaluates look.js there, and shows
// the result.
const frame = `<!doctype html><iframe width=%d height=900 style="border:0" src="report.html"></iframe><pre></pre><script>
document.querySelector("iframe").onload = async e => {
  document.querySelector("pre").textContent = JSON.stringify(await e.target.contentWindow.eval(%s));
};
</script>`

var (
	shown   = regexp.MustCompile(`<pre>(\{.*\})</pre>`)
	console = regexp.MustCompile(`(?m)^.*CONSOLE.*$`)
	unquote = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
)

// look opens a page in a view and says what is wrong with it.
func (b browser) look(ctx context.Context, p page, v view, picture bool) error {
	script, err := json.Marshal(lookScript)
	if err != nil {
		return err
	}
	holder := filepath.Join(p.path, "frame.html")
	if err := os.WriteFile(holder, fmt.Appendf(nil, frame, v.width, script), 0o644); err != nil {
		return err
	}
	defer os.Remove(holder)
	out, log, err := b.run(ctx, v, "--dump-dom", "file://"+holder)
	if err != nil {
		return err
	}
	found := shown.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("the page was not measured:\n%s", log)
	}
	var s seen
	if err := json.Unmarshal([]byte(unquote.Replace(string(found[1]))), &s); err != nil {
		return err
	}
	errs := s.judge(p, v)
	for _, line := range console.FindAllString(string(log), -1) {
		errs = append(errs, errors.New(line))
	}
	if picture {
		name := filepath.Join(p.path, strings.ReplaceAll(v.String(), ", ", "-")+".png")
		_, _, err = b.run(ctx, v, "--screenshot="+name, fmt.Sprintf("--window-size=%d,3000", v.width), "file://"+filepath.Join(p.path, "report.html"))
	}
	return errors.Join(append(errs, err)...)
}

// judge returns what is wrong with what was seen.
func (s seen) judge(p page, v view) (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Width != v.width || s.Wanted > s.Width {
		fail("the page is %d pixels wide in a window of %d; too wide: %s", s.Wanted, s.Width, strings.Join(s.Wide, ", "))
	}
	if s.Dark != v.dark {
		fail("the ground is dark: %v", s.Dark)
	}
	drawn := 0
	for _, c := range s.Charts {
		switch {
		case c.Inked >= leastInk:
			drawn++
		case c.Text != "nothing was measured":
			fail("the chart %s is not drawn: %d of its pixels have a color", c.ID, c.Inked)
		}
	}
	if drawn < p.charts {
		fail("%d charts are drawn, want %d", drawn, p.charts)
	}
	if p.bands != (s.Bands > 0) {
		fail("%d spans of states are shown", s.Bands)
	}
	for _, f := range s.Faint {
		fail("hard to read: %s", f)
	}
	for _, r := range s.Requested {
		fail("asks for %s", r)
	}
	return errs
}
