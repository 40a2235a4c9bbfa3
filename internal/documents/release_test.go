package documents

import (
	"archive/tar"
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
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// release builds a release for this machine's processor and returns its folder. env
// is added to the environment.
func release(t *testing.T, version string, env ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("releases are built on Linux")
	}
	dist := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), "scripts/release")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "DIST="+dist, "ARCHES="+runtime.GOARCH, "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000")
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dist
}

// unpack returns the archive's files by their names without the folder.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
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
			if files[filepath.Base(h.Name)], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const releaseVersion = "v0.0.1-test"

// maxProgramSize is somewhat more than the program has today, in bytes.
const maxProgramSize = 48_000_000

func archiveName() string {
	return fmt.Sprintf("posthaste-%s-linux-%s.tar.gz", releaseVersion, runtime.GOARCH)
}

// Two builds of the same commit have the same bytes. The second one compiles
// everything: from the same cache it would only copy what the first one compiled.
func TestReleaseIsReproducible(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "compiles the program and the standard library anew")
	sum := func(env ...string) [sha256.Size]byte {
		archive, err := os.ReadFile(filepath.Join(release(t, releaseVersion, env...), archiveName()))
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(archive)
	}
	if first, second := sum(), sum("GOCACHE="+t.TempDir()); first != second {
		t.Errorf("two builds of one commit differ: %x and %x", first, second)
	}
}

// A release is static, has its version and all files, and its units and container
// start what the program knows.
func TestRelease(t *testing.T) {
	testrun.Nightly(t, "it builds releases")
	t.Parallel()
	const version = releaseVersion
	dist := release(t, version)
	name := archiveName()
	archive, err := os.ReadFile(filepath.Join(dist, name))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(archive), name); err != nil || string(sums) != want {
		t.Errorf("SHA256SUMS has %q, want %q: %v", sums, want, err)
	}

	files := unpack(t, filepath.Join(dist, name))
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "posthaste.env", "Containerfile", "posthaste-serve.service", "posthaste-worker.service"} {
		if len(files[file]) == 0 {
			t.Errorf("there is no %s in it", file)
		}
	}
	program := filepath.Join(t.TempDir(), "posthaste")
	if err := os.WriteFile(program, files["posthaste"], 0o755); err != nil {
		t.Fatal(err)
	}
	if size := len(files["posthaste"]); size > maxProgramSize {
		t.Errorf("the program has %d bytes, at most %d are allowed; list its parts with: go tool nm -size -sort size", size, maxProgramSize)
	}
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
	var said struct{ Version, Platform string }
	out, err := exec.CommandContext(t.Context(), program, "version", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err != nil || said.Version != version || said.Platform != "linux/"+runtime.GOARCH {
		t.Errorf("posthaste version says %s: %v", out, err)
	}

	starts := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/posthaste (.*)$`)
	commands := map[string][]string{}
	for _, unit := range []string{"posthaste-serve.service", "posthaste-worker.service"} {
		if m := starts.FindSubmatch(files[unit]); m != nil {
			commands[unit] = strings.Fields(string(m[1]))
		} else {
			t.Errorf("%s starts nothing", unit)
		}
	}
	var cmd []string
	if m := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindSubmatch(files["Containerfile"]); m == nil || json.Unmarshal(m[1], &cmd) != nil {
		t.Error("the container starts nothing")
	}
	commands["Containerfile"] = cmd
	for file, args := range commands {
		if out, err := exec.CommandContext(t.Context(), program, append(args, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("what %s starts is not understood: posthaste %s: %v\n%s", file, strings.Join(args, " "), err, out)
		}
	}
}
