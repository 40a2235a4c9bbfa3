package cli

import (
	"runtime/debug"
	"strings"
)

// Version is the version of the program, and Commit the commit that it was built from. Releases
// set them at link time; other builds use what Go knows of the module.
var Version, Commit = "", ""

func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// commit returns the commit that the program was built from, with the suffix "-dirty" if files
// were changed since, or "" if it is not known.
func commit() string {
	if Commit != "" {
		return Commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, suffix string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	if revision == "" {
		// The pseudo-version of `go install …@main` ends with the commit.
		if parts := strings.Split(info.Main.Version, "-"); len(parts) >= 3 {
			return parts[len(parts)-1]
		}
		return ""
	}
	return revision + suffix
}
