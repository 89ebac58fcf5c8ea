// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// view is how a page is looked at.
type view struct {
	width int64
	theme string
}

func (v view) String() string { return fmt.Sprintf("%d px, %s", v.width, v.theme) }

var views = []view{{375, "light"}, {375, "dark"}, {1400, "light"}, {1400, "dark"}}

// viewBound is how long one look may take.
const viewBound = 20 * time.Second

// leastInk is how many pixels of a chart must have a color: a short line has so many.
const leastInk = 50

// browser is a Chromium. Its context belongs to whoever opened it.
type browser struct {
	ctx context.Context

	mu       sync.Mutex // owns problems
	problems []string
}

// open starts a Chromium, which stop ends.
func open(ctx context.Context, path, profile string) (*browser, func(), error) {
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless,
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true),
		// No name resolves, and no address is reached but by the debugger.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND"), chromedp.Flag("disable-dev-shm-usage", true),
	}
	ctx, stopAll := chromedp.NewExecAllocator(ctx, options...)
	ctx, stopTab := chromedp.NewContext(ctx)
	b := &browser{ctx: ctx}
	stop := func() { stopTab(); stopAll() }
	err := chromedp.Listen(ctx, b.hear)
	for _, enable := range []func() error{
		func() error { _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); return err },
		func() error { _, err := chromedp.Call(ctx, cdpruntime.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); return err },
	} {
		if err == nil {
			err = enable()
		}
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, stop, nil
}

// hear keeps what goes wrong on a page, and what it asks for besides itself.
func (b *browser) hear(event any) {
	problem := ""
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		problem = "script: " + e.ExceptionDetails.Text + " " + describe(e.ExceptionDetails.Exception)
	case *cdpruntime.EventConsoleAPICalled:
		if e.Type == cdpruntime.ConsoleAPICalledTypeError || e.Type == cdpruntime.ConsoleAPICalledTypeWarning {
			problem = fmt.Sprintf("console: %s", e.Type)
			for _, arg := range e.Args {
				problem += " " + describe(arg)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			problem = "log: " + e.Entry.Text
		}
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, "file://") || !strings.HasSuffix(u, "/report.html") {
			problem = "asks for " + u
		}
	}
	if problem == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

// describe is what an object of the page is called.
func describe(o *cdpruntime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return strings.TrimSpace(o.Description + " " + string(o.Value))
}

// take returns what went wrong since the last time.
func (b *browser) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.problems
	b.problems = nil
	return list
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
	Bands int
	Faint []string
	Dark  bool
}

//go:embed look.js
var lookScript string

// look opens a page in a view and says what is wrong with it.
func (b *browser) look(p page, v view) error {
	ctx, cancel := context.WithTimeout(b.ctx, viewBound)
	defer cancel()
	b.take()
	_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: 900, DeviceScaleFactor: 1, Mobile: v.width < 500})
	if err == nil {
		theme := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.theme}}
		_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: theme})
	}
	if err == nil {
		err = chromedp.Do(ctx, chromedp.Navigate("file://"+filepath.Join(p.path, "report.html")))
	}
	if err != nil {
		return err
	}
	s, err := chromedp.Run(ctx, chromedp.Evaluate[seen](lookScript, chromedp.EvalAwaitPromise, chromedp.EvalAsValue))
	if err != nil {
		return err
	}
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(p.path, fmt.Sprintf("%d-%s.png", v.width, v.theme)), picture, 0o644)}
	for _, problem := range b.take() {
		errs = append(errs, errors.New(problem))
	}
	return errors.Join(append(errs, s.judge(p, v)...)...)
}

// judge says what is wrong with what was seen.
func (s seen) judge(p page, v view) (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Width != int(v.width) || s.Wanted > s.Width {
		fail("the page is %d pixels wide in a window of %d; too wide: %s", s.Wanted, s.Width, strings.Join(s.Wide, ", "))
	}
	if s.Dark != (v.theme == "dark") {
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
	return errs
}
