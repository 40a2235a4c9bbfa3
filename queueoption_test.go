package posthaste

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Each field of QueueOptions is the field of exactly one option, so that no interface can miss
// one.
func TestEachFieldIsAnOption(t *testing.T) {
	t.Parallel()
	var o QueueOptions
	fields := map[any]string{}
	var collect func(v reflect.Value, name string)
	collect = func(v reflect.Value, name string) {
		if v.Type() == reflect.TypeFor[QueueOptions]() || v.Type() == reflect.TypeFor[QueueLimits]() {
			for i := range v.NumField() {
				collect(v.Field(i), v.Type().Field(i).Name)
			}
			return
		}
		fields[v.Addr().Interface()] = name
	}
	collect(reflect.ValueOf(&o).Elem(), "")
	for _, option := range QueueOptionTable() {
		field := option.Field(&o)
		if fields[field] == "" {
			t.Errorf("option %s has a field that is not in QueueOptions, or that belongs to another option", option.Name)
		}
		delete(fields, field)
		if option.Usage == "" || strings.HasSuffix(option.Usage, ".") {
			t.Errorf("the usage of %s is %q", option.Name, option.Usage)
		}
	}
	for _, name := range fields {
		t.Errorf("field %s is no option", name)
	}
}

func TestQueueOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given QueueOptions
		field string // of the error
	}{
		{QueueOptions{}, ""},
		{QueueOptions{MaxAttempts: 1001}, "max_attempts"},
		{QueueOptions{MaxAttempts: -1}, "max_attempts"},
		{QueueOptions{BackoffBase: 2 * time.Hour}, "backoff"},
		{QueueOptions{BackoffMax: 366 * day}, "backoff"},
		{QueueOptions{Timeout: -time.Second}, "timeout"},
		{QueueOptions{Mode: "perhaps"}, "mode"},
		{QueueOptions{Mode: AtMostOnce, MaxAttempts: 2}, "max_attempts"},
		{QueueOptions{Mode: AtMostOnce, BackoffMax: time.Minute}, "backoff"},
		{QueueOptions{Limits: QueueLimits{RateLimit: Rate{Per: time.Minute}}}, "rate_limit"},
		{QueueOptions{RetainPayload: true}, "retain_payload"},
		{QueueOptions{StopOnDead: true}, "on_dead"},
		{QueueOptions{Ordered: true, Fair: true}, "fair"},
		{QueueOptions{Ordered: true, Mode: AtMostOnce}, "mode"},
		{QueueOptions{Limits: QueueLimits{Concurrency: 1, KeyConcurrency: 2}}, "key_concurrency"},
		{QueueOptions{Limits: QueueLimits{RateLimit: Rate{Limit: 5, Per: time.Microsecond}}}, "rate_limit"},
		{QueueOptions{Limits: QueueLimits{RateLimit: Rate{Limit: 5}, KeyRateLimit: Rate{Limit: 6}}}, "key_rate_limit"},
	} {
		complete := c.given
		err := complete.Complete()
		e, _ := errors.AsType[*Error](err)
		if c.field == "" && err != nil || c.field != "" && (e == nil || e.Code != CodeInvalid || e.Field != c.field) {
			t.Errorf("%+v: %v, want an error of %q", c.given, err, c.field)
		}
	}
	var o QueueOptions
	if err := o.Complete(); err != nil || o.MaxAttempts != 20 || o.BackoffMax != time.Hour || o.Mode != AtLeastOnce || o.Lanes != 1 {
		t.Errorf("completed to %+v: %v", o, err)
	}
	object := QueueOptions{BackoffBase: time.Second, StopOnDead: true, Ordered: true, Limits: QueueLimits{RateLimit: Rate{Limit: 5, Per: time.Minute}}}.Object(time.Duration.String)
	want := map[string]any{"backoff": map[string]any{"base": "1s"}, "ordered": true, "on_dead": "stop", "rate_limit": map[string]any{"limit": 5, "per": "1m0s"}}
	if !reflect.DeepEqual(object, want) {
		t.Errorf("as an object %v, want %v", object, want)
	}
	has := o
	has.Limits.Concurrency = 7
	if d := has.Differences(QueueOptions{}); len(d) != 0 {
		t.Errorf("nothing was requested, and %v differ", d)
	}
	if d := has.Differences(QueueOptions{Timeout: time.Minute, Limits: QueueLimits{Concurrency: 7}}); len(d) != 1 || d[0].String() != "timeout is 30s, requested 1m0s" {
		t.Errorf("%v differ, want timeout", d)
	}
}

func TestQueueOptionsCanBeCopied(t *testing.T) {
	t.Parallel()
	// The options of a queue can be used to create another.
	once := QueueOptions{Mode: AtMostOnce}
	for range 2 {
		if err := once.Complete(); err != nil {
			t.Error(err)
		}
	}
	if object := once.Object(nil); object["max_attempts"] != nil || object["backoff"] != nil {
		t.Errorf("an at-most-once queue is requested as %v", object)
	}
	ordered := QueueOptions{Ordered: true}
	if err := ordered.Complete(); err != nil || ordered.Lanes != 8 {
		t.Errorf("an ordered queue has %d lanes: %v", ordered.Lanes, err)
	}
}

func TestQueueUpdate(t *testing.T) {
	t.Parallel()
	has := QueueOptions{MaxAge: time.Hour, Limits: QueueLimits{RateLimit: Rate{Limit: 60, Per: time.Minute, Burst: 9}}}
	if err := has.Complete(); err != nil {
		t.Fatal(err)
	}
	ordered := QueueOptions{Ordered: true}
	if err := ordered.Complete(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		has    QueueOptions
		update QueueUpdate
		want   string // the changes, or the field and a part of the error
	}{
		{has, QueueUpdate{}, ""},
		{has, QueueUpdate{Options: QueueOptions{Limits: QueueLimits{RateLimit: Rate{Limit: 1}}}}, ""}, // the same rate
		{has, QueueUpdate{Options: QueueOptions{MaxAttempts: 3}, Reset: []string{"max_age", "rate_limit"}},
			"max_attempts is 20, requested 3; max_age is 1h0m0s, requested none; rate_limit is 60/m burst 9, requested none"},
		{has, QueueUpdate{Reset: []string{"backoff"}}, ""},
		{has, QueueUpdate{Options: QueueOptions{Lanes: 4}}, "lanes is 1, requested 4"},
		{has, QueueUpdate{Reset: []string{"color"}}, `color: unknown option "color"`},
		{has, QueueUpdate{Options: QueueOptions{Ordered: true}}, "ordered: "},
		{has, QueueUpdate{Options: QueueOptions{Mode: AtMostOnce}}, "mode: "},
		{has, QueueUpdate{Options: QueueOptions{Limits: QueueLimits{KeyConcurrency: 1}}}, "key_concurrency: "},
		{has, QueueUpdate{Options: QueueOptions{RetainPayload: true}}, "retain_payload: "},
		{ordered, QueueUpdate{Options: QueueOptions{Lanes: 9}}, "lanes: "},
		{ordered, QueueUpdate{Options: QueueOptions{StopOnDead: true, Limits: QueueLimits{KeyRateLimit: Rate{Limit: 5}}}},
			"on_dead is continue, requested stop; key_rate_limit is " + "none, requested 5/s"},
		{ordered, QueueUpdate{Reset: []string{"ordered"}}, "ordered: "},
	} {
		_, changes, err := c.update.Apply("q", c.has)
		var told []string
		for _, change := range changes {
			told = append(told, change.String())
		}
		got := strings.Join(told, "; ")
		if e, ok := errors.AsType[*Error](err); ok {
			got = e.Field + ": " + e.Message
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want) || c.want == "") {
			t.Errorf("%+v: %s, want %s", c.update, got, c.want)
		}
	}
}
