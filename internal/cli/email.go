package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newEmail(a *app) *cobra.Command {
	return newGroup("email", "Send and inspect e-mails", newEmailSend(a), newEmailLs(a), newEmailShow(a))
}

// emailFlags holds the flags of email send.
type emailFlags struct {
	mail    email.Email
	headers []string
	attach  []string
	file    string
	once    string
	delay   time.Duration
}

func newEmailSend(a *app) *cobra.Command {
	var db database
	var f emailFlags
	cmd := &cobra.Command{
		Use: "send", Short: "Send an e-mail",
		Long: `Store an e-mail in the queue emails, and print its id. A worker delivers it by SMTP.

The e-mail is built from the flags, or read with --file as the JSON of the HTTP API.
Without --text and --html, the text is read from standard input.`,
		Example: `  posthaste email send --from shop@example.com --to ada@example.com --subject 'Your order' --text 'It is on its way.'
  posthaste email send --file mail.json`,
		Args: exactly(0, "no arguments; flags describe the e-mail"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			message, err := f.read(a, cmd)
			if err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				return sendMessages(ctx, a, e, f.once, []posthaste.Message{message}, true)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	m := &f.mail
	flags.StringVar(&m.From, "from", "", "author, such as 'Ada <ada@example.com>'")
	flags.StringArrayVar(&m.To, "to", nil, "recipient; may be repeated")
	flags.StringArrayVar(&m.Cc, "cc", nil, "recipient of a copy; may be repeated")
	flags.StringArrayVar(&m.Bcc, "bcc", nil, "recipient that the others do not see; may be repeated")
	flags.StringVar(&m.ReplyTo, "reply-to", "", "address for replies")
	flags.StringVar(&m.Subject, "subject", "", "subject")
	flags.StringVar(&m.Text, "text", "", "body as plain text")
	flags.StringVar(&m.HTML, "html", "", "body as HTML")
	flags.StringArrayVar(&f.headers, "header", nil, "a custom header, NAME=VALUE; may be repeated")
	flags.StringArrayVar(&f.attach, "attach", nil, "file to attach; may be repeated")
	flags.StringVar(&m.Reference, "reference", "", "id of your own to look up the e-mail, such as an order number")
	flags.Var(duration{&f.delay}, "delay", "delay the delivery, such as 30s or 5m")
	flags.Var(instant{&m.SendAt}, "send-at", "schedule the delivery at this time, such as 2026-10-12T08:30:00Z")
	onceFlag(flags, &f.once)
	flags.StringVar(&f.file, "file", "", "read the e-mail from this file; \"-\" is standard input")
	return cmd
}

// read builds the message of an e-mail from flags and input.
func (f *emailFlags) read(a *app, cmd *cobra.Command) (message posthaste.Message, err error) {
	mail := &f.mail
	if f.file != "" {
		for _, name := range []string{"from", "to", "cc", "bcc", "reply-to", "subject", "text", "html", "header", "attach", "reference", "send-at"} {
			if cmd.Flags().Changed(name) {
				return message, posthaste.Invalidf(name, "--%s and --file are mutually exclusive; set the field in the file", name)
			}
		}
		data, err := readInput(a, "file", f.file)
		if err != nil {
			return message, err
		}
		if mail, err = email.Parse(data); err != nil {
			return message, err
		}
	} else if err := f.fill(a); err != nil {
		return message, err
	}
	if err := mail.Validate(); err != nil {
		return message, err
	}
	if message, err = mail.Message(); err == nil {
		message.Delay = f.delay
		err = message.Check()
	}
	return message, err
}

// fill completes the e-mail with headers, attachments and a text from standard input.
func (f *emailFlags) fill(a *app) (err error) {
	mail := &f.mail
	if mail.Headers, err = parseHeaders(f.headers); err != nil {
		return err
	}
	for _, name := range f.attach {
		content, err := os.ReadFile(name)
		if err != nil {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "attach", Message: err.Error(), Hint: "name a readable file with --attach", Cause: err}
		}
		mail.Attachments = append(mail.Attachments, email.Attachment{Filename: filepath.Base(name), Content: content})
	}
	if mail.Text == "" && mail.HTML == "" {
		text, err := readInput(a, "text", "-")
		if err != nil {
			return err
		}
		mail.Text = string(bytes.TrimSuffix(text, []byte("\n")))
	}
	return nil
}

// emailStatus returns a status in its color.
func emailStatus(s email.Status) styled {
	return styled{string(s), map[email.Status]style{email.StatusSent: green, email.StatusError: red, email.StatusExpired: yellow}[s]}
}

func newEmailLs(a *app) *cobra.Command {
	var db database
	f := posthaste.MessageFilter{Queue: email.Queue}
	var recipient, status, before string
	cmd := &cobra.Command{
		Use: "ls", Short: "List e-mails with their status, newest first",
		Args: exactly(0, "no arguments; flags select e-mails"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := paging(f.Limit, before, &f.Before); err != nil {
				return err
			}
			states := []posthaste.State{""}
			if status != "" {
				wanted, err := email.ParseStatus(status)
				if err != nil {
					return err
				}
				states = wanted.States()
			}
			if f.Term = email.Term(recipient); f.Term == "" && recipient != "" {
				return posthaste.Invalidf("recipient", "--recipient must be an e-mail address, got only spaces")
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listEmails(ctx, a, e, f, states) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.StringVar(&recipient, "recipient", "", "only e-mails to this address")
	flags.StringVar(&f.Reference, "reference", "", "only e-mails with this reference")
	flags.StringVar(&status, "status", "", "only e-mails with this status: scheduled, claimed, sent, error, cancelled or expired")
	flags.IntVar(&f.Limit, "limit", 100, "maximum number of results, 1 to 1000")
	flags.StringVar(&before, "before", "", "only ids below this one, to get the next page")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"scheduled", "claimed", "sent", "error", "cancelled", "expired"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func listEmails(ctx context.Context, a *app, e posthaste.Store, f posthaste.MessageFilter, states []posthaste.State) error {
	messages, err := wire.MessagesIn(ctx, e, f, states)
	if err != nil {
		return err
	}
	shown := make([]wire.Email, len(messages.Items))
	for i, m := range messages.Items {
		shown[i] = wire.NewEmail(m)
	}
	return page{shown, "no e-mails found", messages.Next}.print(a, len(shown), func(w *screen) {
		table(w, "ID STATUS ATTEMPTS CREATED REFERENCE RECIPIENTS", func(row func(...any)) {
			for _, x := range shown {
				row(x.ID, emailStatus(x.Status), len(x.Attempts), x.CreatedAt, x.Reference, strings.Join(x.Recipients, ", "))
			}
		})
	})
}

func newEmailShow(a *app) *cobra.Command {
	return newShown(a, "show ID", "Show an e-mail with its status, the answers of the mail server and all attempts", "a message id", showEmail)
}

func showEmail(ctx context.Context, a *app, e posthaste.Store, text string) error {
	ids, err := messageIDs([]string{text})
	if err != nil {
		return err
	}
	m, err := e.Message(ctx, ids[0])
	if err == nil && m.Queue != email.Queue {
		err = &posthaste.Error{Code: posthaste.CodeNotFound, Field: "id", Message: fmt.Sprintf("message %s is in queue %s and not an e-mail", m.ID, m.Queue),
			Hint: "show it with: posthaste message show " + m.ID.String()}
	}
	if err != nil {
		return err
	}
	x := wire.NewEmail(m)
	// A message that was not sent as an e-mail may be none. Its attempts have the error.
	if mail, err := email.Parse(m.Payload); err == nil {
		x.From, x.To, x.Cc, x.Bcc, x.Subject = mail.From, mail.To, mail.Cc, mail.Bcc, mail.Subject
	}
	return a.print(x, func(w *screen) {
		fields(w, "email", x.ID, "status", emailStatus(x.Status), "reference", x.Reference, "from", x.From, "to", strings.Join(x.To, ", "), "cc", strings.Join(x.Cc, ", "),
			"bcc", strings.Join(x.Bcc, ", "), "subject", x.Subject, "created", x.CreatedAt, "due", x.DueAt, "Message-ID", x.MessageID)
		if x.PayloadHidden {
			fmt.Fprintln(w, "\n(the addresses and the subject are hidden: the token lacks the scope read:payload)")
		}
		if len(x.Answers) > 0 {
			fmt.Fprintln(w)
			table(w, "RECIPIENT ANSWER CODE AT TEXT", func(row func(...any)) {
				for _, address := range slices.Sorted(maps.Keys(x.Answers)) {
					answer := x.Answers[address]
					row(address, answer.Status, answer.Code, answer.At, answer.Text)
				}
			})
		}
		if len(x.Attempts) > 0 {
			fmt.Fprintln(w)
			showAttempts(w, x.Attempts)
		}
	})
}
