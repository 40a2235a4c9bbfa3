package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) scheduleList() collection[posthaste.ScheduleInfo, wire.Schedule] {
	return collection[posthaste.ScheduleInfo, wire.Schedule]{
		list: "schedules", all: func(ctx context.Context, _ *http.Request) ([]posthaste.ScheduleInfo, error) {
			return s.engine.Schedules(ctx)
		},
		key: func(one posthaste.ScheduleInfo) string { return one.Name }, show: viewSchedule,
	}
}

// viewSchedule shows a schedule, and the content of its message to callers who may see it.
func viewSchedule(r *http.Request, found posthaste.ScheduleInfo) wire.Schedule {
	view := wire.NewSchedule(found)
	if !seesAllPayloads(r) {
		view.HidePayload()
	}
	return view
}

func (s *Server) dropSchedule(ctx context.Context, r *http.Request) error {
	return s.engine.DropSchedule(ctx, r.PathValue("schedule"))
}

func (s *Server) showSchedule(w http.ResponseWriter, r *http.Request) error {
	found, err := s.findSchedule(r)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, viewSchedule(r, found))
}

func (s *Server) findSchedule(r *http.Request) (posthaste.ScheduleInfo, error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	name := r.PathValue("schedule")
	schedules, err := s.engine.Schedules(ctx, name)
	if err == nil && len(schedules) == 0 {
		err = &posthaste.Error{Code: posthaste.CodeNotFound, Field: "schedule", Message: "there is no schedule \"" + name + "\""}
	}
	if err != nil {
		return posthaste.ScheduleInfo{}, err
	}
	return schedules[0], nil
}

// putSchedule creates (201) or changes (200) a schedule and answers with it.
func (s *Server) putSchedule(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	schedule, err := wire.ParseSchedule(r.PathValue("schedule"), body)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if _, err := s.findSchedule(r); posthaste.CodeOf(err) == posthaste.CodeNotFound {
		status = http.StatusCreated
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if _, err := s.engine.PutSchedule(ctx, schedule); err != nil {
		return err
	}
	found, err := s.findSchedule(r)
	if err != nil {
		return err
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", "/v1/schedules/"+schedule.Name)
	}
	return s.writeJSON(w, status, viewSchedule(r, found))
}

// runSchedule sends the message of a schedule now.
func (s *Server) runSchedule(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	id, err := s.engine.RunSchedule(ctx, r.PathValue("schedule"))
	if err != nil {
		return err
	}
	return s.writeCreated(w, "/v1/messages/"+id.String(), wire.NewSent(posthaste.Sent{ID: id}))
}
