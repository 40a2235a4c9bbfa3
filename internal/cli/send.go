package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// sending is the flags of send.
type sending struct {
	message  posthaste.Message
	headers  []string
	wake     bool
	messages string
}

func newSend(a *app) *cobra.Command {
	var db database
	s := sending{}
	cmd := &cobra.Command{
		Use: "send QUEUE [PAYLOAD]", Short: "Send a message, or many in one transaction",
		Long: `Send a message and print its id. The payload is JSON, or anything else with a
--content-type that says so. Without PAYLOAD, or with "-", it is read from the
standard input.

--messages sends many in one transaction: it names a file (or "-") with a JSON
array of messages as the HTTP API takes them, each with payload, key, kind,
headers, reference, terms, content_type, delay, send_at, priority, dedupe_key,
dedupe_window or wake.`,
		Example: `  posthaste send orders '{"order": 7}' --reference order-7
  posthaste send orders --delay 5m < order.json
  posthaste send orders --messages many.json`,
		Args: between(1, 2, "a queue and a payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := explicitZero(cmd, "dedupe-window"); err != nil {
				return err
			}
			messages, single, err := s.read(a, cmd, args)
			if err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return a.send(ctx, e, messages, single) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	m := &s.message
	flags.StringVar(&m.Key, "key", "", "groups messages that belong together")
	flags.StringVar(&m.Kind, "kind", "", "what sort of message it is")
	flags.StringArrayVar(&s.headers, "header", nil, "a header, NAME=VALUE; may be repeated")
	flags.StringVar(&m.Reference, "reference", "", "your own business id, to find the message by")
	flags.StringArrayVar(&m.Terms, "term", nil, "a further word to find it by; may be repeated")
	flags.StringVar(&m.ContentType, "content-type", "", "what the payload is (default application/json)")
	flags.Var(duration{&m.Delay}, "delay", "hold it back for this long, such as 30s or 5m")
	flags.Var(instant{&m.SendAt}, "send-at", "hold it back until this time, such as 2026-10-12T08:30:00Z")
	flags.BoolVar(&s.wake, "wake", true, "wake a sleeping worker")
	flags.StringVar(&s.messages, "messages", "", "send the JSON array of messages in this file, \"-\" for the standard input")
	flags.IntVar(&m.Priority, "priority", 0, "0 to 3; 0 is handed out first")
	flags.StringVar(&m.DedupeKey, "dedupe-key", "", "sent again with this key, nothing is sent, and the first one's id is printed")
	flags.Var(duration{&m.DedupeWindow}, "dedupe-window", "how long the dedupe key is remembered (default 24h)")
	return cmd
}

// read makes messages of arguments, flags and input.
func (s *sending) read(a *app, cmd *cobra.Command, args []string) (messages []posthaste.Message, single bool, err error) {
	queue := args[0]
	if s.messages != "" {
		for _, name := range []string{"key", "kind", "header", "reference", "term", "content-type", "delay", "send-at", "priority", "dedupe-key", "dedupe-window", "wake"} {
			if cmd.Flags().Changed(name) {
				return nil, false, posthaste.Invalidf(name, "--%s and --messages exclude each other: say it of each message in the file", name)
			}
		}
		if len(args) > 1 {
			return nil, false, posthaste.Invalidf("messages", "--messages and a payload exclude each other")
		}
		data, err := a.readInput(s.messages)
		if err != nil {
			return nil, false, err
		}
		return wire.ParseMessages(queue, data)
	}
	m := s.message
	m.Queue, m.NoWake = queue, !s.wake
	if m.Headers, err = parseHeaders(s.headers); err != nil {
		return nil, false, err
	}
	source := "-"
	var data []byte
	if len(args) > 1 && args[1] != "-" {
		source, data = "", []byte(args[1])
	}
	if source != "" {
		if data, err = a.readInput(source); err != nil {
			return nil, false, err
		}
	}
	m.Payload = data
	if posthaste.IsJSON(m.ContentType) {
		if err := wire.Check(data); err != nil {
			return nil, false, payloadError(err)
		}
		m.Payload = json.RawMessage(data)
	}
	if err := m.Check(); err != nil {
		return nil, false, err
	}
	return []posthaste.Message{m}, true, nil
}

func payloadError(err error) error {
	var e *posthaste.Error
	if !errors.As(err, &e) {
		return err
	}
	return &posthaste.Error{Code: e.Code, Field: "payload", Message: "the payload: " + e.Message,
		Hint: "for anything but JSON say what it is with --content-type, such as text/plain", Cause: err}
}

func parseHeaders(given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	headers := map[string]string{}
	for _, h := range given {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, posthaste.Invalidf("header", "--header must be NAME=VALUE, and is %q", h)
		}
		if _, twice := headers[name]; twice {
			return nil, posthaste.Invalidf("header", "--header gives %q twice", name)
		}
		headers[name] = value
	}
	return headers, nil
}

// maxInput bounds what is read: ten thousand messages of usual size, or one of
// the largest as base64.
const maxInput = 256 << 20

// readInput reads a file, or the standard input where it is "-".
func (a *app) readInput(name string) ([]byte, error) {
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "messages", Message: err.Error(), Hint: "name a file that can be read, or - for the standard input", Cause: err}
		}
		defer f.Close()
		in = f
	} else if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.stderr, "posthaste: reading from the terminal, end with Ctrl-D")
	}
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("the input cannot be read: %w", err)
	}
	if len(data) > maxInput {
		return nil, &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload", Message: fmt.Sprintf("the input has more than %d bytes", maxInput)}
	}
	return data, nil
}

func (a *app) send(ctx context.Context, e posthaste.Store, messages []posthaste.Message, single bool) error {
	ids, err := posthaste.NewClient(e).Send(ctx, messages...)
	if err != nil {
		return err
	}
	var shown any = map[string][]posthaste.MessageID{"ids": ids}
	if single {
		shown = map[string]posthaste.MessageID{"id": ids[0]}
	}
	return a.print(shown, func(w io.Writer) {
		for _, id := range ids {
			fmt.Fprintln(w, id)
		}
	})
}
