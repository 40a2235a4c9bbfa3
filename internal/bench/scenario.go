package bench

// scenario describes what a run can measure; bench.go holds its function.
type scenario struct {
	name, what string
	of         engines
	// steady reports that the run first brings the server into the state of one that has
	// run for a while.
	steady bool
}

// engines are the engines that a scenario can run on.
type engines int

const (
	onlyPostgres engines = iota
	onlyRedis
	either
	onlyNATS
)

// scenarios are in the order of the documentation.
var scenarios = []scenario{
	{"flow", "send in batches, handle each message, settle; against only inserting the same rows, or only pushing to a list of Redis", either, false},
	{"single", "32 senders of one message each, while a worker handles them; against plain one-row commits, or pushes to a list of Redis", either, false},
	{"latency", "from before the send call to the handler's start, sender and worker in processes of their own", either, false},
	{"transactional", "32 connections whose transactions insert a row and send a message, with a worker and without; against inserting the payload into a table", onlyPostgres, false},
	{"senders", "32 senders by Engine.Send, by Client.Send and over HTTP, with a worker and without; against plain inserts, or pushes to a list of Redis", either, false},
	{"pinned", "flow under an open snapshot: the last sixth of the run against the first", onlyPostgres, true},
	{"backlog", "flow with many messages waiting; against the empty queue", onlyPostgres, false},
	{"ordered", "flow through an ordered queue with 10,000 keys; against a plain queue", either, false},
	{"kinds", "flow of messages of four kinds, with a handler for each; against a queue without kinds", either, false},
	{"relay", "from the ledger into a broker, with confirms; against what the broker's client publishes alone", onlyPostgres, false},
	{"pipeline", "notifications that fall due, in chunks through RabbitMQ, handled one by one behind an inbox and kept in a log", onlyPostgres, false},
	{"telemetry", "flow and single with metrics and traces; against the same without", onlyPostgres, true},
	{"redis", "emptying a filled queue on Redis, at least and at most once; against loops of BLMOVE + LREM and of BRPOP", onlyRedis, false},
	{"nats", "sending and handling by the engine on NATS JetStream; against the client of NATS on a stream of the same configuration", onlyNATS, false},
	{"idle", "what a worker of 20 queues costs with nothing to do", either, false},
}

// Scenarios returns the names that [Run] takes.
func Scenarios() []string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return names
}

// Describe returns half a sentence about what a scenario measures.
func Describe(scenario string) string { return find(scenario).what }

// CanRedis reports whether a scenario can run on Redis.
func CanRedis(scenario string) bool {
	return find(scenario).of == onlyRedis || find(scenario).of == either
}

// CanPostgres reports whether a scenario can run on PostgreSQL.
func CanPostgres(scenario string) bool {
	return find(scenario).of == onlyPostgres || find(scenario).of == either
}

// OnNATS reports whether a scenario runs on NATS.
func OnNATS(scenario string) bool { return find(scenario).of == onlyNATS }

// comparesSenders reports whether a scenario runs as [sending].
func comparesSenders(scenario string) bool {
	return scenario == "transactional" || scenario == "senders"
}

func redisScenarios() (names []string) {
	for _, name := range Scenarios() {
		if CanRedis(name) {
			names = append(names, name)
		}
	}
	return names
}

func find(name string) scenario {
	for _, s := range scenarios {
		if s.name == name {
			return s
		}
	}
	return scenario{}
}
