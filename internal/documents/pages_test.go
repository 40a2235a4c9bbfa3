//go:build unix

package documents_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// runPages are the pages whose commands are run, in this order.
func runPages(t *testing.T) []string {
	t.Helper()
	start, err := filepath.Glob(filepath.Join(root, "docs", "start", "*.md"))
	if err != nil || len(start) == 0 {
		t.Fatal(start, err)
	}
	pages := []string{"README.md"}
	for _, path := range start {
		pages = append(pages, "docs/start/"+filepath.Base(path))
	}
	return append(pages, "docs/leaving.md")
}

// brokerDefault is the broker that the pages use.
const brokerDefault = "amqp://guest:guest@localhost/"

// savedAs separates the file of a quote from the name under which the reader saves it.
const savedAs = ", saved as "

// The marks of blocks that run after up.
const (
	afterUp        = "run: after up"
	afterUpUntil   = "run: after up, until it shows"
	afterUpAtNight = "run: after up, at night"
)

// patienceOf bounds one block. Those that run at night may compile or take their time.
func patienceOf(b block) time.Duration {
	if strings.Contains(b.mark, "night") {
		return 4 * patience
	}
	return patience
}

// TestReadme runs the commands of the README and the pages for new users, in their order and after
// one up: a mail is sent and seen, and the other commands run.
func TestReadme(t *testing.T) {
	t.Parallel()
	first := &shell{t: t, env: environment(t), dir: root}
	u := first.up(find(t, blocks(t, "README.md"), "run: up"))
	ran := 0
	for _, file := range runPages(t) {
		s := *first
		if file != "README.md" {
			s.dir = t.TempDir()
			s.state = filepath.Join(t.TempDir(), "state")
		}
		for _, b := range blocks(t, file) {
			switch b.mark {
			case afterUp:
				s.must(b)
				ran++
			case afterUpUntil:
				s.until(b)
				ran++
			}
		}
		if file == "README.md" {
			seesTheMail(&s, u)
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks of commands ran", ran)
	}
}

// seesTheMail checks that the mail that the README sends was caught.
func seesTheMail(s *shell, u upped) {
	s.t.Helper()
	seen := s.run(block{file: "/caught", text: "curl --silent --fail -H 'Accept: application/json' " + u.Caught})
	var mails []struct {
		To      []string `json:"to"`
		Subject string   `json:"subject"`
	}
	if err := json.Unmarshal([]byte(seen), &mails); err != nil || len(mails) != 1 || mails[0].Subject != "Your order" || mails[0].To[0] != "ada@example.com" {
		s.t.Errorf("/caught does not show the mail (%v) but\n%s", err, seen)
	}
}

// TestPagesOnADatabase runs the commands that need only a database, each page with its own.
func TestPagesOnADatabase(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, file := range runPages(t) {
		var s *shell
		for _, b := range blocks(t, file) {
			if b.mark != "run: on a database" {
				continue
			}
			if s == nil {
				s = &shell{t: t, env: append(environment(t), "DATABASE_URL="+testpg.New(t)), dir: t.TempDir(), state: filepath.Join(t.TempDir(), "state")}
				s.run(block{file: file, text: "posthaste queue create emails\nposthaste schedule put daily emails '@daily' '{}'\n"})
			}
			s.must(b)
			ran++
		}
	}
	if ran < 4 {
		t.Errorf("only %d blocks ran", ran)
	}
}

// maxQuickstart is how long a quickstart may take on a machine that has nothing but the
// program, the Go toolchain and its modules.
const maxQuickstart = 5 * time.Minute

// TestDR1_Quickstarts types each quickstart as it is shown, from an empty folder and without a
// downloaded PostgreSQL, and takes the time. At full size the caches of Go are empty, too.
func TestDR1_Quickstarts(t *testing.T) {
	testrun.Nightly(t, "downloads PostgreSQL for each quickstart, and needs RabbitMQ; on each change their blocks run after one up")
	env := environment(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "start", "quickstart-*.md"))
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		file := "docs/start/" + filepath.Base(path)
		t.Run(filepath.Base(path), func(t *testing.T) {
			testrun.Timed(t, maxQuickstart, func() (fault string) {
				s := &shell{t: t, dir: t.TempDir(), state: filepath.Join(t.TempDir(), "state"),
					env: slices.Concat(env, goCaches(t), []string{"XDG_CACHE_HOME=" + t.TempDir()})}
				begun := time.Now()
				s.quickstart(file, module)
				took := time.Since(begun).Round(time.Second)
				t.Logf("%s took %s", file, took)
				if took > maxQuickstart {
					return fmt.Sprintf("%s took %s, at most %s are allowed", file, took, maxQuickstart)
				}
				return ""
			})
		})
	}
}

// goCaches are the settings of the caches of Go: those of this machine, or at full size new ones.
func goCaches(t *testing.T) []string {
	t.Helper()
	if testrun.Full() {
		dir := t.TempDir()
		return []string{"GOCACHE=" + filepath.Join(dir, "build"), "GOMODCACHE=" + filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw"}
	}
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	build, modules, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	return []string{"GOCACHE=" + build, "GOMODCACHE=" + modules}
}

// quickstart runs the blocks of a page. module is the folder of this module, in place of its
// published version.
func (s *shell) quickstart(file, module string) {
	s.t.Helper()
	var u upped
	for _, b := range blocks(s.t, file) {
		b.text = strings.ReplaceAll(b.text, "go mod init hello", "go mod init hello && go mod edit -replace github.com/posthaste-mq/posthaste="+module)
		switch b.mark {
		case "run: up":
			u = s.up(b)
		case "run: up, with a broker":
			rabbit, err := devbroker.StartRabbitMQ(s.t.Context(), s.t.TempDir())
			if err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(rabbit.Stop)
			s.replaced = []string{brokerDefault, rabbit.URL()}
			s.ports = strings.NewReplacer(s.replaced...)
			u = s.up(b)
		case afterUp, afterUpAtNight, "run: after up, with a broker":
			s.must(b)
		case afterUpUntil, "run: after up, with a broker, until it shows":
			s.until(b)
		case "run: psql":
			if line := missing(b, psql(s.t, u.Database, b.text)); line != "" {
				s.t.Errorf("%s does not show %q", b, line)
			}
		default:
			if quoted, is := strings.CutPrefix(b.mark, "quote: "); is {
				_, name, _ := strings.Cut(quoted, savedAs)
				s.run(block{file: b.file, line: b.line, text: "cat > " + name + " <<'END_OF_FILE'\n" + b.text + "END_OF_FILE\n"})
			}
		}
	}
}
