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

// envelopeHeader is the header before the mail itself that a kept file begins
// with: what the mail does not tell of how it came. Programs that show .eml
// files pass over it.
const envelopeHeader = "X-Posthaste-Caught: "

// envelope is what that header holds.
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

// save writes the mail's file, whole or not at all.
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

// remove deletes a mail's file. A file that cannot be deleted comes back at
// the next start, which is no harm.
func (c *Catcher) remove(id string) {
	if c.cfg.Dir == "" {
		return
	}
	if err := os.Remove(c.file(id)); err != nil {
		c.cfg.Logger.Warn("old caught mail stays on disk", "error", err)
	}
}

// load reads the files that an earlier process kept.
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
			// A file that somebody damaged must not keep the others away.
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
