package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// action changes something after a confirmation: GET shows the plan, and POST carries it out.
type action struct {
	path  string
	scope server.Scope
	own   bool
	// plan returns what the action would do now, or why it cannot.
	plan func(*page) (*plan, error)
}

// plan is an action as its confirmation states it.
type plan struct {
	Title   string
	Effects []string
	Button  string
	// Danger marks actions that cannot be undone.
	Danger bool
	// Typed is a text that the operator must type; "" for none.
	Typed string
	// Fields are sent with the confirmation. The action is carried out only if the plan that is
	// made then has the same fields.
	Fields []field
	// Back is where the operator goes without the action.
	Back string
	// Once identifies this confirmation, so that a form that is sent twice acts once.
	Once string
	// CLI, Curl and SQL are the same action elsewhere.
	CLI, Curl, SQL string
	// Pausing asks for the reason and the end of a pause, if it is not nil.
	Pausing *pausing
	// Inputs are asked for on the confirmation.
	Inputs []input

	// do carries the plan out, and returns where the operator goes on.
	do func(*page) (to string, err error)
}

func (d *dashboard) actions() []action {
	return []action{
		{"/queues/{queue}/pause", server.ScopeOperate, false, d.planPause},
		{"/queues/{queue}/resume", server.ScopeOperate, false, d.planResume},
		{"/queues/{queue}/keys/pause", server.ScopeOperate, false, d.planPauseKey},
		{"/queues/{queue}/keys/resume", server.ScopeOperate, false, d.planResumeKey},
		{"/queues/{queue}/kinds/pause", server.ScopeOperate, false, d.planPauseKind},
		{"/queues/{queue}/kinds/resume", server.ScopeOperate, false, d.planResumeKind},
		{"/queues/{queue}/purge", server.ScopeOperate, false, d.planPurge},
		{"/queues/{queue}/update", server.ScopeAdmin, false, d.planUpdateQueue},
		{"/messages/{id}/cancel", server.ScopeOperate, true, d.planCancel},
		{"/messages/{id}/run", server.ScopeOperate, true, d.planRun},
		{"/messages/{id}/reschedule", server.ScopeOperate, true, d.planReschedule},
		{"/messages/cancel", server.ScopeOperate, true, d.planCancelMany},
		{"/messages/reschedule", server.ScopeOperate, true, d.planRescheduleMany},
		{"/messages/run", server.ScopeOperate, true, d.planRunMany},
		{"/messages/{id}/replay", server.ScopeOperate, true, d.planReplay},
		{"/messages/{id}/discard", server.ScopeOperate, true, d.planDiscard},
		{"/dead-letters/replay", server.ScopeOperate, true, d.planReplayMany},
		{"/dead-letters/discard", server.ScopeOperate, true, d.planDiscardMany},
		{"/schedules/{schedule}/pause", server.ScopeOperate, false, d.planPauseSchedule},
		{"/schedules/{schedule}/resume", server.ScopeOperate, false, d.planResumeSchedule},
		{"/schedules/{schedule}/run", server.ScopeOperate, false, d.planRunSchedule},
		{"/tokens/{token}/revoke", server.ScopeAdmin, false, d.planRevoke},
	}
}

// ask serves the confirmation of an action.
func (d *dashboard) ask(a action) func(*page) error {
	return func(p *page) error {
		plan, err := a.plan(p)
		if err != nil {
			return err
		}
		plan.Once = rand.Text()
		if !d.can.SQL {
			plan.SQL = ""
		}
		return p.show("confirm", plan.Title, "", false, plan)
	}
}

// perform carries an action out if it is still what the operator confirmed.
func (d *dashboard) perform(a action) func(*page) error {
	return func(p *page) error {
		to, err := d.forms.once(p, func() (string, error) {
			// The browser drops the request at a second click, which waits for the result.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx()), d.timeout)
			defer cancel()
			own := *p
			own.r = p.r.WithContext(ctx)
			return d.carryOut(&own, a)
		})
		if err != nil {
			return err
		}
		return p.redirect(to)
	}
}

func (d *dashboard) carryOut(p *page, a action) (to string, err error) {
	plan, err := a.plan(p)
	if err != nil {
		return "", err
	}
	for _, f := range plan.Fields {
		if subtle.ConstantTimeCompare([]byte(f.Value), []byte(p.query.Get(f.Name))) != 1 {
			return "", &posthaste.Error{Code: posthaste.CodeConflict, Field: f.Name, Hint: "Open the action again to see its present effect.",
				Message: fmt.Sprintf("Nothing was changed: %s was confirmed as %q, and is now %q.", strings.ReplaceAll(f.Name, "_", " "), p.query.Get(f.Name), f.Value)}
		}
	}
	if plan.Typed != "" && p.text("typed") != plan.Typed {
		return "", posthaste.Invalidf("typed", "Nothing was changed: type %q to confirm, got %q.", plan.Typed, p.text("typed"))
	}
	defer d.snapshots.forget() // also after an error: a part may have been done
	return plan.do(p)
}

// shellQuote quotes a text for a POSIX shell, if it needs quotes.
func shellQuote(text string) string {
	plain := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-./:@=", c)
	}
	if text != "" && strings.IndexFunc(text, func(c rune) bool { return !plain(c) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// command returns a command of the program.
func command(args ...string) string {
	for i, arg := range args {
		args[i] = shellQuote(arg)
	}
	return "posthaste " + strings.Join(args, " ")
}

// curl returns a request to the API. body is JSON, or "".
func curl(method, path, body string) string {
	text := "curl -X " + method + ` -H "Authorization: Bearer $POSTHASTE_TOKEN" "$POSTHASTE_URL"` + shellQuote(path)
	if body != "" {
		text += " -H 'Content-Type: application/json' -d " + shellQuote(body)
	}
	return text
}

// sqlQuote quotes a text for SQL.
func sqlQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// call returns a call of an SQL function with texts as arguments.
func call(function string, args ...string) string {
	for i, arg := range args {
		args[i] = sqlQuote(arg)
	}
	return "select * from posthaste." + function + "(" + strings.Join(args, ", ") + ")"
}
