package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The files of relays, sources and queues that the guides show are valid.
func TestFilesInTheGuides(t *testing.T) {
	t.Setenv("MQ_PASSWORD", "secret")
	shown := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	relays := func(file string) error {
		_, _, err := readRelays(file, "amqp://guest:guest@localhost/")
		return err
	}
	queues := func(file string) error {
		_, err := readDeclaration(file)
		return err
	}
	for page, read := range map[string]func(file string) error{"relay.md": relays, "sources.md": relays, "queue-options.md": queues} {
		text, err := os.ReadFile(filepath.Join("../../docs/guides", page))
		if err != nil {
			t.Fatal(err)
		}
		files := shown.FindAllSubmatch(text, -1)
		if len(files) == 0 {
			t.Errorf("%s shows no file", page)
		}
		for _, m := range files {
			file := filepath.Join(t.TempDir(), page)
			if err := os.WriteFile(file, m[1], 0o600); err != nil {
				t.Fatal(err)
			}
			if err := read(file); err != nil {
				t.Errorf("%v in\n%s", err, m[1])
			}
		}
	}
}
