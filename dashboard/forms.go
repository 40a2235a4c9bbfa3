package dashboard

import (
	"strings"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// keptForms is how many confirmations are remembered.
const keptForms = 1000

// forms remembers the latest confirmations that this process carried out, so that a form that a
// browser sends twice acts once.
type forms struct {
	mu   sync.Mutex
	sent map[string]*sentForm
	keys []string // in the order in which they came
}

// sentForm is a confirmation. to is set before over is closed, and is "" if the action failed.
type sentForm struct {
	over chan struct{}
	to   string
}

// once calls act unless it was called for the same form before, and returns where the operator
// goes on. A form whose action failed may be sent again.
func (f *forms) once(p *page, act func() (string, error)) (string, error) {
	if p.text("once") == "" {
		return act() // a program, which sends no form
	}
	key, err := p.formKey()
	if err != nil {
		return "", err
	}
	key = strings.Join([]string{p.Actor, p.r.URL.Path, key}, "\n")
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
		if earlier.to != "" {
			return earlier.to, nil
		}
	}
	if f.sent == nil {
		f.sent = map[string]*sentForm{}
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
		if form.to == "" {
			delete(f.sent, key)
		}
		close(form.over)
	}()
	to, err := act()
	if err == nil {
		form.to = to
	}
	return to, err
}

// formKey identifies the form that is sent.
func (p *page) formKey() (string, error) {
	once := p.text("once")
	if once == "" || len(once) > 64 {
		return "", posthaste.Invalidf("once", "The form is incomplete; load it again.")
	}
	return once, nil
}
