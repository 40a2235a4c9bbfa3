package nats

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
)

// The table of differences lists the capabilities that the engine does not have, and no others.
func TestDifferencesAreInTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/production/nats-engine.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, missing []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]*)` \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1])
	}
	can := reflect.ValueOf((&Engine{}).Capabilities())
	for i := range can.NumField() {
		if !can.Field(i).Bool() {
			missing = append(missing, can.Type().Field(i).Name)
		}
	}
	slices.Sort(listed)
	slices.Sort(missing)
	if !slices.Equal(listed, missing) || len(missing) == 0 {
		t.Errorf("docs/production/nats-engine.md lists %q, and the engine lacks %q", listed, missing)
	}
}
