package jsoncheck

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

func TestWhatMayBeStored(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		`null`: true, `0`: true, `-0.0`: true, `0e0`: true, `0E-324`: true, `1.7976931348623157e308`: true, `-5e-324`: true, `1e0`: true,
		strings.Repeat("9", 308): true, "0." + strings.Repeat("0", 300) + "1": true, `"1e999"`: true, `{"1e999":"\"1e999"}`: true,
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000): true, `"[[[\\"`: true, `"\\u0000 \\\\ud800 \ud83d\ude00 \uffff"`: true, `"�"`: true,
		`1e309`: false, `-1.8e308`: false, `[0,1e999]`: false, `4e-325`: false, `0e325`: false, `0e-9999`: false, `1e99999999999999999999`: false,
		strings.Repeat("9", 310): false, "0." + strings.Repeat("1", 1000): false, strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001): false,
		`"\u0000"`: false, `"\\\u0000"`: false, `"\ud800"`: false, `"\udc00\ud800"`: false, `"\ud800\u0041"`: false, `"\ud83d\\ude00"`: false,
		`{`: false, ``: false, `1 2`: false, "\"\xff\"": false,
	} {
		err := Check("payload", []byte(text))
		if (err == nil) != good {
			t.Errorf("%.60s: %v", text, err)
		}
		if err != nil && (posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.HasPrefix(err.Error(), "payload ")) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// What passes is read by Go, and no check falls over what does not.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`[1e308,-5e-324]`, `"\ud83d\ude00"`, `"\u0000"`, `{"a":[0e1]}`, `1e999`, `"\`, `-`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var value any
		if Check("payload", data) == nil && json.Unmarshal(data, &value) != nil {
			t.Errorf("%q passes, and cannot be read", data)
		}
		Readable(data)
		BadEscape(data)
	})
}
