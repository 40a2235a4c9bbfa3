package postgres

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

type codec struct{ posthaste.Codec }

// Each field of a message is one of the schedule's options or rejected. None is accepted and
// ignored.
func TestScheduleTakesOrRefusesEveryFieldOfAMessage(t *testing.T) {
	t.Parallel()
	elsewhere := []string{"Queue", "Payload"} // passed as separate arguments
	values := map[reflect.Type]reflect.Value{
		reflect.TypeFor[string](): reflect.ValueOf("x"), reflect.TypeFor[bool](): reflect.ValueOf(true), reflect.TypeFor[int](): reflect.ValueOf(1),
		reflect.TypeFor[map[string]string](): reflect.ValueOf(map[string]string{"a": "b"}), reflect.TypeFor[[]string](): reflect.ValueOf([]string{"a"}),
		reflect.TypeFor[time.Duration](): reflect.ValueOf(time.Minute), reflect.TypeFor[time.Time](): reflect.ValueOf(time.Now()),
		reflect.TypeFor[posthaste.Backoff](): reflect.ValueOf(posthaste.Backoff{Base: time.Second}),
		reflect.TypeFor[*posthaste.Unique](): reflect.ValueOf(&posthaste.Unique{Key: "k"}),
	}
	fields := reflect.VisibleFields(reflect.TypeFor[posthaste.Message]())
	for _, field := range fields {
		if slices.Contains(elsewhere, field.Name) {
			continue
		}
		s := posthaste.Schedule{Name: "s", Spec: "@daily", Message: posthaste.Message{Queue: "q"}}
		if field.Name == "Codec" {
			s.Message.Codec = codec{}
			if s.Check() == nil {
				t.Error("a codec is accepted and ignored")
			}
			continue
		}
		value, ok := values[field.Type]
		if !ok {
			t.Errorf("field %s: no value of its type %s to try it with", field.Name, field.Type)
			continue
		}
		reflect.ValueOf(&s.Message).Elem().FieldByIndex(field.Index).Set(value)
		if s.Check() == nil && len(scheduleOptions(s)) == 0 {
			t.Errorf("field %s of a schedule's message is accepted and ignored", field.Name)
		}
	}
	if len(fields) < 10 {
		t.Errorf("only %d fields", len(fields))
	}
}
