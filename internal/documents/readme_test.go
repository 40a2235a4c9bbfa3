//go:build unix

package documents_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// patience bounds every wait for a condition; nothing is expected to take it.
const patience = 2 * time.Minute

// shell runs what a page shows, with the program built once and the ports
// of up in place of its defaults.
type shell struct {
	t     *testing.T
	env   []string
	dir   string // in which commands start
	state string // a file with the folder and the variables that a block leaves
	ports *strings.Replacer
	// replaced are further texts and what takes their place.
	replaced []string
}

// program is how the README runs the program, and how it is run here.
const program = "go run ./cmd/posthaste"

// command makes a command of lines as a person pastes them. They stop at the
// first one that fails.
func (s *shell) command(ctx context.Context, lines string) *exec.Cmd {
	lines = strings.ReplaceAll(lines, program, "posthaste")
	if s.ports != nil {
		lines = s.ports.Replace(lines)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euc", lines)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs a block and returns its standard output.
func (s *shell) run(b block) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceOf(b))
	defer cancel()
	text := b.text
	if s.state != "" {
		text = fmt.Sprintf("if test -e '%[1]s'; then . '%[1]s'; fi\n%[2]s\n{ export -p; echo \"cd '$PWD'\"; } > '%[1]s'", s.state, text)
	}
	cmd := s.command(ctx, text)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		s.t.Fatalf("%s: %v\n%s\n%s", b, e, out.String(), err.String())
	}
	return out.String()
}

// missing is the first line that must be shown and is not.
func missing(b block, output string) string {
	for _, line := range b.shows {
		if !strings.Contains(output, line) {
			return line
		}
	}
	return ""
}

// must runs a block and checks its output.
func (s *shell) must(b block) {
	s.t.Helper()
	if output := s.run(b); missing(b, output) != "" {
		s.t.Errorf("%s does not show %q but\n%s", b, missing(b, output), output)
	}
}

// until runs a block until it shows the expected output.
func (s *shell) until(b block) {
	s.t.Helper()
	if len(b.shows) == 0 {
		s.t.Fatalf("%s has no expected output", b)
	}
	var output, line string
	if !testrun.Happens(patience, func() bool {
		output = s.run(b)
		line = missing(b, output)
		return line == ""
	}) {
		s.t.Fatalf("%s does not show %q but\n%s", b, line, output)
	}
}

func find(t *testing.T, all []block, mark string) block {
	t.Helper()
	for _, b := range all {
		if b.mark == mark {
			return b
		}
	}
	t.Fatalf("the page has no block marked %q", mark)
	return block{}
}

// environment builds the program onto the PATH, and leaves out what the
// developer's own environment says of Posthaste but for where PostgreSQL comes
// from.
func environment(t *testing.T) []string {
	t.Helper()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "posthaste"), "./cmd/posthaste")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env := []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		ours := strings.HasPrefix(name, "POSTHASTE_") && name != "POSTHASTE_MAVEN_REPOSITORY" && !strings.HasPrefix(name, "POSTHASTE_TEST_")
		if !ours && name != "PATH" && name != "DATABASE_URL" && name != "SMTP_URL" {
			env = append(env, e)
		}
	}
	return env
}

// upped is what up says, with --json, once everything runs.
type upped struct {
	HTTP     string `json:"http"`
	Caught   string `json:"caught"`
	Database string `json:"database_url"`
	SMTP     string `json:"smtp"`
}

// The default addresses, which the README shows.
const (
	httpDefault     = "127.0.0.1:8484"
	databaseDefault = "127.0.0.1:5484"
	smtpDefault     = "127.0.0.1:1025"
)

// up starts everything by the README's command, on free ports and in a
// directory of the test's own by way of the environment, and stops it with
// Ctrl-C at the end of the test.
func (s *shell) up(b block) upped {
	s.t.Helper()
	s.defaults(b)
	dir := filepath.Join(s.t.TempDir(), "data")
	s.t.Cleanup(func() {
		if err := devpg.Remove(context.Background(), dir); err != nil {
			s.t.Errorf("the cluster cannot be removed: %v", err)
		}
	})
	cmd := s.command(context.Background(), "exec "+strings.TrimSpace(b.text))
	cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], "POSTHASTE_DATA="+dir, "POSTHASTE_JSON=true",
		"POSTHASTE_LISTEN=127.0.0.1:0", "POSTHASTE_POSTGRES_PORT=0", "POSTHASTE_SMTP_LISTEN=127.0.0.1:0")
	var said lockedBuffer
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		killed := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer killed.Stop()
		if err := cmd.Wait(); err != nil || s.t.Failed() {
			s.t.Errorf("%s ended by Ctrl-C: %v\n%s", b, err, said.String())
		}
	})
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- text
	}()
	var u upped
	select {
	case text := <-line:
		if err := json.Unmarshal([]byte(text), &u); err != nil {
			s.t.Fatalf("%s says %q: %v\n%s", b, text, err, said.String())
		}
	case <-time.After(patience):
		s.t.Fatalf("%s does not come up\n%s", b, said.String())
	}
	database, err := url.Parse(u.Database)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ports = strings.NewReplacer(append([]string{httpDefault, strings.TrimPrefix(u.HTTP, "http://"), databaseDefault, database.Host, smtpDefault, u.SMTP}, s.replaced...)...)
	return u
}

// defaults holds the README's addresses against those of the flags.
func (s *shell) defaults(b block) {
	s.t.Helper()
	help := s.run(block{file: b.file, line: b.line, text: strings.TrimSpace(b.text) + " --help"})
	readme := read(s.t, "README.md")
	_, port, _ := strings.Cut(databaseDefault, ":")
	for address, flag := range map[string]string{httpDefault: `"` + httpDefault + `"`, databaseDefault: port, smtpDefault: `"` + smtpDefault + `"`} {
		if !strings.Contains(readme, "`"+address+"`") || !strings.Contains(help, "(default "+flag+")") {
			s.t.Errorf("%s is not the default address both in the README and of up:\n%s", address, help)
		}
	}
}

// lockedBuffer can be read while a process still writes.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
