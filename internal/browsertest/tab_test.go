package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// patience is how long a page may take. The machine runs other tests at the same time.
const patience = 30 * time.Second

// tab is a tab of the browser in a session of its own.
type tab struct {
	*testing.T
	ctx context.Context

	mu sync.Mutex
	// said are errors in the console, and dialogs. A test fails if there are any.
	said []string
}

func newTab(t *testing.T) *tab {
	t.Helper()
	shared, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{T: t}
	ctx, cancel := chromedp.NewContext(shared, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() {
		for _, said := range b.heard() {
			t.Errorf("the browser says: %s", said)
		}
		cancel()
	})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	b.look(wide, light)
	return b
}

// call runs a command of the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatalf("%s: %v", command.Method, err)
	}
}

func (b *tab) hear(event any) {
	said := ""
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		said = "dialog: " + e.Message
		go func() { // else the tab stops
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			said += " " + thrown.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			said = fmt.Sprintf("console.error with %d values", len(e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && !strings.HasSuffix(e.Entry.URL, "/favicon.ico") { // which browsers guess
			said = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if said == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, said)
}

// heard returns what the browser said, and forgets it.
func (b *tab) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.said
	b.said = nil
	return said
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// ask returns the value of an expression, as JSON, or false while the tab leaves a page.
func (b *tab) ask(expression string) (value string, ok bool) {
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("(async () => JSON.stringify(await ("+expression+")))()", chromedp.EvalAwaitPromise))
	return value, err == nil
}

// answer decodes the value of an expression.
func (b *tab) answer(expression string, into any) {
	b.Helper()
	value := ""
	b.until(expression, func() (ok bool) {
		value, ok = b.ask(expression)
		return ok
	})
	if err := json.Unmarshal([]byte(value), into); err != nil {
		b.Fatalf("%s is %s: %v", expression, value, err)
	}
}

func (b *tab) until(what string, met func() bool) {
	b.Helper()
	if !testrun.Happens(patience, met) {
		text, _ := b.ask(`location.href + "\n" + document.body.innerText`)
		b.Fatalf("not within %s: %s; the page is %s", patience, what, text)
	}
}

// open shows an address.
func (b *tab) open(url string) {
	b.Helper()
	b.do(chromedp.Navigate(url))
	b.loaded("0")
}

// loaded waits until a page is complete that is not the one that began at a time.
func (b *tab) loaded(before string) {
	b.Helper()
	b.until("another page", func() bool {
		ready, ok := b.ask(`document.readyState === "complete" && performance.timeOrigin > ` + before)
		return ok && ready == "true"
	})
}

// leaves does something that leads to another page, and waits for that.
func (b *tab) leaves(do func()) {
	b.Helper()
	var before float64
	b.answer("performance.timeOrigin", &before)
	do()
	b.loaded(fmt.Sprint(before))
}

// sees waits until a person can read the texts on the page.
func (b *tab) sees(texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("%q is on the page", text), func() bool {
			shown, _ := b.ask("document.body.innerText")
			var page string
			return json.Unmarshal([]byte(shown), &page) == nil && strings.Contains(page, text)
		})
	}
}

// lacks fails if a text is on the page.
func (b *tab) lacks(text string) {
	b.Helper()
	var page string
	if b.answer("document.body.innerText", &page); strings.Contains(page, text) {
		b.Errorf("%q is on the page:\n%s", text, page)
	}
}

// named is a function of JavaScript that returns the visible control with a name, as a person or
// a screen reader reads it.
const named = `(name => [...document.querySelectorAll("a,button,input,select,textarea,summary")].find(e => {
	const words = text => (text || "").replace(/\s+/g, " ").trim();
	const labels = [...(e.labels || [])].some(l => words(l.textContent).startsWith(name));
	return e.checkVisibility() && (labels || words(e.getAttribute("aria-label") || e.textContent) === name);
}))`

func quoted(text string) string {
	out, _ := json.Marshal(text) // always encodes
	return string(out)
}

// click presses the mouse on a control. Nothing may cover it.
func (b *tab) click(name string) {
	b.Helper()
	b.until("a control named "+quoted(name)+" is clicked", func() bool {
		b.clickOnce(name)
		// A page that was updated meanwhile may have moved a field away.
		has, ok := b.ask(`(e => !e || !e.matches("textarea,input:not([type=checkbox],[type=radio],[type=submit])") || e === document.activeElement)(` + named + "(" + quoted(name) + "))")
		return !ok || has == "true"
	})
}

func (b *tab) clickOnce(name string) {
	b.Helper()
	at := "null"
	b.until("a control named "+quoted(name)+" can be clicked", func() (ok bool) {
		at, ok = b.ask(`(e => {
			if (!e) return null;
			e.scrollIntoView({block: "center", inline: "center"});
			const r = e.getClientRects()[0], at = [r.x + r.width / 2, r.y + r.height / 2];
			return e.contains(document.elementFromPoint(...at)) ? at : null;
		})(` + named + "(" + quoted(name) + "))")
		return ok && at != "null"
	})
	var point [2]float64
	if err := json.Unmarshal([]byte(at), &point); err != nil {
		b.Fatal(err)
	}
	b.do(chromedp.MouseClickXY(point[0], point[1]))
}

// follow clicks what leads to another page.
func (b *tab) follow(name string) {
	b.Helper()
	b.leaves(func() { b.click(name) })
}

// types writes into the control that has the focus.
func (b *tab) types(text string) {
	b.Helper()
	b.do(chromedp.KeyEvent(text))
}

// screen is the size of a screen in pixels.
type screen struct{ width, height int64 }

// scheme is what the browser prefers, light or dark.
type scheme string

var (
	wide   = screen{1280, 800}
	narrow = screen{390, 844} // a telephone
)

const (
	light scheme = "light"
	dark  scheme = "dark"
)

// look changes the screen and the colors.
func (b *tab) look(s screen, colors scheme) {
	b.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: s.width, Height: s.height, DeviceScaleFactor: 1, Mobile: s == narrow})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: string(colors)}}})
}
