// Command release builds what a release of Posthaste consists of, into one folder: programs,
// packages, an image, a chart, lists of components, and checksums over all of them.
//
//	cd release && go run . -version v0.1.0 -dist ../dist
//
// Two builds of the same commit by the same version of Go are byte-equal: every time stamp is
// that of the commit (or SOURCE_DATE_EPOCH), every list is sorted, and nothing of the machine is
// copied.
//
// It is a module of its own, so that its libraries are not dependencies of the product.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// platforms are those for which a release has a program.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	root := flags.String("root", "..", "`folder` of the repository")
	dist := flags.String("dist", "../dist", "`folder` to write to; it is emptied first")
	version := flags.String("version", "", "`version`, such as v0.1.0 (default: of the tag, by git describe)")
	targets := flags.String("platforms", platforms, "comma-separated `list` of systems and processors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := newRelease(*root, *dist, *version)
	if err != nil {
		return err
	}
	if r.platforms, err = parsePlatforms(*targets); err != nil {
		return err
	}
	return r.build(os.Stdout)
}

// release is one release that is being built.
type release struct {
	root, dist string
	work       string // for files that are not part of the release
	tag        string // the version with a v: what the program reports
	version    string // the version without it: what files are named by
	commit     string
	time       time.Time // of the commit
	platforms  []platform
}

// semantic is a semantic version as Go writes it. The versions of packages and charts follow it.
var semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

type platform struct{ os, arch string }

func parsePlatforms(list string) ([]platform, error) {
	var parsed []platform
	for name := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok {
			return nil, fmt.Errorf("platform %q is not of the form linux/amd64", name)
		}
		parsed = append(parsed, platform{system, arch})
	}
	return parsed, nil
}

func newRelease(root, dist, version string) (r release, err error) {
	if r.root, err = filepath.Abs(root); err != nil {
		return r, err
	}
	if r.dist, err = filepath.Abs(dist); err != nil {
		return r, err
	}
	if inside, err := filepath.Rel(r.dist, r.root); err == nil && filepath.IsLocal(inside) {
		return r, fmt.Errorf("-dist %s contains the repository, and would be emptied", r.dist)
	}
	if version == "" {
		if version, err = r.git("describe", "--tags", "--always", "--dirty"); err != nil {
			return r, err
		}
	}
	if !semantic.MatchString(version) {
		return r, fmt.Errorf("version %q is not of the form v0.1.0 or v0.1.0-rc.1; give one with: make release VERSION=v0.1.0", version)
	}
	r.tag, r.version = version, strings.TrimPrefix(version, "v")
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return r, err
	}
	changed, err := r.git("status", "--porcelain")
	if err != nil {
		return r, err
	}
	if changed != "" {
		r.commit += "-dirty"
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		if epoch, err = r.git("log", "-1", "--format=%ct"); err != nil {
			return r, err
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return r, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds", epoch)
	}
	r.time = time.Unix(seconds, 0).UTC()
	return r, nil
}

func (r release) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// build writes all files. The image and the packages have the programs for Linux.
func (r release) build(log io.Writer) error {
	var err error
	if r.work, err = os.MkdirTemp("", "posthaste-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.RemoveAll(r.dist); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return err
	}
	for _, p := range r.platforms {
		fmt.Fprintf(log, "%s/%s\n", p.os, p.arch)
		for _, step := range []func(platform) error{r.program, r.components, r.archive, r.deb} {
			if err := step(p); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(log, "image, chart, compose file")
	if err := errors.Join(r.image(), r.chart(), r.compose()); err != nil {
		return err
	}
	return r.checksums(log)
}

// checksums writes SHA256SUMS, which sha256sum -c reads.
func (r release) checksums(log io.Writer) error {
	files, err := os.ReadDir(r.dist) // sorted by name
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.dist, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), f.Name())
	}
	fmt.Fprint(log, sums.String())
	return os.WriteFile(filepath.Join(r.dist, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
