//go:build unix

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/schollz/progressbar/v3"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// progress shows the stages of devpg before PostgreSQL runs: a bar on a terminal, and plain
// lines on other outputs.
type progress struct {
	w        io.Writer
	terminal bool
	current  string
	bar      *progressbar.ProgressBar
	quarter  int64 // the last quarter that a plain line has reported
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w)}
}

var stages = map[string]string{
	devpg.StageFetch:  "downloading PostgreSQL (the first time only)",
	devpg.StageUnpack: "unpacking PostgreSQL",
	devpg.StageInit:   "creating the database cluster",
	devpg.StageStart:  "starting PostgreSQL",
}

// stage implements the Progress function of devpg.
func (p *progress) stage(name string, done, total int64) {
	if name != p.current {
		p.end()
		p.current, p.quarter = name, 0
		if p.terminal && total > 0 {
			p.bar = newBar(p.w, total, stages[name])
		} else {
			fmt.Fprintln(p.w, "posthaste: "+stages[name])
		}
	}
	switch {
	case p.bar != nil:
		_ = p.bar.Set64(done)
	case total > 0 && !p.terminal && done*4/total > p.quarter:
		p.quarter = done * 4 / total
		fmt.Fprintf(p.w, "posthaste: %s: %d %% of %.1f MB\n", strings.Fields(stages[name])[0], 25*p.quarter, float64(total)/1e6)
	}
}

func newBar(w io.Writer, total int64, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("posthaste: "+what),
		progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(24), progressbar.OptionClearOnFinish())
}

// end finishes the current stage.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
		fmt.Fprintln(p.w, "posthaste: "+stages[p.current]+": done")
	}
}
