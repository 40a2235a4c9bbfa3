//go:build unix

package documents_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// TestMain removes the release that tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(sharedRelease)
	os.Exit(code)
}

const (
	releaseVersion = "v0.0.1-rc.1"
	releaseNumber  = "0.0.1-rc.1"
	debVersion     = "0.0.1~rc.1"
	// maxProgramSize is somewhat more than the program has today, in bytes.
	maxProgramSize = 52_000_000
)

// buildRelease builds a release of the work tree source into dist. It has the given platforms.
func buildRelease(source, dist, platforms string, env ...string) error {
	cmd := exec.Command("go", "run", ".", "-version", releaseVersion, "-dist", dist, "-platforms", platforms)
	cmd.Dir = filepath.Join(source, "release")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// git runs a command of git in this module and returns its output.
func git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// sharedRelease is the folder with the release of this machine's processor, and sharedCommit the
// commit that was checked out when its build began.
var (
	sharedRelease, sharedCommit string

	buildShared = sync.OnceValue(func() (err error) {
		if sharedRelease, err = os.MkdirTemp("", "posthaste-dist-"); err != nil {
			return err
		}
		if sharedCommit, err = git("rev-parse", "HEAD"); err != nil {
			return err
		}
		return buildRelease(root, sharedRelease, "linux/"+runtime.GOARCH)
	})
)

// release returns the folder of a release for this machine's processor, which it builds once.
func release(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the programs for Linux are tested on Linux")
	}
	if err := buildShared(); err != nil {
		t.Fatal(err)
	}
	return sharedRelease
}

// untar returns the regular files of an archive by their names. Everything in it belongs to root.
func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		if h.Typeflag == tar.TypeReg {
			if files[h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func gunzip(t *testing.T, packed []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A release has all its files with their checksums. Its program is static and has its version and
// commit, and its units and its image start what the program knows.
func TestRelease(t *testing.T) {
	testrun.Nightly(t, "it builds releases")
	t.Parallel()
	dist := release(t)
	name := fmt.Sprintf("posthaste-%s-linux-%s", releaseNumber, runtime.GOARCH)
	var sums strings.Builder
	for _, file := range []string{"posthaste-" + releaseNumber + "-image.tar", name + ".cdx.json", name + ".tar.gz", "posthaste-" + releaseNumber + ".tgz",
		"posthaste_" + debVersion + "_" + runtime.GOARCH + ".deb"} {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(readFile(t, dist, file)), file)
	}
	got := regexp.MustCompile(`(?m)^.*  compose\.yaml\n`).ReplaceAllString(string(readFile(t, dist, "SHA256SUMS")), "")
	if got != sums.String() {
		t.Errorf("SHA256SUMS has\n%s\nwant compose.yaml and\n%s", got, sums.String())
	}

	files := untar(t, gunzip(t, readFile(t, dist, name+".tar.gz")))
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "posthaste.env", "Containerfile", "posthaste-serve.service", "posthaste-worker.service"} {
		if len(files[name+"/"+file]) == 0 {
			t.Errorf("the archive has no %s", file)
		}
	}
	program := filepath.Join(t.TempDir(), "posthaste")
	if err := os.WriteFile(program, files[name+"/posthaste"], 0o755); err != nil {
		t.Fatal(err)
	}
	if size := len(files[name+"/posthaste"]); size > maxProgramSize {
		t.Errorf("the program has %d bytes, at most %d are allowed; list its parts with: go tool nm -size -sort size", size, maxProgramSize)
	}
	checkStatic(t, program)
	checkVersion(t, program)

	starts := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/posthaste (.*)$`)
	for _, unit := range []string{"posthaste-serve.service", "posthaste-worker.service"} {
		m := starts.FindSubmatch(files[name+"/"+unit])
		if m == nil {
			t.Fatalf("%s starts nothing", unit)
		}
		knows(t, program, unit, strings.Fields(string(m[1])))
	}
	var cmd []string
	if m := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindSubmatch(files[name+"/Containerfile"]); m == nil || json.Unmarshal(m[1], &cmd) != nil {
		t.Error("the container starts nothing")
	}
	knows(t, program, "Containerfile", cmd)
}

// knows checks that the program has the command and the flags.
func knows(t *testing.T, program, file string, args []string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, append(args, "--help")...).CombinedOutput(); err != nil {
		t.Errorf("the program rejects what %s starts: posthaste %s: %v\n%s", file, strings.Join(args, " "), err, out)
	}
}

func checkStatic(t *testing.T, program string) {
	t.Helper()
	binary, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program is not static: it has %s", p.Type)
		}
	}
}

func checkVersion(t *testing.T, program string) {
	t.Helper()
	said := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), program, args...).Output()
		if err != nil {
			t.Errorf("posthaste %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	var v struct{ Version, Commit, Platform string }
	if err := json.Unmarshal([]byte(said("version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != releaseVersion || strings.TrimSuffix(v.Commit, "-dirty") != sharedCommit || v.Platform != "linux/"+runtime.GOARCH {
		t.Errorf("posthaste version says %+v, want %s of %s", v, releaseVersion, sharedCommit)
	}
	line := said("version")
	if flag := said("--version"); flag != line || !strings.Contains(line, sharedCommit) {
		t.Errorf("posthaste --version says %q, posthaste version %q, of commit %s", flag, line, sharedCommit)
	}
}

// The list of components names the libraries of the program, and none of the tools that build it.
func TestReleaseListsComponents(t *testing.T) {
	testrun.Nightly(t, "it builds releases")
	t.Parallel()
	var list struct {
		BomFormat, SpecVersion string
		Metadata               struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(readFile(t, release(t), fmt.Sprintf("posthaste-%s-linux-%s.cdx.json", releaseNumber, runtime.GOARCH)), &list); err != nil {
		t.Fatal(err)
	}
	if c := list.Metadata.Component; list.BomFormat != "CycloneDX" || c.Name != "github.com/posthaste-mq/posthaste" || c.Version != releaseVersion {
		t.Errorf("it is %s %s of %+v", list.BomFormat, list.SpecVersion, c)
	}
	versions := map[string]string{}
	for _, c := range list.Components {
		if c.Version == "" || !strings.HasPrefix(c.Purl, "pkg:golang/") {
			t.Errorf("%s has version %q and URL %q", c.Name, c.Version, c.Purl)
		}
		versions[c.Name] = c.Version
	}
	for _, want := range []string{"std", "github.com/jackc/pgx/v5", "github.com/spf13/cobra"} {
		if versions[want] == "" {
			t.Errorf("it does not name %s", want)
		}
	}
	for _, tool := range []string{"github.com/goreleaser/nfpm/v2", "github.com/google/go-containerregistry"} {
		if versions[tool] != "" {
			t.Errorf("the program contains %s", tool)
		}
	}
}

// Two builds of the same commit, from two clones in different folders and two empty caches of Go,
// are byte-equal in all files.
func TestDR5_TwoBuildsAreEqual(t *testing.T) {
	testrun.Nightly(t, "compiles the program, its libraries and the standard library without a cache")
	if runtime.GOOS != "linux" {
		t.Skip("releases are compared on Linux")
	}
	platforms := testrun.Size("linux/"+runtime.GOARCH, "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64")
	settings, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Modules that were downloaded before are unpacked and verified again, and not downloaded.
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(settings)), "\n")
	proxy = "file://" + filepath.ToSlash(cache) + "/cache/download," + proxy
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	build := func(depth string, env ...string) string {
		dir := t.TempDir()
		clone, dist := filepath.Join(dir, depth, "clone"), filepath.Join(dir, "dist")
		if _, err := git("clone", "--quiet", "--no-local", "--no-checkout", ".", clone); err != nil {
			t.Fatal(err)
		}
		if _, err := git("-C", clone, "checkout", "--quiet", "--detach", commit); err != nil {
			t.Fatal(err)
		}
		env = append(env, "GOCACHE="+filepath.Join(dir, "build"), "GOMODCACHE="+filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw", "GOPROXY="+proxy)
		if err := buildRelease(clone, dist, platforms, env...); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(filepath.Join(dir, "build"))
		return dist
	}
	first, second := build("a"), build("another/folder", "TZ=Pacific/Auckland", "LC_ALL=C")
	sums := readFile(t, first, "SHA256SUMS")
	for line := range strings.Lines(string(sums)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if !bytes.Equal(readFile(t, first, name), readFile(t, second, name)) {
			t.Errorf("%s differs between two builds of one commit", name)
		}
	}
	if !bytes.Equal(sums, readFile(t, second, "SHA256SUMS")) {
		t.Error("SHA256SUMS differs between two builds of one commit")
	}
}
