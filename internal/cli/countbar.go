package cli

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// countBar shows a counter on a terminal. It shows nothing on other outputs.
type countBar struct{ bar *progressbar.ProgressBar }

func newCountBar(w io.Writer, what string) countBar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return countBar{}
	}
	return countBar{progressbar.NewOptions64(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("posthaste: "+what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(24), progressbar.OptionClearOnFinish())}
}

func (b countBar) add(n int) {
	if b.bar != nil {
		_ = b.bar.Add(n)
	}
}

func (b countBar) end() {
	if b.bar != nil {
		_ = b.bar.Finish()
	}
}
