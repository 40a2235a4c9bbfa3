//go:build unix

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
)

// addresses is the JSON output of up.
type addresses struct {
	// Dashboard is empty if it is switched off.
	Dashboard string `json:"dashboard,omitempty"`
	HTTP      string `json:"http"`
	Caught    string `json:"caught"`
	storeURLs
	SMTP    string `json:"smtp"`
	Data    string `json:"data"`
	Cluster string `json:"cluster"`
	Next    string `json:"next"`
}

// announce prints the addresses of all services and the next steps.
func announce(a *app, u upFlags, home *home, r *running) {
	base := "http://" + reachable(r.listener.Addr().String())
	shown := addresses{
		HTTP: base, Caught: base + caughtPath, SMTP: r.mails.Addr(),
		Data: home.dir, Cluster: r.database.DataDir(), Next: curl(base, u.token != ""),
	}
	if exposed, _ := u.exposed(nil); u.shows(exposed) { // it was checked before
		shown.Dashboard = base + dashboardPath + "/"
	}
	*kindOf(u.engine).url(&shown.storeURLs) = r.database.URL()
	_ = a.print(shown, func(w *screen) {
		fmt.Fprintf(w, "\nPosthaste is up.\n\n")
		if shown.Dashboard != "" {
			fmt.Fprintf(w, "  Dashboard     %s\n", shown.Dashboard)
		}
		fmt.Fprintf(w, "  HTTP API      %s\n", shown.HTTP)
		if u.delivers != "" {
			fmt.Fprintf(w, "  Mail          delivered by %s\n", u.delivers)
		}
		fmt.Fprintf(w, "  Caught mail   %s\n", shown.Caught)
		fmt.Fprintf(w, "  Mail catcher  smtp://%s\n", shown.SMTP)
		if len(r.relays) > 0 {
			fmt.Fprintf(w, "  Relay         queue %s to %s at %s\n", relayQueue, r.relays[0].kind.Name, r.relays[0].sink.Broker())
		}
		fmt.Fprintf(w, "  %-12s  %s\n", u.storeName(), r.database.URL())
		fmt.Fprintf(w, "  Data          %s\n", shown.Data)
		if filepath.Dir(shown.Cluster) != home.dir {
			fmt.Fprintf(w, "  Cluster       %s\n                (outside the data directory, which the user of PostgreSQL cannot access; --reset removes it)\n", shown.Cluster)
		}
		fmt.Fprintf(w, "\nSend a mail:\n\n%s\n\nand open %s\nCtrl-C stops everything.\n\n", indent(shown.Next), shown.Caught)
	})
}

// curl returns a command that sends a mail.
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

// shellQuote quotes text for a POSIX shell.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
