package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// deb writes the package for Debian and Ubuntu, for Linux only. It starts nothing: the services
// need the URL of a database first.
func (r release) deb(p platform) error {
	if p.os != "linux" {
		return nil
	}
	contents, err := r.debContents(p)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "posthaste", Arch: p.arch, Platform: "linux", Version: r.version, VersionSchema: "semver",
		Section: "database", Priority: "optional", License: "Apache-2.0",
		Maintainer: "The Posthaste authors <https://" + module + ">", Homepage: "https://" + module,
		Description: "Message queue in PostgreSQL, Redis or NATS JetStream\nApplications send messages in their own transactions. Messages are\nredelivered until they succeed or are dead-lettered.",
		MTime:       r.time,
		Overridables: nfpm.Overridables{
			Contents:   contents,
			Recommends: []string{"ca-certificates"},
			Suggests:   []string{"postgresql"},
			Umask:      0o022,
			Deb:        nfpm.Deb{Compression: "gzip"},
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(r.root, "deploy/deb/postinst"),
				PreRemove:   filepath.Join(r.root, "deploy/deb/prerm"),
				PostRemove:  filepath.Join(r.root, "deploy/deb/postrm"),
			},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.dist, deb.Default.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := deb.Default.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}

func (r release) debContents(p platform) (files.Contents, error) {
	const doc = "/usr/share/doc/posthaste/"
	info := func(mode os.FileMode) *files.ContentFileInfo {
		return &files.ContentFileInfo{Mode: mode, MTime: r.time, Owner: "root", Group: "root"}
	}
	contents := files.Contents{
		{Source: r.built(p), Destination: "/usr/bin/posthaste", FileInfo: info(0o755)},
		{Source: filepath.Join(r.root, "deploy/posthaste.env"), Destination: "/etc/posthaste/posthaste.env", Type: files.TypeConfigNoReplace, FileInfo: info(0o600)},
		{Source: filepath.Join(r.root, "deploy/deb/copyright"), Destination: doc + "copyright", FileInfo: info(0o644)},
		{Source: filepath.Join(r.work, "changelog.gz"), Destination: doc + "changelog.gz", FileInfo: info(0o644)},
	}
	changelog, err := gzipped(os.ReadFile(filepath.Join(r.root, "CHANGELOG.md")))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.work, "changelog.gz"), changelog, 0o644); err != nil {
		return nil, err
	}
	for _, name := range []string{"posthaste-serve.service", "posthaste-worker.service"} {
		unit, err := os.ReadFile(filepath.Join(r.root, "deploy", name))
		if err != nil {
			return nil, err
		}
		// A package must not install into /usr/local.
		source := filepath.Join(r.work, name)
		if err := os.WriteFile(source, []byte(strings.ReplaceAll(string(unit), "/usr/local/bin/", "/usr/bin/")), 0o644); err != nil {
			return nil, err
		}
		contents = append(contents, &files.Content{Source: source, Destination: "/usr/lib/systemd/system/" + name, FileInfo: info(0o644)})
	}
	return contents, nil
}
