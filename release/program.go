package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

const module = "github.com/posthaste-mq/posthaste"

// built returns the path of the program for a platform.
func (r release) built(p platform) string {
	name := "posthaste"
	if p.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.work, p.os+"-"+p.arch, name)
}

// name returns the name of a platform's files, without their endings.
func (r release) name(p platform) string {
	return fmt.Sprintf("posthaste-%s-%s-%s", r.version, p.os, p.arch)
}

// program compiles a static program. Version, commit and settings are
// given, and not taken from the repository and the environment of the builder, since a clone, a work tree and an archive of the
// same commit must make the same bytes.
func (r release) program(p platform) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X %[1]s/internal/cli.Version=%[2]s -X %[1]s/internal/cli.Commit=%[3]s", module, r.tag, r.commit),
		"-o", r.built(p), "./cmd/posthaste")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch,
		"GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s/%s: %w\n%s", p.os, p.arch, err, out)
	}
	return nil
}

// components writes the list of all modules in the program (SBOM), in the format of CycloneDX.
// It has neither a serial number nor a time, which would differ from build to build.
func (r release) components(p platform) error {
	generator, err := bin.NewGenerator(r.built(p), bin.WithVersionOverride(r.tag), bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	list, err := generator.Generate()
	if err != nil {
		return fmt.Errorf("listing the components of %s: %w", r.built(p), err)
	}
	f, err := os.Create(filepath.Join(r.dist, r.name(p)+".cdx.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list); err != nil {
		return err
	}
	return f.Close()
}
