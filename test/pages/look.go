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

// widths are those of a phone's and a desk's window.
var widths = []int{375, 1400}

// themes are light and dark, as Chromium numbers them.
var themes = map[string]int{"light": 1, "dark": 0}

// viewBound is how long a look may take.
const viewBound = time.Minute

// leastInk is how many pixels of a chart must have a color: a short line has so many.
const leastInk = 50

// browser is a Chromium and its profile.
type browser struct{ path, profile string }

// run starts the Chromium, which can reach nothing but files, and returns its output and its log.
func (b browser) run(ctx context.Context, theme string, args ...string) (out, log []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, viewBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir=" + b.profile,
		"--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--allow-file-access-from-files",
		"--enable-logging=stderr", "--virtual-time-budget=10000", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", themes[theme]),
	}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w\n%s", b.path, err, stderr.Bytes())
	}
	return stdout.Bytes(), stderr.Bytes(), nil
}

// seen is the page's own report; see look.js.
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

// frames is a page that holds a report in frames of all widths, evaluates look.js in each, and
// shows the results.
const frames = `<!doctype html><pre></pre><script>
Promise.all(%s.map(width => new Promise(done => {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width, height: 900, src: "report.html", style: "border: 0"});
  frame.onload = async () => done(await frame.contentWindow.eval(%s));
  document.body.append(frame);
}))).then(all => { document.querySelector("pre").textContent = JSON.stringify(all); });
</script>`

var (
	shown   = regexp.MustCompile(`<pre>(\[.*\])</pre>`)
	console = regexp.MustCompile(`(?m)^.*CONSOLE.*$`)
	unquote = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
)

// look opens a page and returns what is wrong with it.
func (b browser) look(ctx context.Context, p page, theme string, pictures bool) error {
	script, err := json.Marshal(lookScript)
	if err != nil {
		return err
	}
	all, err := json.Marshal(widths)
	if err != nil {
		return err
	}
	holder := filepath.Join(p.path, "frames.html")
	if err := os.WriteFile(holder, fmt.Appendf(nil, frames, all, script), 0o644); err != nil {
		return err
	}
	defer os.Remove(holder)
	out, log, err := b.run(ctx, theme, "--dump-dom", "file://"+holder)
	if err != nil {
		return err
	}
	found := shown.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("the page was not measured:\n%s", log)
	}
	var views []seen
	if err := json.Unmarshal([]byte(unquote.Replace(string(found[1]))), &views); err != nil {
		return err
	}
	var errs []error
	for i, s := range views {
		errs = append(errs, s.judge(p, widths[i], theme == "dark")...)
	}
	for _, line := range console.FindAllString(string(log), -1) {
		errs = append(errs, errors.New(line))
	}
	for _, width := range widths {
		if pictures {
			_, _, err := b.run(ctx, theme, fmt.Sprintf("--screenshot=%s/%d-%s.png", p.path, width, theme),
				fmt.Sprintf("--window-size=%d,3000", width), "file://"+filepath.Join(p.path, "report.html"))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// judge returns what is wrong with what was seen.
func (s seen) judge(p page, width int, dark bool) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%d px: "+format, append([]any{width}, args...)...))
	}
	if s.Width != width || s.Wanted > s.Width {
		fail("the page is %d pixels wide in a window of %d; too wide: %s", s.Wanted, s.Width, strings.Join(s.Wide, ", "))
	}
	if s.Dark != dark {
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
