package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// keptForms is how many confirmations are remembered.
const keptForms = 1000

// forms remembers the latest confirmations that this process carried out, so that a form that a
// browser sends twice acts once.
type forms struct {
	mu   sync.Mutex
	sent map[formHash]*sentForm
	keys []formHash // in the order in which they came
}

// formHash identifies a confirmation. It is short whatever the path.
type formHash [sha256.Size]byte

// sentForm is a confirmation. The other fields are set before over is closed.
type sentForm struct {
	over chan struct{}
	kept bool // the action was done, or may have been
	to   string
	err  error
}

// once calls act unless it was called for the same form before, and returns where the operator
// goes on. A form whose action failed may be sent again, unless it may have been done.
func (f *forms) once(p *page, act func() (string, error)) (string, error) {
	if p.text("once") == "" {
		return act() // a program, which sends no form
	}
	once, err := p.formKey()
	if err != nil {
		return "", err
	}
	key := formHash(sha256.Sum256(fmt.Appendf(nil, "%q %q %q", p.Actor, p.r.URL.Path, once)))
	for {
		f.mu.Lock()
		earlier := f.sent[key]
		if earlier == nil {
			break
		}
		f.mu.Unlock()
		select {
		case <-earlier.over:
		case <-p.ctx().Done():
			return "", p.ctx().Err()
		}
		if earlier.kept {
			return earlier.to, earlier.err
		}
	}
	if f.sent == nil {
		f.sent = map[formHash]*sentForm{}
	}
	form := &sentForm{over: make(chan struct{})}
	f.sent[key] = form
	if f.keys = append(f.keys, key); len(f.keys) > keptForms {
		delete(f.sent, f.keys[0])
		f.keys = f.keys[1:]
	}
	f.mu.Unlock()
	defer func() { // also after a panic
		f.mu.Lock()
		defer f.mu.Unlock()
		if !form.kept && f.sent[key] == form {
			delete(f.sent, key)
			f.keys = slices.DeleteFunc(f.keys, func(k formHash) bool { return k == key })
		}
		close(form.over)
	}()
	form.to, form.err = act()
	form.kept = form.err == nil || posthaste.CodeOf(form.err) == posthaste.CodeOutcomeUnknown ||
		errors.Is(form.err, context.Canceled) || errors.Is(form.err, context.DeadlineExceeded)
	return form.to, form.err
}

// formKey identifies the form that is sent.
func (p *page) formKey() (string, error) {
	once := p.text("once")
	if once == "" || len(once) > 64 {
		return "", posthaste.Invalidf("once", "The form is incomplete; load it again.")
	}
	return once, nil
}
