package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
	"github.com/posthaste-mq/posthaste/sink/smtp"
)

// selfCheck is one line of self-check.
type selfCheck struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// The states of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkFault   = "fault"
	checkSkipped = "skipped"
)

// selfCheckTimeout bounds each connection that self-check makes.
const selfCheckTimeout = 15 * time.Second

func newSelfCheck(a *app) *cobra.Command {
	var db database
	var smtpURL string
	cmd := &cobra.Command{
		Use: "self-check", Short: "Check this installation: program, store, schema, doctor and mail server",
		Long: `Check a new installation or a new release, in this order: the version of the program,
whether the selected store can be reached, whether its schema fits this program,
the findings of doctor (settings, privileges, clocks, pooler and more), and, if
--smtp-url is set, whether the mail server accepts a session and the password. It sends
no message and no mail.

doctor explains the problems of a store that runs. self-check also tells when there is
none yet. The exit code is 1 if there is a fault, and 3 if the store cannot be reached.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks, err := runSelfCheck(cmd.Context(), a, &db, smtpURL)
			if printErr := a.print(listed{data: checks}, func(w *screen) {
				for _, c := range checks {
					fmt.Fprintf(w, "%-8s %-8s %s\n", c.Check, c.State, oneLine(c.Detail, 4000))
					if c.Hint != "" {
						fmt.Fprintf(w, "%18s%s\n", "", c.Hint)
					}
				}
			}); printErr != nil {
				return printErr
			}
			if err != nil {
				return &exitError{code: a.exitCode(err)} // the checks have the reasons
			}
			return nil
		},
	}
	db.flag(cmd)
	cmd.Flags().StringVar(&smtpURL, "smtp-url", "", "mail server to check (or SMTP_URL)")
	return cmd
}

// runSelfCheck returns all checks, and the first fault as an error.
func runSelfCheck(ctx context.Context, a *app, db *database, smtpURL string) (checks []selfCheck, first error) {
	add := func(name, ok string, err error) bool {
		c := selfCheck{Check: name, State: checkOK, Detail: ok}
		if err != nil {
			c.State, c.Detail = checkFault, err.Error()
			if e, is := err.(*posthaste.Error); is {
				c.Detail, c.Hint = e.Message, wire.Hint(e, wire.CLI)
			}
			first = cmp.Or(first, err)
		}
		checks = append(checks, c)
		return err == nil
	}
	skip := func(name, why string) { checks = append(checks, selfCheck{name, checkSkipped, why, ""}) }
	add("program", fmt.Sprintf("%s, %s", version(), platform()), nil)
	limited, cancel := context.WithTimeout(ctx, selfCheckTimeout)
	defer cancel()
	store, err := db.open(limited, a.quietly())
	switch {
	case posthaste.CodeOf(err) == posthaste.CodeSchemaOld || posthaste.CodeOf(err) == posthaste.CodeSchemaNew:
		add("store", db.engine+db.place(), nil)
		add("schema", "", err)
		skip("doctor", "needs a schema that fits this program")
	case !add("store", db.engine+db.place(), err):
		skip("schema", "needs the store")
		skip("doctor", "needs the store")
	default:
		defer store.Close()
		if add("schema", "fits this program", store.Ready(limited)) {
			found, err := store.Doctor(limited)
			add("doctor", "", err)
			if err == nil {
				checks[len(checks)-1] = doctorCheck(found)
				if checks[len(checks)-1].State == checkFault {
					first = cmp.Or(first, error(&posthaste.Error{Code: posthaste.CodeRefused, Message: "doctor found a fault"}))
				}
			}
		} else {
			skip("doctor", "needs a schema that fits this program")
		}
	}
	if smtpURL == "" {
		skip("mail", "no --smtp-url")
		return checks, first
	}
	add(checkMail(ctx, smtpURL))
	return checks, first
}

// doctorCheck sums up the findings of the doctor.
func doctorCheck(found []posthaste.Finding) selfCheck {
	c := selfCheck{Check: "doctor", State: checkOK, Detail: "no problems found"}
	faults := int64(0)
	for _, f := range found {
		if f.Fault {
			faults++
		}
	}
	if len(found) > 0 {
		c.State, c.Hint = checkWarning, "run: posthaste doctor"
		c.Detail = counted(faults, "fault") + ", " + counted(int64(len(found))-faults, "warning")
	}
	if faults > 0 {
		c.State = checkFault
	}
	return c
}

// checkMail opens a session with the mail server.
func checkMail(ctx context.Context, url string) (name, detail string, err error) {
	sink, err := smtp.New(smtp.Config{URL: url})
	if err != nil {
		return "mail", "", err
	}
	defer sink.Close()
	limited, cancel := context.WithTimeout(ctx, selfCheckTimeout)
	defer cancel()
	return "mail", sink.Server() + " accepts a session", sink.Check(limited)
}
