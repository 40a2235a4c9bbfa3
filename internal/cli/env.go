package cli

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// wellKnown are variables that many programs read, beside POSTHASTE_….
var wellKnown = map[string]string{"database-url": "DATABASE_URL", "redis-url": "REDIS_URL", "smtp-url": "SMTP_URL"}

// secret flags are not repeated in errors.
var secret = map[string]bool{"database-url": true, "redis-url": true, "smtp-url": true, "token": true}

// envMark marks flags whose values came from their variables.
const envMark = "posthaste_env"

// typed says whether a flag was given on the command line. Where there is none
// nothing was.
func typed(flags *pflag.FlagSet, name string) bool {
	if flags == nil {
		return false
	}
	f := flags.Lookup(name)
	if f == nil || !f.Changed {
		return false
	}
	_, env := f.Annotations[envMark]
	return !env
}

// envName is the variable that stands for a flag.
func envName(flag string) string {
	return "POSTHASTE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// bindEnvironment gives flags that were not given the values of their
// variables. An empty variable counts as none.
func bindEnvironment(flags *pflag.FlagSet) error {
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" {
			return
		}
		for _, name := range []string{envName(f.Name), wellKnown[f.Name]} {
			value := os.Getenv(name)
			if name == "" || value == "" {
				continue
			}
			if err := flags.Set(f.Name, value); err != nil {
				message := name + " cannot be used for --" + f.Name
				if !secret[f.Name] {
					message += ": " + err.Error()
				}
				faults = append(faults, posthaste.Invalidf(f.Name, "%s", message))
			}
			_ = flags.SetAnnotation(f.Name, envMark, nil) // it exists
			return
		}
	})
	return errors.Join(faults...)
}
