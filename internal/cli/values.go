package cli

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// duration is a flag in the duration format of the HTTP API.
type duration struct{ value *time.Duration }

func (d duration) String() string {
	if d.value == nil || *d.value == 0 {
		return ""
	}
	return d.value.String()
}

func (d duration) Set(s string) error {
	v, err := wire.ParseDuration(s)
	if err == nil && v < 0 {
		err = fmt.Errorf("must not be negative")
	}
	if err != nil {
		return err
	}
	*d.value = v
	return nil
}

// rate is a flag such as 50/s.
type rate struct{ value *posthaste.Rate }

func (r rate) String() string {
	if r.value == nil {
		return ""
	}
	return r.value.String()
}

func (r rate) Set(s string) (err error) {
	*r.value, err = posthaste.ParseRate(s)
	return err
}

func (rate) Type() string { return "rate" }

func (duration) Type() string { return "duration" }

// instant is a flag in RFC 3339 format.
type instant struct{ value *time.Time }

func (i instant) String() string {
	if i.value == nil || i.value.IsZero() {
		return ""
	}
	return i.value.Format(time.RFC3339Nano)
}

func (i instant) Set(s string) (err error) {
	*i.value, err = wire.ParseTime(s)
	return err
}

func (instant) Type() string { return "time" }

// size is a flag with a number of bytes, such as 65536 or 32MiB.
type size struct{ value *int }

func (s size) String() string {
	if s.value == nil || *s.value == 0 {
		return ""
	}
	return strconv.Itoa(*s.value)
}

func (s size) Set(text string) error {
	number, unit := strings.TrimSpace(text), 1
	for suffix, factor := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(rest), factor
			break
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > math.MaxInt32/unit {
		return fmt.Errorf("must be a number of bytes such as 65536, 512KiB or 32MiB, got %q", text)
	}
	*s.value = n * unit
	return nil
}

func (size) Type() string { return "bytes" }

// explicitZero rejects flags that were given as 0. In options, 0 means the default, which
// would silently replace the requested value.
func explicitZero(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := cmd.Flags().Lookup(name)
		if text := f.Value.String(); f.Changed && (text == "0" || text == "") {
			return posthaste.Invalidf(name, "--%s must be above zero", name)
		}
	}
	return nil
}

// words is a flag with a comma-separated list; it can be repeated. An empty word is an
// error: if it were dropped, --queue "$QUEUE" with an unset variable would select all
// queues.
type words struct{ all *[]string }

func (w words) String() string {
	if w.all == nil {
		return ""
	}
	return strings.Join(*w.all, ",")
}

func (w words) Set(s string) error {
	some, err := csv.NewReader(strings.NewReader(s)).Read()
	switch {
	case strings.TrimSpace(s) == "" || slices.Contains(some, ""):
		return fmt.Errorf("must not be empty; omit the flag instead")
	case err != nil:
		return fmt.Errorf("must be a comma-separated list, got %q", s)
	}
	*w.all = append(*w.all, some...)
	return nil
}

func (words) Type() string { return "strings" }

// refuseEmpty rejects text flags that were given and are empty. Otherwise --queue "$QUEUE"
// or --token "$TOKEN" with an unset variable would mean all queues, or no token.
func refuseEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && f.Value.String() == ""
		if all, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(all.GetSlice()) == 0 || slices.Contains(all.GetSlice(), "")
		}
		if empty {
			err = cmp.Or(err, posthaste.Invalidf(f.Name, "--%s must not be empty; omit the flag instead", f.Name))
		}
	})
	return err
}

// messageIDs parses arguments that are message ids.
func messageIDs(args []string) ([]posthaste.MessageID, error) {
	ids := make([]posthaste.MessageID, len(args))
	for i, arg := range args {
		if err := ids[i].UnmarshalText([]byte(arg)); err != nil {
			return nil, posthaste.Invalidf("id", "a message id must be a positive decimal number, got %q", arg)
		}
	}
	return ids, nil
}

func payloadError(err error) error {
	var e *posthaste.Error
	if !errors.As(err, &e) {
		return err
	}
	return &posthaste.Error{Code: e.Code, Field: "payload", Message: "invalid payload: " + e.Message,
		Hint: "for a payload that is not JSON, set --content-type, for example to text/plain", Cause: err}
}

func parseHeaders(given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	headers := map[string]string{}
	for _, h := range given {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, posthaste.Invalidf("header", "--header must be NAME=VALUE, got %q", h)
		}
		if _, twice := headers[name]; twice {
			return nil, posthaste.Invalidf("header", "--header sets %q twice", name)
		}
		headers[name] = value
	}
	return headers, nil
}
