package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// sendFlags holds the flags of send.
type sendFlags struct {
	message  posthaste.Message
	headers  []string
	wake     bool
	messages string
	unique   bool
	only     posthaste.Unique
	once     string
}

func newSend(a *app) *cobra.Command {
	var db database
	s := sendFlags{}
	cmd := &cobra.Command{
		Use: "send QUEUE [PAYLOAD]", Short: "Send messages",
		Long: `Send a message and print its id. The payload is JSON, unless --content-type names
another type. Without PAYLOAD, or with "-", it is read from standard input.

--messages sends many messages in one transaction. It names a file (or "-" for
standard input) with a JSON array of messages in the format of the HTTP API, with
the fields payload, key, kind, headers, reference, terms, content_type, delay,
send_at, priority, dedupe_key, dedupe_window, unique, max_attempts, timeout, backoff
and wake.

With --unique or --unique-key the message is sent only if no earlier one with the
same key is unfinished; otherwise the id of that message is printed.`,
		Example: `  posthaste send orders '{"order": 7}' --reference order-7
  posthaste send orders --delay 5m < order.json
  posthaste send orders --messages many.json`,
		Args: between(1, 2, "a queue and a payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := explicitZero(cmd, "dedupe-window", "max-delay", "max-attempts", "timeout", "backoff-base", "backoff-max"); err != nil {
				return err
			}
			messages, single, err := s.read(a, cmd, args)
			if err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				return sendMessages(ctx, a, e, s.once, messages, single)
			})
		},
	}
	cmd.Flags().SortFlags = false
	db.flag(cmd)
	s.flags(cmd.Flags())
	return cmd
}

func (s *sendFlags) flags(flags *pflag.FlagSet) {
	m := &s.message
	flags.StringVar(&m.Key, "key", "", "key of the message, which groups related messages")
	flags.StringVar(&m.Kind, "kind", "", "kind of the message, such as order.paid")
	flags.StringArrayVar(&s.headers, "header", nil, "a header, NAME=VALUE; may be repeated")
	flags.StringVar(&m.Reference, "reference", "", "id of your own to look up the message, such as an order number")
	flags.StringArrayVar(&m.Terms, "term", nil, "further search term for the message; may be repeated")
	flags.StringVar(&m.ContentType, "content-type", "", "content type of the payload (default application/json)")
	flags.Var(duration{&m.Delay}, "delay", "delay the delivery, such as 30s or 5m")
	flags.Var(instant{&m.SendAt}, "send-at", "schedule the delivery at this time, such as 2026-10-12T08:30:00Z")
	flags.BoolVar(&s.wake, "wake", true, "wake an idle worker")
	flags.StringVar(&s.messages, "messages", "", "send the JSON array of messages in this file; \"-\" is standard input")
	flags.IntVar(&m.Priority, "priority", 0, "priority, 0 to 3; 0 is delivered first")
	flags.StringVar(&m.DedupeKey, "dedupe-key", "", "deduplication key; a second send with this key sends nothing and prints the id of the first message")
	flags.Var(duration{&m.DedupeWindow}, "dedupe-window", "how long the deduplication key is stored (default 24h)")
	flags.BoolVar(&s.unique, "unique", false, "send only if no message with the same kind and payload is unfinished")
	flags.StringVar(&s.only.Key, "unique-key", "", "send only if no message with this key is unfinished")
	flags.StringVar((*string)(&s.only.Until), "unique-until", "", "when a message releases its key: started, finished (default) or resolved")
	flags.StringVar((*string)(&s.only.Exists), "unique-exists", "", "what becomes of the earlier message: keep (default) or replace")
	flags.Var(duration{&s.only.MaxDelay}, "max-delay", "with --unique-exists replace: how long after it was first sent a message is due at the latest")
	onceFlag(flags, &s.once)
	flags.IntVar(&m.MaxAttempts, "max-attempts", 0, "maximum number of attempts of this message (default: that of its kind or queue)")
	flags.Var(duration{&m.Timeout}, "timeout", "timeout of one attempt of this message (default: that of its kind or queue)")
	flags.Var(duration{&m.Backoff.Base}, "backoff-base", "upper bound of the delay before the first retry of this message (default: that of its kind or queue)")
	flags.Var(duration{&m.Backoff.Max}, "backoff-max", "maximum delay between attempts of this message (default: that of its kind or queue)")
}

// read builds the messages from arguments, flags and input.
func (s *sendFlags) read(a *app, cmd *cobra.Command, args []string) (messages []posthaste.Message, single bool, err error) {
	queue := args[0]
	if s.messages != "" {
		for _, name := range []string{"key", "kind", "header", "reference", "term", "content-type", "delay", "send-at", "priority", "dedupe-key", "dedupe-window", "unique", "unique-key", "unique-until", "unique-exists", "max-delay", "max-attempts", "timeout", "backoff-base", "backoff-max", "wake"} {
			if cmd.Flags().Changed(name) {
				return nil, false, posthaste.Invalidf(name, "--%s and --messages are mutually exclusive; set the field of each message in the file", name)
			}
		}
		if len(args) > 1 {
			return nil, false, posthaste.Invalidf("messages", "--messages and PAYLOAD are mutually exclusive")
		}
		data, err := readInput(a, "messages", s.messages)
		if err != nil {
			return nil, false, err
		}
		return wire.ParseMessages(queue, data)
	}
	m := s.message
	m.Queue, m.NoWake = queue, !s.wake
	if s.unique || s.only.Key != "" {
		m.Unique = &s.only
	} else if s.only != (posthaste.Unique{}) {
		return nil, false, posthaste.Invalidf("unique", "--unique-until, --unique-exists and --max-delay need --unique or --unique-key")
	}
	if m.Headers, err = parseHeaders(s.headers); err != nil {
		return nil, false, err
	}
	source := "-"
	var data []byte
	if len(args) > 1 && args[1] != "-" {
		source, data = "", []byte(args[1])
	}
	if source != "" {
		if data, err = readInput(a, "payload", source); err != nil {
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

// maxInput is the maximum size of the input. It suffices for ten thousand messages of
// usual size, or for the largest message in base64.
const maxInput = 256 << 20

// readInput reads the file name, or standard input if name is "-", for a flag or an argument.
func readInput(a *app, field, name string) ([]byte, error) {
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: err.Error(), Hint: "name a readable file, or - for standard input", Cause: err}
		}
		defer f.Close()
		in = f
	} else if isTerminal(in) {
		fmt.Fprintln(a.stderr, "posthaste: reading from the terminal; end with Ctrl-D")
	}
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	if len(data) > maxInput {
		return nil, &posthaste.Error{Code: posthaste.CodeTooLarge, Field: field, Message: fmt.Sprintf("the input exceeds %d bytes", maxInput)}
	}
	return data, nil
}

// onceFlag adds the flag of commands that can be repeated and send once.
func onceFlag(flags *pflag.FlagSet, key *string) {
	flags.StringVar(key, "idempotency-key", "", "key of this command: if it is repeated with the same key and messages within 24 hours, it sends nothing and prints the first result")
}

// sendOnce sends messages unless a command with the same key has. Without a key it always does.
func sendOnce(ctx context.Context, e posthaste.Store, key string, messages []posthaste.Message) ([]posthaste.Sent, error) {
	if key == "" {
		return posthaste.NewClient(e).Send(ctx, messages...)
	}
	content, err := wire.EncodeBatch(messages)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(content)
	sent, _, err := e.SendOnce(ctx, posthaste.Idempotency{Scope: "cli " + messages[0].Queue, Key: key, Digest: digest[:], Window: 24 * time.Hour}, messages...)
	return sent, err
}

func sendMessages(ctx context.Context, a *app, e posthaste.Store, key string, messages []posthaste.Message, single bool) error {
	sent, err := sendOnce(ctx, e, key, messages)
	if err != nil {
		return err
	}
	var shown any = wire.NewSentMany(sent)
	if single {
		shown = wire.NewSent(sent[0])
	}
	for _, s := range sent {
		if s.Duplicate {
			fmt.Fprintf(a.stderr, "posthaste: not sent: message %s has the same key, and was sent before\n", s.ID)
		}
	}
	return a.print(shown, func(w *screen) {
		for _, s := range sent {
			fmt.Fprintln(w, s.ID)
		}
	})
}
