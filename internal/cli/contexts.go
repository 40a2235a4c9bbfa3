package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
)

// contexts is the file of the user's contexts.
type contexts struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]*target `yaml:"contexts"`
	path     string
}

// target is the store of a context: exactly one of the URLs. A text ${NAME} stands for the
// environment variable NAME.
type target struct {
	storeURLs `yaml:",inline"`
	// The others are for ServerURL.
	ServerToken     string `yaml:"server_token,omitempty"`
	ServerTokenFile string `yaml:"server_token_file,omitempty"`
	AllowPlainHTTP  bool   `yaml:"allow_plain_http,omitempty"`
}

// fault describes the fault of a target of a file; "" if it is valid.
func (t *target) fault() string {
	switch {
	case t == nil || len(t.set()) != 1:
		return "must have " + strings.ReplaceAll(strings.ReplaceAll(urlNames(), "--", ""), "-", "_")
	case t.ServerURL == "" && (t.ServerToken+t.ServerTokenFile != "" || t.AllowPlainHTTP):
		return "must have server_url to have a token or allow_plain_http"
	case t.ServerToken != "" && t.ServerTokenFile != "":
		return "must not have both server_token and server_token_file"
	}
	return ""
}

// contextsPath returns the path of the file: $XDG_CONFIG_HOME/posthaste/contexts.yaml, or the same
// in the folder for configuration that the system has.
func contextsPath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as the specification says, others are ignored
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "posthaste", "contexts.yaml"), nil
}

// loadContexts reads the file of contexts. Without a file there are none.
func loadContexts() (*contexts, error) {
	c := &contexts{Contexts: map[string]*target{}}
	var err error
	if c.path, err = contextsPath(); err != nil {
		return c, nil // no folder, as for services without HOME
	}
	data, err := os.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, contextsError(c.path, "cannot be read", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, contextsError(c.path, "is not valid", err)
	}
	for name, t := range c.Contexts {
		if fault := t.fault(); fault != "" {
			return nil, contextsError(c.path, "is not valid", fmt.Errorf("context %q %s", name, fault))
		}
	}
	return c, nil
}

// contextsError does not quote err, which can quote a password.
func contextsError(path, what string, err error) error {
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "context", Message: fmt.Sprintf("the file of contexts %s %s", path, what),
		Hint: "fix it, or remove it and set the contexts again with: posthaste context set", Cause: err}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		e.Message += ": " + path.Err.Error()
	}
	return e
}

// save replaces the file, which only the user can read. A program that reads it meanwhile gets the
// old content or the new one.
func (c *contexts) save() error {
	if c.path == "" {
		return &posthaste.Error{Code: posthaste.CodeRefused, Field: "context", Message: "there is no folder for the configuration of this user", Hint: "set HOME or XDG_CONFIG_HOME"}
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(c); err != nil {
		return err
	}
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return contextsError(c.path, "cannot be written", err)
	}
	file, err := os.CreateTemp(dir, "contexts-*.yaml") // with mode 0600
	if err != nil {
		return contextsError(c.path, "cannot be written", err)
	}
	_, err = file.Write(text.Bytes())
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), c.path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return contextsError(c.path, "cannot be written", err)
	}
	return nil
}

// find returns a context by its name.
func (c *contexts) find(name string) (*target, error) {
	if t := c.Contexts[name]; t != nil {
		return t, nil
	}
	e := &posthaste.Error{Code: posthaste.CodeNotFound, Field: "context", Message: fmt.Sprintf("context %q does not exist", name),
		Hint: "create it with: posthaste context set " + name + " --database-url URL"}
	if len(c.Contexts) > 0 {
		e.Hint = "the contexts are " + strings.Join(c.names(), ", ")
	}
	return nil, e
}

func (c *contexts) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// resolved returns the URL of a context, with the values of the variables in it.
func (t *target) resolved() (string, error) {
	chosen, err := expand(t.one())
	if err != nil {
		return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "context", Message: "the URL of the context: " + err.Error(),
			Hint: "set it, or change the context with: posthaste context set", Cause: err}
	}
	return chosen, nil
}

// checkTarget checks the URL of a context, which a flag gave. Its errors do not quote the URL.
func checkTarget(flag, text string, schemes ...string) error {
	if variable.FindString(text) == text && text != "" {
		return nil
	}
	for _, one := range servers(text) {
		u, err := url.Parse(variable.ReplaceAllString(one, "x"))
		switch {
		case err != nil || login.Misread(one):
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: flag, Message: "--" + flag + " is not a valid URL", Hint: "percent-encode special characters of its user and password"}
		case !slices.Contains(schemes, u.Scheme):
			return posthaste.Invalidf(flag, "--%s must begin with %s://", flag, strings.Join(schemes, ":// or "))
		}
	}
	return nil
}

// passwords matches the passwords among the parameters of a URL.
var passwords = regexp.MustCompile(`([?&][^=&]*password=)([^&]+)`)

// concealed returns the URL of a store without its passwords and tokens, and whether it had one.
// References to variables are no secrets.
func concealed(text string) (shown string, had bool) {
	var all []string
	for _, one := range servers(text) {
		text, has := concealedServer(one)
		all, had = append(all, text), had || has
	}
	return strings.Join(all, ","), had
}

// concealedServer is [concealed] for the URL of one server.
func concealedServer(text string) (shown string, had bool) {
	if login.Misread(text) {
		return "(not valid)", true
	}
	hide := func(secret string) string {
		text, is := hidden(secret)
		had = had || is
		return text
	}
	shown = passwords.ReplaceAllStringFunc(text, func(found string) string {
		parts := passwords.FindStringSubmatch(found)
		return parts[1] + hide(parts[2])
	})
	scheme, rest, ok := strings.Cut(shown, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return shown, had
	}
	user, password, ok := strings.Cut(rest[:at], ":")
	if k, known := kindOfURL(text); ok {
		user += ":" + hide(password)
	} else if known && k.token {
		user = hide(user)
	}
	return scheme + "://" + user + rest[at:], had
}

// hidden returns a secret as it is shown, and whether it is one and not a reference to a variable.
func hidden(secret string) (shown string, is bool) {
	if secret == "" || variable.FindString(secret) == secret {
		return secret, false
	}
	return "xxxxx", true
}

// completeContexts offers the names of contexts to a shell.
func completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := loadContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.names(), cobra.ShellCompDirectiveNoFileComp
}
