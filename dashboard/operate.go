package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// fallingBehind is how many queues the overview shows.
const fallingBehind = 10

func (d *dashboard) showOverview(p *page) error {
	if p.Limited() {
		return p.redirect(p.link("/queues"))
	}
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	rows := p.rows(s)
	var total queueRow
	var behind, busy []queueRow
	for _, row := range rows {
		total.Waiting, total.InFlight, total.Dead = total.Waiting+row.Waiting, total.InFlight+row.InFlight, total.Dead+row.Dead
		total.SentPerSecond, total.DonePerSecond = total.SentPerSecond+row.SentPerSecond, total.DonePerSecond+row.DonePerSecond
		total.Oldest = max(total.Oldest, row.Oldest)
		if row.Behind() || row.Paused && row.Waiting > 0 {
			behind = append(behind, row)
		}
	}
	slices.SortStableFunc(behind, func(a, b queueRow) int { return int(b.Oldest/time.Millisecond) - int(a.Oldest/time.Millisecond) })
	slices.SortStableFunc(rows, func(a, b queueRow) int {
		return int(10*(b.SentPerSecond+b.DonePerSecond)) - int(10*(a.SentPerSecond+a.DonePerSecond))
	})
	busy = rows[:min(len(rows), fallingBehind)]
	shown, failures, err := p.past(s)
	if err != nil {
		return err
	}
	return p.show("overview", "Overview", "overview", true, struct {
		Snapshot     *snapshot
		Total        queueRow
		Queues       int
		Behind, Busy []queueRow
		More         int
		Failed       error
		Charts       *charts
		Choices      []choice
		Failures     []posthaste.Failure
		Paused       []pauseRow
		MorePaused   bool
	}{s, total, len(rows), behind[:min(len(behind), fallingBehind)], busy, max(len(behind)-fallingBehind, 0), s.findErr, shown, p.choices(), failures, pauseRows(p, s.pauses[:min(len(s.pauses), pausesShown)]), len(s.pauses) > pausesShown})
}

// past returns the charts of all queues, and the most frequent failures. Without them the page
// still shows the present.
func (p *page) past(s *snapshot) (*charts, []posthaste.Failure, error) {
	if !p.d.can.Charts {
		return nil, nil, nil
	}
	shown, err := p.flow("", s)
	if err != nil {
		return nil, nil, err
	}
	failures, _, err := p.failing("", "")
	return shown, failures[:min(len(failures), 3)], err
}

func (d *dashboard) showWorkers(p *page) error {
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	if s.workErr != nil {
		return s.workErr
	}
	counts, err := p.countsOfWorkers()
	if err != nil {
		return err
	}
	var rows []workerRow
	var longest []runningRow
	for _, w := range s.workers {
		row := workerRow{WorkerStatus: w, Counts: counts[w.Name]}
		for _, load := range w.State.Loads {
			row.Running += load.Running
		}
		rows = append(rows, row)
		for _, r := range w.State.Running {
			if w.LostAt.IsZero() {
				longest = append(longest, runningRow{r, w.Name, w.HeartbeatAt.Add(-r.Ran)})
			}
		}
	}
	slices.SortFunc(rows, func(a, b workerRow) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(longest, func(a, b runningRow) int { return a.Since.Compare(b.Since) })
	return p.show("workers", "Workers", "workers", true, struct {
		Workers []workerRow
		Longest []runningRow
		Vitals  posthaste.Vitals
	}{rows, longest[:min(len(longest), maxLongest)], s.Vitals})
}

// maxLongest is how many running messages the page of workers shows.
const maxLongest = 20

// workerRow is a worker with its latest counts.
type workerRow struct {
	posthaste.WorkerStatus
	Running int
	Counts  *handled // nil if it handled nothing
}

// runningRow is a message that runs, and since when.
type runningRow struct {
	posthaste.RunningMessage
	Worker string
	Since  time.Time
}

// countsOfWorkers returns what each worker handled in the last 15 minutes, by its name.
func (p *page) countsOfWorkers() (map[string]*handled, error) {
	if !p.d.can.Charts {
		return nil, nil
	}
	return figureOf(p.d.figures, "workers", stateAge, func(ctx context.Context, now time.Time) (map[string]*handled, error) {
		groups, err := p.d.engine.HandlerStats(ctx, posthaste.StatsQuery{From: now.Add(-15 * time.Minute), By: posthaste.ByWorker})
		counts := map[string]*handled{}
		for i := range groups {
			h := newHandled(groups[i].Worker, &groups[i])
			counts[h.Name] = &h
		}
		return counts, err
	})
}

func (d *dashboard) showAudit(p *page) error {
	f := posthaste.ActionFilter{Queue: p.text("queue"), Limit: pageSize}
	var err error
	if f.MessageID, err = p.id("message"); err != nil {
		return err
	}
	before, err := p.id("before")
	if err != nil {
		return err
	}
	f.Before = int64(before)
	actions, err := d.engine.Actions(p.ctx(), f)
	if err != nil {
		return err
	}
	next := ""
	if len(actions) == pageSize {
		next = p.with("before", posthaste.MessageID(actions[len(actions)-1].ID).String())
	}
	return p.show("audit", "Audit log", "audit", false, struct {
		Queue, Message string
		Actions        []actionRow
		Next           string
	}{f.Queue, p.text("message"), sameBulk(actions), next})
}

// actionRow is a record of an action, and how many of its kind follow each other.
type actionRow struct {
	posthaste.Action
	// Count is the number of records, and First the oldest of them.
	Count int
	First posthaste.Action
}

// sameBulk groups the records of the same bulk action that follow each other. Others stay by
// themselves.
func sameBulk(actions []posthaste.Action) (rows []actionRow) {
	for _, a := range actions {
		if n := len(rows); n > 0 && strings.Contains(a.By, "(bulk action ") && rows[n-1].By == a.By && rows[n-1].Action.Action == a.Action && rows[n-1].Queue == a.Queue {
			rows[n-1].Count++
			rows[n-1].First = a
			continue
		}
		rows = append(rows, actionRow{Action: a, Count: 1, First: a})
	}
	return rows
}

func (d *dashboard) showTokens(p *page) error {
	tokens, err := d.engine.Tokens(p.ctx())
	if err != nil {
		return err
	}
	return p.show("tokens", "Tokens", "tokens", false, tokens)
}

func (d *dashboard) planRevoke(p *page) (*plan, error) {
	name := p.r.PathValue("token")
	tokens, err := d.engine.Tokens(p.ctx())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tokens, func(t posthaste.Token) bool { return t.Name == name })
	if i < 0 {
		return nil, notFound("There is no token %q.", name)
	}
	used := "It was never used."
	if at := tokens[i].LastUsedAt; !at.IsZero() {
		used = "It was last used at " + at.UTC().Format(time.RFC3339) + ", to about five minutes."
	}
	effects := []string{"Callers with this token are rejected within seconds, and their browser sessions end. It cannot be restored.", used}
	if p.Token != nil && p.SignedIn && p.Token.Name == name {
		effects = append(effects, "You are signed in with this token.")
	}
	return &plan{
		Title: "Revoke token " + name, Button: "Revoke", Danger: true, Typed: name, Back: p.link("/tokens"), Effects: effects, CLI: command("token", "drop", name), SQL: call("token_drop", name),
		do: func(p *page) (string, error) {
			return p.link("/tokens", "done", "revoked"), d.engine.RevokeToken(p.ctx(), name)
		},
	}, nil
}

func (d *dashboard) showSchedules(p *page) error {
	schedules, err := d.engine.Schedules(p.ctx())
	if err != nil {
		return err
	}
	why, err := d.paused(p.ctx(), "")
	if err != nil {
		return err
	}
	return p.show("schedules", "Schedules", "schedules", false, struct {
		Schedules []posthaste.ScheduleInfo
		Operates  bool
		Paused    paused
	}{schedules, p.Allows(server.ScopeOperate), why})
}

// planSchedule returns the plan of an action on the schedule in the path.
func (d *dashboard) planSchedule(p *page, done string, make func(s posthaste.ScheduleInfo) (*plan, error), do func(*page, posthaste.ScheduleInfo) error) (*plan, error) {
	name := p.r.PathValue("schedule")
	if err := posthaste.CheckName("schedule", name); err != nil {
		return nil, err
	}
	found, err := d.engine.Schedules(p.ctx(), name)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, notFound("There is no schedule %q.", name)
	}
	made, err := make(found[0])
	if err != nil {
		return nil, err
	}
	made.Title += " schedule " + name
	made.Back = p.link("/schedules")
	made.do = func(p *page) (string, error) { return p.link("/schedules", "done", done), do(p, found[0]) }
	return made, nil
}

func (d *dashboard) planPauseSchedule(p *page) (*plan, error) {
	asked, err := p.pausing()
	if err != nil {
		return nil, err
	}
	return d.planSchedule(p, "paused", func(s posthaste.ScheduleInfo) (*plan, error) {
		if !s.PausedAt.IsZero() {
			return nil, already(s.Name, "paused")
		}
		made := &plan{Title: "Pause", Button: "Pause", Effects: []string{"No message is sent at its ticks until it is resumed. These ticks do not count as missed."},
			CLI:  command(slices.Concat([]string{"schedule", "pause"}, asked.flags(), []string{s.Name})...),
			Curl: curl("POST", "/v1/schedules/"+s.Name+"/pause", asked.body()), SQL: pauseCall(asked, "schedule_pause", s.Name)}
		askPause(made, asked, p.r.Method == http.MethodGet)
		return made, nil
	}, func(p *page, s posthaste.ScheduleInfo) error {
		return d.engine.Pause(p.ctx(), posthaste.OfSchedule(s.Name), asked.PauseOptions)
	})
}

func (d *dashboard) planResumeSchedule(p *page) (*plan, error) {
	return d.planSchedule(p, "resumed", func(s posthaste.ScheduleInfo) (*plan, error) {
		if s.PausedAt.IsZero() {
			return nil, already(s.Name, "running")
		}
		return &plan{Title: "Resume", Button: "Resume", Effects: []string{"It continues with its first tick from now on."},
			CLI: command("schedule", "resume", s.Name), Curl: curl("POST", "/v1/schedules/"+s.Name+"/resume", ""), SQL: call("schedule_resume", s.Name)}, nil
	}, func(p *page, s posthaste.ScheduleInfo) error {
		return d.engine.Resume(p.ctx(), posthaste.OfSchedule(s.Name))
	})
}

func already(name, state string) error {
	return &posthaste.Error{Code: posthaste.CodeConflict, Field: "schedule", Message: "Nothing was changed: schedule " + name + " is already " + state + "."}
}

func (d *dashboard) planRunSchedule(p *page) (*plan, error) {
	return d.planSchedule(p, "started", func(s posthaste.ScheduleInfo) (*plan, error) {
		return &plan{Title: "Run", Button: "Run now", Effects: []string{"Its message is sent to queue " + s.Message.Queue + " at once. This is no tick: the next tick does not change."},
			Curl: curl("POST", "/v1/schedules/"+s.Name+"/run", ""), SQL: call("schedule_run", s.Name)}, nil
	}, func(p *page, s posthaste.ScheduleInfo) error {
		_, err := d.engine.RunSchedule(p.ctx(), s.Name)
		return err
	})
}
