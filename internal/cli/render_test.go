package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
)

// run runs the program with arguments. show replaces what the command version does.
func run(t *testing.T, show func(a *app) error, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := newProgram(nil)
	command, _, err := p.root.Find([]string{"version"})
	if err != nil {
		t.Fatal(err)
	}
	command.RunE = func(*cobra.Command, []string) error { return show(p.app) }
	return p.run(t.Context(), append([]string{"version"}, args...)...)
}

var shownPage = page{shown: []map[string]any{{"id": "1", "text": "<b>"}, {"id": "2", "at": []int{1, 2}}}, none: "none", next: 4711}

// A result appears in the format that is asked for. Flags override variables.
func TestFormats(t *testing.T) {
	list := func(a *app) error {
		return shownPage.print(a, 2, func(w *screen) { table(w, "ID", func(row func(...any)) { row("1"); row("2") }) })
	}
	const (
		inTable = "ID\n1\n2\n"
		inJSON  = `{"data":[{"id":"1","text":"<b>"},{"at":[1,2],"id":"2"}],"next":"4711","has_more":true}` + "\n"
		inJSONL = `{"id":"1","text":"<b>"}` + "\n" + `{"at":[1,2],"id":"2"}` + "\n"
		inYAML  = "data:\n  - id: \"1\"\n    text: <b>\n  - at:\n      - 1\n      - 2\n    id: \"2\"\nnext: \"4711\"\nhas_more: true\n"
	)
	for _, c := range []struct{ args, output, json, want string }{
		{"", "", "", inTable},
		{"-o table", "", "", inTable},
		{"-o json", "", "", inJSON},
		{"--json", "", "", inJSON},
		{"-o jsonl", "", "", inJSONL},
		{"--output=yaml", "", "", inYAML},
		{"--json -o json", "", "", inJSON},
		{"--json=false -o yaml", "", "", inYAML},
		{"", "yaml", "", inYAML},
		{"", "yaml", "true", inYAML},
		{"", "", "true", inJSON},
		{"--json", "yaml", "", inJSON},
		{"--json=false", "", "true", inTable},
		{"-o jsonl", "", "true", inJSONL},
	} {
		t.Setenv("POSTHASTE_OUTPUT", c.output)
		t.Setenv("POSTHASTE_JSON", c.json)
		stdout, stderr, code := run(t, list, strings.Fields(c.args)...)
		if stdout != c.want || stderr != "… more: --before 4711\n" || code != 0 {
			t.Errorf("%q with %q and %q prints %q and %q, code %d, want %q", c.args, c.output, c.json, stdout, stderr, code, c.want)
		}
	}
	for args, want := range map[string]string{
		"-o xml":           `--output must be table or json or yaml or jsonl, got xml`,
		"--json -o yaml":   "--json contradicts --output yaml",
		"--output= --json": "--output must be",
	} {
		stdout, stderr, code := run(t, list, strings.Fields(args)...)
		if stdout != "" || !strings.Contains(stderr, want) || code != exitUsage {
			t.Errorf("%q prints %q and %q, code %d", args, stdout, stderr, code)
		}
	}
}

// Errors have the same format as results.
func TestFormatsOfErrors(t *testing.T) {
	t.Parallel()
	fail := func(*app) error {
		return &posthaste.Error{Code: posthaste.CodeRefused, Field: "x", Message: "no", Hint: "stop"}
	}
	for format, want := range map[string]string{
		"table": "posthaste: no\n  stop\n",
		"json":  `{"error":{"code":"refused","field":"x","message":"no","hint":"stop"}}` + "\n",
		"jsonl": `{"error":{"code":"refused","field":"x","message":"no","hint":"stop"}}` + "\n",
		"yaml":  "error:\n  code: refused\n  field: x\n  message: \"no\"\n  hint: stop\n",
	} {
		if stdout, stderr, code := run(t, fail, "-o", format); stdout != "" || stderr != want || code != exitFailed {
			t.Errorf("%s: %q and %q, code %d, want %q", format, stdout, stderr, code, want)
		}
	}
}

// YAML has the values of JSON, whatever they are.
func TestYAMLIsTheJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, `true`, `[]`, `{}`, `{"a":{},"b":[]}`, `[[],[[1]]]`, `"4711"`, `"true"`, `"null"`, `"~"`, `"yes"`, `"1e3"`, `"0x10"`, `"2026-01-02"`, `"1:30"`, `""`, `" "`, `"- a"`, `"a: b"`, `"#"`,
		`"a\nb\n"`, `"\n"`, `" a\n b"`, `"\ttab\n"`, `"\na"`, `"a\n\n"`, `["\n a"]`, `["a\n\tb"]`, `"no"`, `"="`, `"<<"`, `{"<<":1,"no":2,"=":3}`, `"\u001b[2J"`, `"\ud83d\ude00"`, `"\u2028"`, `"\u0000"`, `"\r\n"`, `{"` + strings.Repeat("k", 3000) + `":1}`, `{"4711":1,"a b":"c"}`, `12.5`, `-0.25`, `123456`, `"ü"`, `{"<":"&"}`,
	} {
		var out bytes.Buffer
		if err := encodeYAML(&out, json.RawMessage(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var want, got any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
			t.Errorf("%s becomes %q: %v", text, &out, err)
			continue
		}
		if number, is := got.(int); is {
			got = float64(number)
		}
		if got, err := json.Marshal(got); err != nil || !reflect.DeepEqual(decoded(t, got), want) {
			t.Errorf("%s becomes %q, %v", text, &out, err)
		}
	}
}

func decoded(t *testing.T, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// Several documents of YAML are separate.
func TestYAMLDocuments(t *testing.T) {
	t.Parallel()
	stdout, _, _ := run(t, func(a *app) error {
		_ = a.print([]int{1}, nil)
		return a.print([]int{2}, nil)
	}, "-o", "yaml")
	if want := "- 1\n---\n- 2\n"; stdout != want {
		t.Errorf("%q, want %q", stdout, want)
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &screen{now: now}
	for d, want := range map[time.Duration]string{
		0: "0s ago", 900 * time.Millisecond: "0s ago", -900 * time.Millisecond: "0s ago", -time.Second: "in 1s",
		59 * time.Second: "59s ago", 3*time.Minute + 59*time.Second: "3m ago", -2 * time.Hour: "in 2h", 47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago",
		-400 * 24 * time.Hour: "in 400d", 3 * 366 * 24 * time.Hour: "3y ago",
	} {
		if got := w.ago(now.Add(-d)); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
	if got := w.ago(time.Time{}); got != "" {
		t.Errorf("no time is %q", got)
	}
}

// Columns are as wide as their text appears, with and without colors.
func TestTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	show := func(color bool) string {
		var out bytes.Buffer
		w := &screen{Writer: &out, now: now, color: color}
		table(w, "ID STATE AT KEY", func(row func(...any)) {
			row(1, styled{"dead", red}, now.Add(-time.Hour), "日本")
			row(22, "ready", time.Time{}, "a\x1b[2J\nb")
			row(3, "", "", "")
		})
		fields(w, "created", now.Add(-time.Minute), "empty", "", "never", time.Time{}, "state", styled{"done", green})
		return out.String()
	}
	want := "ID  STATE  AT      KEY\n" +
		"1   dead   1h ago  日本\n" +
		"22  ready          a [2J b\n" +
		"3\n" +
		"created  2026-01-02T03:03:05.000Z (1m ago)\n" +
		"state    done\n"
	if got := show(false); got != want {
		t.Errorf("without colors:\n%s\nwant\n%s", got, want)
	}
	colored := strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "").Replace(show(true))
	if colored != want {
		t.Errorf("with colors:\n%q\nwant\n%q", colored, want)
	}
	if !strings.Contains(show(true), "\x1b[31mdead\x1b[0m   1h ago") {
		t.Errorf("with colors: %q", show(true))
	}
}

// Colors appear only on a terminal, and not with NO_COLOR.
func TestColor(t *testing.T) {
	shown := func(terminal bool) string {
		var out bytes.Buffer
		a := &app{stdout: &out, stderr: &out, terminal: func() bool { return terminal }}
		if err := a.print(1, func(w *screen) { table(w, "ID", func(row func(...any)) { row(1) }) }); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !strings.Contains(shown(true), "\x1b[") || strings.Contains(shown(false), "\x1b[") {
		t.Errorf("on a terminal %q, elsewhere %q", shown(true), shown(false))
	}
	t.Setenv("NO_COLOR", "1")
	if strings.Contains(shown(true), "\x1b[") {
		t.Errorf("with NO_COLOR: %q", shown(true))
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if strings.Contains(shown(true), "\x1b[") {
		t.Errorf("with TERM=dumb: %q", shown(true))
	}
}
