package posthaste

import "testing"

// ParseRate accepts only valid rates, and a parsed rate formats to text that parses to the
// same rate.
func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"50/s", "100/m", "5/10s", "50/s burst 100", " 1 / h burst 1 ", "1/1h30m", "0/s", "-1/s", "1/0s", "1/-1s", "1/s burst 0", "1", "1/", "/s", "1/ms", "1/2562048h", "9223372036854775808/s", "1/s burst"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRate(text)
		if err != nil {
			if r != (Rate{}) || err.Error() == "" {
				t.Fatalf("%q is refused with %v, and is %+v", text, err, r)
			}
			return
		}
		if r.Limit < 1 || r.Per <= 0 || r.Burst < 0 {
			t.Fatalf("%q became %+v", text, r)
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Fatalf("%q is %+v, written %q, and that is %+v, %v", text, r, r.String(), again, err)
		}
	})
}
