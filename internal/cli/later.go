package cli

import (
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

const laterMark = "posthaste_later"

// later adds hidden flags that are refused by name when they are given.
func later(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flags.String(name, "", "not supported yet")
		_ = flags.MarkHidden(name)
		_ = flags.SetAnnotation(name, laterMark, nil)
	}
}

// refuseLater refuses what later added.
func refuseLater(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if _, ok := f.Annotations[laterMark]; ok && typed(flags, f.Name) {
			err = &posthaste.Error{Code: posthaste.Unsupported, Field: f.Name, Message: "--" + f.Name + " is not supported yet", Hint: "leave it out"}
		}
	})
	return err
}
