package cli

import (
	"errors"
	"fmt"
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

// wrongValue says what a flag's value must be; cause is what its type says of this one.
// Numbers and truths are told in words of our own, for theirs are those of a Go package.
func wrongValue(f *pflag.Flag, value string, cause error) string {
	switch f.Value.Type() {
	case "int", "int64":
		return fmt.Sprintf("must be a whole number, and is %q", value)
	case "float64":
		return fmt.Sprintf("must be a number, and is %q", value)
	case "bool":
		return fmt.Sprintf("must be true or false, and is %q", value)
	case "stringSlice":
		return fmt.Sprintf("must be words with commas between them, and is %q", value)
	}
	return cause.Error()
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
					cause := err
					if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
						cause = wrong.Unwrap()
					}
					message += ": it " + wrongValue(f, value, cause)
				}
				faults = append(faults, posthaste.Invalidf(f.Name, "%s", message))
			}
			_ = flags.SetAnnotation(f.Name, envMark, nil) // it exists
			return
		}
	})
	return errors.Join(faults...)
}
