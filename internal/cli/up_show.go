//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// progress shows what devpg does before PostgreSQL runs: a bar on a terminal,
// a few plain lines elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	current  string
	bar      *progressbar.ProgressBar
	quarter  int64 // the last quarter told in plain lines
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

var stages = map[string]string{
	devpg.StageFetch:  "fetching PostgreSQL (the first time only)",
	devpg.StageUnpack: "unpacking PostgreSQL",
	devpg.StageInit:   "making the database cluster",
	devpg.StageStart:  "starting PostgreSQL",
}

// stage is devpg's Progress.
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

// end finishes what is being shown.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
		fmt.Fprintln(p.w, "posthaste: "+stages[p.current]+": done")
	}
}

// asAny reports whether one of the targets is in err's chain.
func asAny(err error, targets ...any) bool {
	for _, target := range targets {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

// addresses is what up tells programs once everything runs.
type addresses struct {
	HTTP     string `json:"http"`
	Caught   string `json:"caught"`
	Database string `json:"database_url,omitempty"`
	Redis    string `json:"redis_url,omitempty"`
	SMTP     string `json:"smtp"`
	Data     string `json:"data"`
	Cluster  string `json:"cluster"`
	Next     string `json:"next"`
}

// announce says that everything runs and what to do next.
func (a *app) announce(u up, home *home, r *running) {
	base := "http://" + reachable(r.listener.Addr().String())
	shown := addresses{
		HTTP: base, Caught: base + "/caught", SMTP: r.mails.Addr(),
		Data: home.dir, Cluster: r.database.DataDir(), Next: curl(base, u.token != ""),
	}
	if u.engine == onRedis {
		shown.Redis = r.database.URL()
	} else {
		shown.Database = r.database.URL()
	}
	_ = a.print(shown, func(w io.Writer) {
		fmt.Fprintf(w, "\nPosthaste is up.\n\n")
		fmt.Fprintf(w, "  HTTP API      %s\n", shown.HTTP)
		if u.delivers != "" {
			fmt.Fprintf(w, "  Mail          goes out for real, by %s\n", u.delivers)
		}
		fmt.Fprintf(w, "  Caught mail   %s\n", shown.Caught)
		fmt.Fprintf(w, "  Mail catcher  smtp://%s\n", shown.SMTP)
		if len(r.relays) > 0 {
			fmt.Fprintf(w, "  Relay         queue %s to %s at %s\n", relayQueue, r.relays[0].kind.Name, r.relays[0].sink.Broker())
		}
		fmt.Fprintf(w, "  %-12s  %s\n", u.storeName(), r.database.URL())
		fmt.Fprintf(w, "  Data          %s\n", shown.Data)
		if filepath.Dir(shown.Cluster) != home.dir {
			fmt.Fprintf(w, "  Cluster       %s\n                (the user PostgreSQL runs as cannot reach the data directory; --reset removes it there)\n", shown.Cluster)
		}
		fmt.Fprintf(w, "\nSend a mail:\n\n%s\n\nand look at it at %s\nCtrl-C stops everything.\n\n", indent(shown.Next), shown.Caught)
	})
}

// curl is a command that sends a mail.
func curl(base string, token bool) string {
	lines := []string{"curl " + base + "/v1/emails"}
	if token {
		lines = append(lines, `-H "Authorization: Bearer $POSTHASTE_TOKEN"`)
	}
	lines = append(lines, "-H "+shellQuote("Content-Type: application/json"),
		"-d "+shellQuote(`{"from": "shop@example.com", "to": ["ada@example.com"], "subject": "Your order", "text": "It is on its way."}`))
	return strings.Join(lines, " \\\n  ")
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
