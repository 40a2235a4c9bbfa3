package cli

import "runtime/debug"

// Version is the version of the program. Releases set it at link time; other builds use
// the version of the module, if Go knows it.
var Version = ""

func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
