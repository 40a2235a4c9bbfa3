package bench

// natsLines adds the lines of scenario nats.
func (r *Result) natsLines(line func(name, format string, args ...any)) {
	v := r.NATSResult
	if v == nil {
		return
	}
	if v.Servers > 0 {
		line("servers", "%d", v.Servers)
	}
	for _, w := range v.NATSWays {
		line(w.Way, "%s of the raw client (%s of %s/s)", maybe(w.Ratio), grouped(w.PerSecond), grouped(w.RawPerSecond))
		line("  CPU", "server %s µs, client %s µs per message; raw %s and %s µs", maybe(w.ServerCPU), maybe(w.ClientCPU), maybe(w.RawServerCPU), maybe(w.RawClientCPU))
	}
	if v.IdleQueues == 0 {
		return
	}
	line("idle", "%g pulls/s for %d queues, client %g %%, servers %s %% of a core", v.IdlePulls, v.IdleQueues, v.IdleClientPercent, maybe(v.IdleServerPercent))
}
