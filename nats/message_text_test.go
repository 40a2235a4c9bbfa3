package nats

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// FuzzMetaText checks that short headers are written and read as encoding/json does.
func FuzzMetaText(f *testing.F) {
	f.Add(int64(4097), int64(1790000000000000), "", "", "", "application/json", 0, int64(0))
	f.Add(int64(1)<<62, int64(0), "a key", "kind", "ref<&>", "text/plain; charset=\"x\"", 9, int64(1790000000000001))
	f.Add(int64(-1), int64(-5), "ü", "\\", "\x00", "\xff", -1, int64(-7))
	f.Fuzz(func(t *testing.T, id, at int64, key, kind, ref, contentType string, priority int, due int64) {
		m := meta{ID: posthaste.MessageID(id), At: at, Key: key, Kind: kind, Reference: ref, Type: contentType, Priority: priority, Due: due}
		want, err := json.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.text(); string(got) != string(want) {
			t.Errorf("text is %q, want %q", got, want)
		}
		sameRead(t, string(want))
	})
}

// FuzzMetaRead checks that a header read by hand equals one that encoding/json reads.
func FuzzMetaRead(f *testing.F) {
	for _, text := range []string{`{}`, `{"id":"4097","at":17,"type":"application/json"}`, `{"id":"04097"}`, `{"id":"1","id":"2"}`, `{"at":01}`, `{"at":-1}`, `{"at":1e3}`, `{"ID":"7"}`, `{"key":"a}"}`,
		`{"key":"a\"b"}`, `{"key":"ü"}`, `{"at":1,}`, `{"at":1}}`, `{"at":1`, `{"at":1234567890123456789}`, ` {"at":1}`, `{"n":3,"at":1}`, `{"prio":9223372036854775807}`, `{"key":"a"`, `{"key":"a","`, `{,}`} {
		f.Add(text)
	}
	f.Fuzz(sameRead)
}

func sameRead(t *testing.T, text string) {
	var got, want meta
	if !got.read(text) {
		return // encoding/json reads it
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Errorf("%q was read: %v", text, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as %+v, want %+v", text, got, want)
	}
}

// The headers of most messages are read by hand.
func TestShortMeta(t *testing.T) {
	t.Parallel()
	m := meta{ID: 4097, At: 1790000000000000, Key: "k", Kind: "mail", Reference: "r", Type: "application/json", Priority: 3, Due: 1790000000000001}
	text, ok := m.short()
	var back meta
	if !ok || !back.read(string(text)) || !reflect.DeepEqual(back, m) {
		t.Errorf("%s is read as %+v", text, back)
	}
	m.Attempt = 2
	if _, ok := m.short(); ok {
		t.Error("an attempt was left out")
	}
}

// Each field of a message survives, also one that is added later.
func TestEachFieldOfMeta(t *testing.T) {
	t.Parallel()
	kind := reflect.TypeFor[meta]()
	for i := range kind.NumField() {
		m := meta{ID: 4097}
		field := reflect.ValueOf(&m).Elem().Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString("text")
		case reflect.Int, reflect.Int64:
			field.SetInt(7)
		case reflect.Uint64:
			field.SetUint(7)
		case reflect.Map:
			field.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		default:
			t.Fatalf("the test cannot set %s", kind.Field(i).Name)
		}
		stored := m.encoded("subject", nil)
		if back, _, err := decode(stored.Header, stored.Data); err != nil || !reflect.DeepEqual(*back, m) {
			t.Errorf("%s: %+v is read as %+v, %v", kind.Field(i).Name, m, back, err)
		}
	}
}
