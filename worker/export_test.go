package worker

import "time"

// SetWall lets the worker's wall clock be another one, before it runs.
func SetWall(w *Worker, wall func(time.Time) int64) { w.wall = wall }
