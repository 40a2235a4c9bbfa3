package catcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// envelopeHeader is a header that is prepended to a stored mail. It holds the data that the
// mail itself lacks. Programs that show .eml files ignore it.
const envelopeHeader = "X-Posthaste-Caught: "

// envelope is the content of that header.
type envelope struct {
	ReceivedAt time.Time `json:"received_at"`
	From       string    `json:"from"`
	To         []string  `json:"to"`
	SMTPUTF8   bool      `json:"smtputf8,omitempty"`
	TLS        bool      `json:"tls,omitempty"`
	User       string    `json:"user,omitempty"`
}

func (c *Catcher) file(id string) string {
	return filepath.Join(c.cfg.Dir, fmt.Sprintf("%010s.eml", id))
}

// save writes the mail's file atomically.
func (c *Catcher) save(m Mail) error {
	if c.cfg.Dir == "" {
		return nil
	}
	head, err := json.Marshal(envelope{m.ReceivedAt, m.From, m.To, m.SMTPUTF8, m.TLS, m.User})
	if err != nil {
		return fmt.Errorf("keep mail: %w", err)
	}
	content := slices.Concat([]byte(envelopeHeader), head, []byte("\r\n"), m.Raw)
	name := c.file(m.ID)
	if err := os.WriteFile(name+".part", content, 0o600); err != nil {
		return fmt.Errorf("keep mail: %w", err)
	}
	if err := os.Rename(name+".part", name); err != nil {
		return fmt.Errorf("keep mail: %w", err)
	}
	return nil
}

// remove deletes a mail's file. If a file cannot be deleted, its mail reappears at the next
// start, which is harmless.
func (c *Catcher) remove(id string) {
	if c.cfg.Dir == "" {
		return
	}
	if err := os.Remove(c.file(id)); err != nil {
		c.cfg.Logger.Warn("old caught mail could not be deleted", "error", err)
	}
}

// load reads the files of an earlier process.
func (c *Catcher) load() error {
	if c.cfg.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("mail catcher: %w", err)
	}
	entries, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("mail catcher: %w", err)
	}
	var ids []int64
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".eml")
		id, err := strconv.ParseInt(strings.TrimSpace(base), 10, 64)
		if ok && err == nil && id > 0 && c.file(strconv.FormatInt(id, 10)) == filepath.Join(c.cfg.Dir, e.Name()) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		c.lastID = id
		m, err := c.read(strconv.FormatInt(id, 10))
		if err != nil {
			// A damaged file must not hide the others.
			c.cfg.Logger.Warn("caught mail cannot be read", "error", err)
			continue
		}
		c.add(m)
	}
	return nil
}

func (c *Catcher) read(id string) (Mail, error) {
	content, err := os.ReadFile(c.file(id))
	if err != nil {
		return Mail{}, err
	}
	head, raw, ok := bytes.Cut(content, []byte("\r\n"))
	head, named := bytes.CutPrefix(head, []byte(envelopeHeader))
	var e envelope
	if !ok || !named {
		return Mail{}, fmt.Errorf("%s does not begin with %q", c.file(id), envelopeHeader)
	}
	if err := json.Unmarshal(head, &e); err != nil {
		return Mail{}, fmt.Errorf("%s: %w", c.file(id), err)
	}
	m := decode(raw)
	m.ID = id
	m.ReceivedAt, m.From, m.To = e.ReceivedAt, e.From, e.To
	m.SMTPUTF8, m.TLS, m.User = e.SMTPUTF8, e.TLS, e.User
	return m, nil
}
