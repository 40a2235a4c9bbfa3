//go:build unix

package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// create_queue knows the options, bounds and defaults of the table in Go.
func TestOptionsOfCreateQueue(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	n := 0
	create := func(name string, value any) error {
		n++
		parent, child, nested := strings.Cut(name, ".")
		object := map[string]any{name: value}
		if nested {
			object = map[string]any{parent: map[string]any{child: value}}
		}
		if name == "backoff.base" { // it must not be above the default of max
			object[parent].(map[string]any)["max"] = value
		}
		text, err := json.Marshal(object)
		a.check(err)
		_, err = a.pool.Exec(a.ctx, "select posthaste.create_queue($1, $2::text::jsonb)", fmt.Sprint("option-", n), string(text))
		return err
	}
	refused := func(option posthaste.QueueOption, value any) {
		t.Helper()
		var e *pgconn.PgError
		parent, child, _ := strings.Cut(option.Name, ".")
		if err := create(option.Name, value); !errors.As(err, &e) || e.Code != "PH400" || e.ColumnName != parent && e.ColumnName != child {
			t.Errorf("%s of %v: %v, want PH400 of %s", option.Name, value, err, parent)
		}
	}
	accepted := func(option posthaste.QueueOption, value any) {
		t.Helper()
		if err := create(option.Name, value); err != nil {
			t.Errorf("%s of %v: %v", option.Name, value, err)
		}
	}
	text := func(d time.Duration) string { return fmt.Sprintf("%f seconds", d.Seconds()) }
	for _, option := range posthaste.QueueOptionTable() {
		switch option.Field(&posthaste.QueueOptions{}).(type) {
		case *int:
			accepted(option, option.Min)
			accepted(option, option.Max)
			refused(option, option.Min-1)
			refused(option, option.Max+1)
		case *time.Duration:
			accepted(option, text(time.Duration(option.Max)))
			refused(option, text(time.Duration(option.Max)+time.Second))
			refused(option, "-1 second")
		case *posthaste.Mode:
			for _, value := range option.Values {
				accepted(option, value)
			}
			refused(option, "perhaps")
		case *bool:
			if option.Values != nil {
				accepted(option, option.Values[0])
				refused(option, "perhaps")
				break
			}
			accepted(option, false)
			refused(option, 7)
		}
	}
	var want posthaste.QueueOptions
	a.check(want.Complete())
	queues, err := a.Queues(a.ctx, "q")
	a.check(err)
	if is := queues[0].Options; is != want {
		t.Errorf("without options a queue has %+v, want %+v", is, want)
	}
}
