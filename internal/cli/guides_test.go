package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	// shownCommand is a command in a block, with the lines that continue it.
	shownCommand = regexp.MustCompile(`(?m)^(?:go run \./cmd/)?posthaste ((?:.*\\\n)*.*)$`)
	// namedCommand is a command within a line of prose.
	namedCommand = regexp.MustCompile("`posthaste ([a-z][^`\n]*)`")
	namedFlag    = regexp.MustCompile(`^--([a-z-]+)`)
	// shellWord is a word, or the begin of a comment, a redirection or another command.
	shellWord = regexp.MustCompile(`#|[|<>&;]|(?:'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"|<>&;])+`)
)

// shellWords splits a command of a document. It does not expand anything.
func shellWords(command string) (words []string) {
	for _, w := range shellWord.FindAllString(strings.ReplaceAll(command, "\\\n", " "), -1) {
		if strings.Contains("#|<>&;", w[:1]) {
			break
		}
		words = append(words, strings.NewReplacer(`'`, "", `\"`, `"`, `"`, "").Replace(w))
	}
	return words
}

// The program has each command with its flags and number of arguments as the documents show it,
// also in blocks that no test can run, and each command and flag that prose names.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	root := newProgram(nil).root
	shown, named := 0, 0
	for _, file := range files {
		if strings.Contains(file, "/decisions/") {
			continue // they may be of an earlier time
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllSubmatch(text, -1) {
			for _, m := range shownCommand.FindAllSubmatch(block[1], -1) {
				shown++
				if err := knownCommand(root, shellWords(string(m[1])), true); err != nil {
					t.Errorf("%s shows: posthaste %s: %v", file, m[1], err)
				}
			}
		}
		for _, m := range namedCommand.FindAllSubmatch(text, -1) {
			if string(m[1]) == "doorbell" {
				continue // the name of a connection
			}
			named++
			if err := knownCommand(root, shellWords(string(m[1])), false); err != nil {
				t.Errorf("%s names: posthaste %s: %v", file, m[1], err)
			}
		}
	}
	if shown < 50 || named < 100 {
		t.Errorf("%d commands are shown and %d named", shown, named)
	}
}

// knownCommand looks for a command of the program. A complete one has all its arguments and the
// values of its flags.
func knownCommand(root *cobra.Command, words []string, complete bool) error {
	command, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	command.InitDefaultHelpFlag()
	if !complete {
		if command.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			return fmt.Errorf("%s has no command %q", command.CommandPath(), rest[0])
		}
		for _, word := range rest {
			if m := namedFlag.FindStringSubmatch(word); m != nil && command.Flag(m[1]) == nil && command.InheritedFlags().Lookup(m[1]) == nil {
				return fmt.Errorf("%s has no flag --%s", command.CommandPath(), m[1])
			}
		}
		return nil
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}
