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
	if name := has.Conflict(o); name != "" {
		t.Errorf("a queue with a limit that was not requested conflicts in %q", name)
	}
	wanted := o
	wanted.Timeout, wanted.Limits.Concurrency = time.Minute, 8
	if name := has.Conflict(wanted); name != "timeout" {
		t.Errorf("the first conflict is in %q, want timeout", name)
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
