package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// wellKnown holds variables that are common to many programs. POSTHASTE_… takes precedence.
var wellKnown = map[string]string{"smtp-url": "SMTP_URL"}

// secret holds the flags whose values do not appear in errors.
var secret = map[string]bool{"smtp-url": true, "token": true, "server-token": true, "session-key": true}

func init() {
	for _, k := range engines {
		wellKnown[k.flag], secret[k.flag] = k.variable, true
	}
}

// envMark annotates flags that were set by environment variables.
const envMark = "posthaste_env"

// typed reports whether a flag was given on the command line. flags may be nil.
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

// envName returns the environment variable of a flag.
func envName(flag string) string {
	return "POSTHASTE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// wrongValue describes why value is invalid for a flag. cause is the error of the flag's
// type. It is replaced for numbers and booleans, whose errors are those of package strconv.
func wrongValue(f *pflag.Flag, value string, cause error) string {
	switch f.Value.Type() {
	case "int", "int64":
		return fmt.Sprintf("must be an integer, got %q", value)
	case "float64":
		return fmt.Sprintf("must be a number, got %q", value)
	case "bool":
		return fmt.Sprintf("must be true or false, got %q", value)
	case "stringSlice":
		return fmt.Sprintf("must be a comma-separated list, got %q", value)
	}
	return cause.Error()
}

// bindEnvironment sets flags that were not given from their environment variables. An
// empty variable is ignored.
func bindEnvironment(flags *pflag.FlagSet) error {
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		for _, name := range []string{envName(f.Name), wellKnown[f.Name]} {
			value := os.Getenv(name)
			if name == "" || value == "" {
				continue
			}
			if err := flags.Set(f.Name, value); err != nil {
				message := "invalid " + name + ", which sets --" + f.Name
				if !secret[f.Name] {
					cause := err
					if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
						cause = wrong.Unwrap()
					}
					message += ": it " + wrongValue(f, value, cause)
				}
				faults = append(faults, posthaste.Invalidf(f.Name, "%s", message))
			}
			_ = flags.SetAnnotation(f.Name, envMark, nil) // the flag exists
			return
		}
	})
	return errors.Join(faults...)
}

// variable matches a variable of the environment in a URL.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand replaces variables of the environment in a URL, so that a file need not hold
// passwords. A variable that is the whole URL is used unchanged; others are percent-encoded.
func expand(text string) (string, error) {
	var missing []string
	out := variable.ReplaceAllStringFunc(text, func(v string) string {
		name := v[2 : len(v)-1]
		value, ok := os.LookupEnv(name)
		if !ok {
			missing = append(missing, name)
		}
		if v == text {
			return value
		}
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") // a plus sign is no space in a password
	})
	if missing != nil {
		return "", fmt.Errorf("environment variable %s is not set", strings.Join(missing, ", "))
	}
	return out, nil
}
