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

func TestIDs(t *testing.T) {
	t.Parallel()
	ids := []int64{1, 2, 3, 4, 5, 6, 7}
	for n, want := range map[int]string{1: "1", 2: "1, 2", 5: "1, 2, 3, 4, 5", 7: "1, 2, 3, 4, 5 and 2 more"} {
		if got := IDs(ids[:n]); got != want {
			t.Errorf("%v are listed as %q, want %q", ids[:n], got, want)
		}
	}
}
