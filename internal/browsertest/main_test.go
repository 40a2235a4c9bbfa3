package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

var update = flag.Bool("update", false, "write the screenshot of the README")

// stopBrowser stops the browser, if a test has started it.
var stopBrowser = func() {}

func TestMain(m *testing.M) {
	if err := testrun.Parallel(3); err != nil { // they wait for the browser
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stopBrowser()
	os.Exit(code)
}

// browser returns the context of the only browser, in which each test has its own session. Without
// a browser the tests fail.
var browser = sync.OnceValues(func() (context.Context, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, errors.New("the program chromium is not installed; scripts/needs installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.Flag("lang", "en-US"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	stopBrowser = func() { closeTab(); stop() }
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("chromium does not start: %w", err)
	}
	return ctx, nil
})
