package cli

import (
	"io"

	"github.com/schollz/progressbar/v3"
)

// countBar shows a counter on a terminal. It shows nothing on other outputs.
type countBar struct{ bar *progressbar.ProgressBar }

func newCountBar(w io.Writer, what string) countBar {
	if !isTerminal(w) {
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
