package brokers

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// keys returns the keys of a configuration in a file of relays.
func keys(t reflect.Type) (all []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		switch name, option, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); {
		case option == "inline":
			all = append(all, keys(t.Field(i).Type)...)
		case name != "" && name != "-":
			all = append(all, name)
		}
	}
	return all
}

// read returns a document of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between returns the part of a text that begins with a mark and ends before the next match
// of end.
func between(t *testing.T, text, mark, end string) string {
	t.Helper()
	_, part, found := strings.Cut(text, mark)
	if !found {
		t.Errorf("the document has no %q", mark)
	}
	if at := regexp.MustCompile(end).FindStringIndex(part); at != nil {
		part = part[:at[0]]
	}
	return part
}

// The documents name every broker, the schemes of its URLs, and the keys of its sink and its
// source, and no keys of another one.
func TestDocumented(t *testing.T) {
	t.Parallel()
	readme, relays, sources := read(t, "README.md"), read(t, "docs/guides/relay.md"), read(t, "docs/guides/sources.md")
	same := between(t, relays, "### All brokers\n", `\n###? `)
	every := between(t, sources, "| key | meaning | default |", `\| \*\*`)
	for _, k := range All {
		if !strings.Contains(readme, k.Name) {
			t.Errorf("README.md does not name %s", k.Name)
		}
		section := between(t, relays, "### "+k.Name+"\n", `\n###? `)
		config, _ := k.Sink("")
		compare(t, "docs/guides/relay.md", k, section, same, keys(reflect.TypeOf(config)))
		if k.Source != nil {
			config, _ = k.Source("")
			compare(t, "docs/guides/sources.md", k, between(t, sources, "| **"+k.Name+":** ", `\| \*\*|\n\n`), every, keys(reflect.TypeOf(config)))
		}
		for _, scheme := range k.Schemes {
			if !strings.Contains(relays, "`"+scheme+"://") && !strings.Contains(relays, ": "+scheme+"://") {
				t.Errorf("docs/guides/relay.md does not show a URL with %s://", scheme)
			}
		}
	}
}

// firstCell matches the first cell of a row of a table, and quoted a name in it.
var (
	firstCell = regexp.MustCompile(`(?m)^(?:\| )?(` + "`[^|]*`" + `) \|`)
	quoted    = regexp.MustCompile("`([a-z_]+)`")
)

// compare compares the keys of a configuration with those of the tables in the section of
// its broker. Keys in shared need no row there.
func compare(t *testing.T, file string, k *Kind, section, shared string, keys []string) {
	t.Helper()
	var rows []string
	for _, row := range firstCell.FindAllStringSubmatch(section, -1) {
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			rows = append(rows, name[1])
		}
	}
	for _, key := range keys {
		if !slices.Contains(rows, key) && !strings.Contains(shared, "`"+key+"`") {
			t.Errorf("%s has no row for the key %s of %s", file, key, k.Name)
		}
	}
	for _, key := range rows {
		if !slices.Contains(keys, key) && !strings.Contains(shared, "`"+key+"`") {
			t.Errorf("%s has a row for %s, which is not a key of %s", file, key, k.Name)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	if got, want := List(func(k *Kind) string { return k.Word }), "rabbitmq, kafka, nats or redis"; got != want {
		t.Errorf("List returns %q, want %q", got, want)
	}
	for _, scheme := range Schemes() {
		if OfScheme(scheme) == nil {
			t.Errorf("no kind has the scheme %s", scheme)
		}
	}
	if k := OfScheme("mqtt"); k != nil {
		t.Errorf("mqtt:// is taken for %s", k.Name)
	}
}
