package quote

import "testing"

func TestName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a": "'a'", "": "''", "a'b''": "'a''b'''''", `a"b`: `'a"b'`} {
		if got := Name(name); got != want {
			t.Errorf("%s is quoted as %s, want %s", name, got, want)
		}
	}
}
