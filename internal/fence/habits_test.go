package fence

import (
	"reflect"
	"testing"
	"testing/fstest"
)

func TestHabits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		want       habits
	}{
		"good": {file: "a/a.go", text: `package a

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"` + module + `"
	ledger "` + module + `/sql"
)

type call struct{ err error }

func f(ctx context.Context, err error) bool { return errors.Is(err, errFull) || len(err.Error()) > 0 }
`},
		"context":  {file: "a/a.go", text: "package a\n\ntype call struct {\n\tctx context.Context\n}\n", want: habits{contexts: []string{"a/a.go:4:2"}}},
		"in tests": {file: "a/a_test.go", text: "package a\n\ntype call struct {\n\tctx context.Context\n}\nvar b = err.Error() == x"},
		"equal":    {file: "a/a.go", text: "package a\n\nvar b = err.Error() == \"full\"\n", want: habits{texts: []string{"a/a.go:3:9"}}},
		"contains": {file: "a/a.go", text: "package a\n\nvar b = strings.Contains(err.Error(), \"full\")\n", want: habits{texts: []string{"a/a.go:3:9"}}},
		"scanned":  {file: "a/a.go", text: "package a\n\nvar _, b = fmt.Sscanf(text, \"%d\", &n)\n", want: habits{texts: []string{"a/a.go:3:12"}}},
		"named":    {file: "a/a.go", text: "package a\n\nimport pgx \"github.com/jackc/pgx/v5\"\n", want: habits{names: []string{"a/a.go:3:8: github.com/jackc/pgx/v5"}}},
		"mixed":    {file: "a/a.go", text: "package a\n\nimport (\n\t\"fmt\"\n\t\"github.com/jackc/pgx/v5\"\n)\n", want: habits{groups: []string{"a/a.go"}}},
		"apart":    {file: "a/a.go", text: "package a\n\nimport (\n\t\"fmt\"\n\n\t\"os\"\n)\n", want: habits{groups: []string{"a/a.go"}}},
		"last":     {file: "a/a.go", text: "package a\n\nimport (\n\t\"" + module + "\"\n\n\t\"os\"\n)\n", want: habits{groups: []string{"a/a.go"}}},
	} {
		found, err := count(fstest.MapFS{c.file: {Data: []byte(c.text)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := found["a"].habits; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
