package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// apiServer holds the flags of access to a server of the HTTP API, besides its URL.
type apiServer struct {
	token, tokenFile string
	allowPlainHTTP   bool
}

// apiFlags are the flag of the URL of a server and those of [apiServer].
var apiFlags = []string{"server-url", "server-token", "server-token-file", "allow-plain-http"}

func (s *apiServer) flag(flags *pflag.FlagSet) {
	flags.StringVar(&s.token, "server-token", "", "token for the server (prefer POSTHASTE_SERVER_TOKEN or --server-token-file, which process lists do not show)")
	flags.StringVar(&s.tokenFile, "server-token-file", "", "file with the token for the server")
	flags.BoolVar(&s.allowPlainHTTP, "allow-plain-http", false, "allow a server URL with http:// that is not on this machine; the token and all messages can be read on the way")
}

// prefer takes the token of a context, unless the command line has one: variables can hold that of
// another server.
func (s *apiServer) prefer(flags *pflag.FlagSet, t *target) {
	s.allowPlainHTTP = s.allowPlainHTTP || t.AllowPlainHTTP
	if t.ServerToken+t.ServerTokenFile != "" && !typed(flags, "server-token") && !typed(flags, "server-token-file") {
		s.token, s.tokenFile = t.ServerToken, t.ServerTokenFile
	}
}

// secret returns the token, or "" without one.
func (s *apiServer) secret(flags *pflag.FlagSet) (string, error) {
	token, file := s.token, s.tokenFile
	if token != "" && file != "" {
		switch byToken, byFile := typed(flags, "server-token"), typed(flags, "server-token-file"); {
		case byToken == byFile:
			return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-token-file", Message: "--server-token and --server-token-file are mutually exclusive", Hint: "omit one of them, or its variable"}
		case byFile:
			token = ""
		}
	}
	if token == "" && file != "" {
		return readToken(file)
	}
	if variable.FindString(token) == token && token != "" {
		value, err := expand(token)
		if err != nil {
			return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-token", Message: "the token of the server: " + err.Error(), Hint: "set it, or change the context with: posthaste context set", Cause: err}
		}
		return value, nil
	}
	return token, nil
}

// readToken reads the token in a file.
func readToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-token-file", Message: "the token cannot be read: " + err.Error(), Hint: "name a readable file with --server-token-file", Cause: err}
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-token-file", Message: "the file " + file + " is empty", Hint: "write the token into it"}
	}
	return token, nil
}

// absolute returns the absolute path of a file, which does not depend on where a command runs.
func absolute(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", posthaste.Invalidf("server-token-file", "the path of --server-token-file cannot be resolved: %s", err)
	}
	return path, nil
}
