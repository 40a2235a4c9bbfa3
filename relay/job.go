package relay

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// Job is a message of a batch that a sink publishes. The jobs of the sinks embed it.
type Job struct{ Index int } // in the batch

func (j Job) inBatch() int { return j.Index }

// FailAll sets the results of jobs to one error.
func FailAll[J interface{ inBatch() int }](jobs []J, results []posthaste.SinkResult, err error) {
	for i := range jobs {
		results[jobs[i].inBatch()].Err = err
	}
}

// PublishAll publishes jobs on the i-th connection and sets their results. publish does so on
// one connection, except for the jobs that it returns because that connection has no room for
// them: they are published on the one that replaces it.
func PublishAll[C Connection, J interface{ inBatch() int }](ctx context.Context, c *Connections[C], i int, jobs []J, results []posthaste.SinkResult, publish func(on C, jobs []J) (elsewhere []J)) {
	for len(jobs) > 0 {
		on, err := c.Get(ctx, i)
		if err != nil {
			FailAll(jobs, results, err)
			return
		}
		jobs = publish(on, jobs)
	}
}
