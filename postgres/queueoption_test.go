//go:build unix

package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// create_queue knows the options, bounds and defaults of the table in Go.
func TestOptionsOfCreateQueue(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	o := &optionTest{adminTest: a}
	// PostgreSQL 14 reads at most 2,147,483,647 seconds.
	text := func(d time.Duration) string {
		return fmt.Sprintf("%d hours %f seconds", d/time.Hour, (d % time.Hour).Seconds())
	}
	for _, option := range posthaste.QueueOptionTable() {
		switch option.Field(&posthaste.QueueOptions{}).(type) {
		case *int:
			o.accepted(option, option.Min)
			o.accepted(option, option.Max)
			o.refused(option, option.Min-1)
			o.refused(option, option.Max+1)
		case *time.Duration:
			o.accepted(option, text(time.Duration(option.Max)))
			o.refused(option, text(time.Duration(option.Max)+time.Second))
			o.refused(option, "-1 second")
		case *posthaste.Mode:
			for _, value := range option.Values {
				o.accepted(option, value)
			}
			o.refused(option, "perhaps")
		case *bool:
			if option.Values != nil {
				o.accepted(option, option.Values[0])
				o.refused(option, "perhaps")
				break
			}
			o.accepted(option, false)
			o.refused(option, 7)
		}
	}
	var want posthaste.QueueOptions
	a.check(want.Complete())
	queues, err := a.Queues(a.ctx, "q")
	a.check(err)
	if is := queues[0].Options; !reflect.DeepEqual(is, want) {
		t.Errorf("without options a queue has %+v, want %+v", is, want)
	}
}

// optionTest creates queues with one option.
type optionTest struct {
	*adminTest
	created int
}

func (o *optionTest) create(name string, value any) error {
	o.created++
	parent, child, nested := strings.Cut(name, ".")
	object := map[string]any{name: value}
	if nested {
		object = map[string]any{parent: map[string]any{child: value}}
	}
	if name == "backoff.base" { // it must not be above the default of max
		object[parent].(map[string]any)["max"] = value
	}
	text, err := json.Marshal(object)
	o.check(err)
	_, err = o.pool.Exec(o.ctx, "select posthaste.create_queue($1, $2::text::jsonb)", fmt.Sprint("option-", o.created), string(text))
	return err
}

func (o *optionTest) refused(option posthaste.QueueOption, value any) {
	o.Helper()
	var e *pgconn.PgError
	parent, child, _ := strings.Cut(option.Name, ".")
	if err := o.create(option.Name, value); !errors.As(err, &e) || e.Code != "PH400" || e.ColumnName != parent && e.ColumnName != child {
		o.Errorf("%s of %v: %v, want PH400 of %s", option.Name, value, err, parent)
	}
}

func (o *optionTest) accepted(option posthaste.QueueOption, value any) {
	o.Helper()
	if err := o.create(option.Name, value); err != nil {
		o.Errorf("%s of %v: %v", option.Name, value, err)
	}
}
