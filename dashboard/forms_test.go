package dashboard

import (
	"context"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// clicks sends confirmations of an action that does as told.
type clicks struct {
	*dashboard
	runs int
	do   func(*page) (string, error)
}

func newClicks() *clicks {
	return &clicks{dashboard: &dashboard{source: source{snapshots: newSnapshots(nil, time.Minute)}, timeout: time.Minute}}
}

// click sends a form, and returns the status and the error.
func (c *clicks) click(ctx context.Context, form string) (int, error) {
	w := httptest.NewRecorder()
	p := &page{Visit: &server.Visit{Actor: "a"}, w: w, r: httptest.NewRequest("POST", "/act", nil).WithContext(ctx), query: url.Values{"once": {form}}}
	err := c.perform(action{plan: func(*page) (*plan, error) {
		return &plan{do: func(p *page) (string, error) {
			c.runs++
			return c.do(p)
		}}, nil
	}})(p)
	return w.Code, err
}

// A browser drops the request of the first click at the second one. What the first does goes on, and
// the second gets its result.
func TestDB7SecondClickDropsTheFirst(t *testing.T) {
	t.Parallel()
	c := newClicks()
	ctx, drop := context.WithCancel(t.Context())
	c.do = func(p *page) (string, error) {
		drop()
		return "/done", p.ctx().Err()
	}
	for range 2 {
		if status, err := c.click(ctx, "form"); status != 303 || err != nil {
			t.Errorf("a click ended with %d, %v", status, err)
		}
		ctx = t.Context()
	}
	if c.runs != 1 {
		t.Errorf("it was done %d times", c.runs)
	}
}

// An action that may have been done is not done again for the same form; one that failed is.
func TestDB7ClickAfterAnError(t *testing.T) {
	t.Parallel()
	for code, runs := range map[posthaste.Code]int{posthaste.CodeOutcomeUnknown: 1, posthaste.CodeConflict: 2} {
		c := newClicks()
		c.do = func(*page) (string, error) { return "", &posthaste.Error{Code: code, Message: "no"} }
		for range 2 {
			if _, err := c.click(t.Context(), "form"); posthaste.CodeOf(err) != code {
				t.Errorf("a click ended with %v, want %s", err, code)
			}
		}
		if c.runs != runs {
			t.Errorf("after %s it was done %d times, want %d", code, c.runs, runs)
		}
	}
}

// A form whose action failed at first is remembered as long as others.
func TestFormsAreKeptInTheirOrder(t *testing.T) {
	t.Parallel()
	c := newClicks()
	answer := error(&posthaste.Error{Code: posthaste.CodeConflict, Message: "no"})
	c.do = func(*page) (string, error) { return "/done", answer }
	_, _ = c.click(t.Context(), "form")
	answer = nil
	for i := range keptForms {
		form := "form"
		if i > 0 {
			form = strconv.Itoa(i)
		}
		if _, err := c.click(t.Context(), form); err != nil {
			t.Fatal(err)
		}
	}
	done := c.runs
	if _, err := c.click(t.Context(), "form"); err != nil || c.runs != done {
		t.Errorf("the form is forgotten after %d others: %d runs, %v", keptForms-1, c.runs, err)
	}
	if _, err := c.click(t.Context(), "another"); err != nil || len(c.forms.sent) != keptForms || len(c.forms.keys) != keptForms {
		t.Errorf("%d forms and %d keys are kept, %v", len(c.forms.sent), len(c.forms.keys), err)
	}
}
