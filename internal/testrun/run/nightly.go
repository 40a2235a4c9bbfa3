package main

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// nightly returns all steps: all tests with all twins on both versions, long random tests,
// fuzzing, chaos, every test at its full size, and the ratios.
func nightly() []step {
	steps := lint()
	for _, version := range []string{"18", "14"} {
		steps = append(steps, allTests(version)...)
		steps = append(steps, interleavings(version)...)
		steps = append(steps, fullSizes(version)...)
	}
	steps = append(steps, onOthers()...)
	steps = append(steps, step{name: "fuzzing", minutes: 35, command: []string{launcher, "-versions", "18", "--", "scripts/fuzz", "60s"}})
	steps = append(steps, chaos()...)
	steps = append(steps, peers(), jetstreamTrial(), exampleModules(), releaseModule())
	return append(steps, ratios()...)
}

// brokers are the packages that do not depend on the version of PostgreSQL.
var brokers = []string{"./broker/...", "./sink/...", "./source", "./redis", "./inbox", "./internal/devbroker", "./internal/redis"}

// allTests runs every test at the size of a change, including those that a change skips.
func allTests(version string) []step {
	tests := func(part string, minutes int, race bool, packages ...string) step {
		flags := []string{"-timeout=50m"}
		if race {
			flags = append(flags, "-race")
		}
		env := night
		if part == "sql" && version == "18" {
			env = append(slices.Clone(night), testrun.RecordEnv+"=1")
		}
		versions := version
		if version == "18" {
			versions = "18,14" // unpacked for the tests of internal/devpg
		}
		return step{name: "all tests of " + part + " on " + version, minutes: minutes, env: env, command: flags, packages: packages, versions: versions}
	}
	steps := []step{
		tests("sql", 15, false, "./sql"),
		tests("the server and the engine", 10, true, "./postgres", "./server", "./posthastetest", "./telemetry/...", "./internal/outbox", "./internal/sidekiq", "./internal/sqlimport", "./internal/testpg/..."),
		tests("acceptance", 25, true, "./internal/acceptance"),
		tests("the program", 15, true, "./internal/cli", "./internal/chaos"),
	}
	if version == "18" {
		known := []string{"./sql", "./postgres", "./server", "./posthastetest", "./telemetry/...", "./internal/outbox", "./internal/sidekiq", "./internal/sqlimport", "./internal/testpg/...", "./internal/acceptance", "./internal/cli", "./internal/chaos"}
		known = append(listed(known...), listed(brokers...)...)
		steps = append(steps, tests("brokers", 25, true, brokers...), tests("the rest", 20, true, without(listed("./..."), known)...))
	}
	return steps
}

// interleavings are the random tests, each shape for 600 s.
func interleavings(version string) []step {
	// Two shapes run at a time, on two cores.
	long := func(name string, minutes int, test string) step {
		return step{name: "interleavings, " + name + ", on " + version, minutes: minutes, env: append(slices.Clone(night), "POSTHASTE_TEST_SECONDS=600"),
			command: []string{"-timeout=55m", "-run=" + test}, packages: []string{"./sql"}, versions: version}
	}
	return []step{
		long("crowd", 12, "^TestInterleaving$/^crowd$"),
		long("narrow", 12, "^TestInterleaving$/^narrow$"),
		long("runaway", 12, "^TestInterleaving$/^runaway$"),
		long("hurried", 12, "^TestInterleaving$/^hurried$"),
		long("ordered", 40, "^TestInterleavingKeyed$/ordered"),
		long("keyed", 30, "^TestInterleavingKeyed$/(key_|fair)"),
		long("limits", 25, "^(TestInterleavingLimits|TestInterleavingFairAhead)$"),
	}
}

// sized are the tests that have a full size, with their approximate minutes. Add a new test
// with a full size here. They run alone, one after the other.
var sized = []struct {
	pkg     string
	minutes int
	env     []string
	tests   []string
}{
	{"./internal/acceptance", 12, nil, []string{"TestLP6_TransactionStaysOpen", "TestOR4_BrokerTrouble"}},
	{"./internal/acceptance", 4, nil, []string{"TestLP9_RingTurnsOver", "TestDS4_ExactlyOnceEffects", "TestEM5_StoryIsFoundAmongMany", "TestOR3_RelaysShare", "TestLA3_SentAroundFallingAsleep"}},
	{"./internal/acceptance", 15, nil, []string{"TestDB3_PagesAreFast"}},
	{"./internal/acceptance", 5, nil, []string{"TestDB9_ViewersCostLittle"}},
	{"./internal/acceptance", 2, nil, []string{"TestLA4_WakeUpsAndPolling", "TestNP5_BrokerRestarted", "TestOR5_RelayKilled", "TestOR6_OrderAtTheBroker", "TestLowRatesHold", "TestKeyRatesHold"}},
	{"./internal/acceptance", 1, nil, []string{
		"TestLP8_LongBacklog", "TestDS6_AtMostOnce", "TestDS8_EachSubscriptionGetsEachMessageOnce",
		"TestDS10_DueBesideBacklog", "TestDS10_OrderedRetriesBesideBacklog", "TestDU4_KilledBeforeTheSettle",
		"TestLP1_WorkerComesLater", "TestLP2_WithoutWakeUps", "TestLP3_WorkersKilled", "TestLP4_StoreKilled",
		"TestLP5_NetworkFaults", "TestLP5_HalfOpenForGood",
		"TestHA1_OneIsKilled", "TestHA2_RollingReplacement", "TestHA5_Readiness",
		"TestEM3_MailsAtARate", "TestConcurrencyOverWorkers", "TestWaitingReceiversAreWokenByLimits",
		"TestEachTickIsOneMessageThroughKills", "TestTickStartsWithinASecond", "TestNP1_DueMessagesLeaveInChunks"}},
	{"./inbox", 2, nil, []string{"TestNP2_OnceOnPostgres", "TestOnceWhileRotating"}},
	{"./postgres", 3, nil, []string{"TestLA3SentWhileFallingAsleep", "TestOpenSenderDelaysNobody", "TestNoWakeUpLostAmongProcesses",
		"TestDozeProbeLeaksNothingUnderCancels", "TestLostConnectionIsReplaced", "TestInterruptedWaitsKeepTheConnection"}},
	{"./server", 1, nil, []string{"TestHA5Readiness"}},
	{"./dashboard", 1, nil, []string{"TestDB2_ReplayOnPostgreSQL"}},
	{"./internal/cli", 1, nil, []string{"TestHA5ServeWaitsForItsDatabase"}},
	{"./sql", 3, nil, []string{"TestInterleavingKeyed", "TestClaimBesideManyParked", "TestClaimBesideManyKeysInLine", "TestRuleFairNewcomerBehindManyKeys"}},
	{"./sql", 25, nil, []string{"TestInterleavingFindsBrokenTwins", "TestInterleavingKeyedFindsBrokenTwins"}},
	// The cost of claims and searches with ten million rows and with a million.
	{"./sql", 10, []string{"POSTHASTE_TEST_ROWS=10000000"}, []string{"TestGoldenPlans", "TestGoldenPages"}},
	{"./sql", 4, []string{"POSTHASTE_TEST_ROWS=1000000"}, []string{"TestGoldenKeyedPlans", "TestSearchesOfDeadLettersReadLittle", "TestListingsByReferenceReadLittle",
		"TestRuleMetricsCostTheSame", "TestRuleEmptyClaimKeepsItsProgress", "TestRuleClaimAfterADueBacklogKeepsItsProgress", "TestRuleSiftingKeepsItsProgress"}},
}

// sizedOnRedis are the sized tests of the Redis engine, which need no PostgreSQL.
var sizedOnRedis = map[string][]string{
	"./internal/acceptance": {"TestOnRedis", "TestRE1", "TestRE1/LP8"},
	"./dashboard":           {"TestDB2_ReplayOnRedis"},
	"./inbox":               {"TestNP2_OnceOnRedis"},
	"./redis":               {"TestRE2_KilledProcess", "TestIdle", "TestIdleInCluster", "TestRE_CostOfKeys", "TestTickStartsWithinASecond", "TestCallsAreNotKeptByAMasterThatWasReplaced"},
	"./internal/cron":       {"TestTicksAreThoseOfTheClockOnTheWall"},
}

// sizedOnNATS are the sized tests of the engine on NATS, with their approximate minutes.
var sizedOnNATS = map[string]int{
	"TestNJ1_LeadersKilled": 60, "TestNJ2_MinorityCutOff": 5, "TestNJ2_MajorityCutOff": 5, "TestNJ3_AllKilled": 5, "TestNJ4_DelayedMessages": 3,
	"TestNJ5_FrozenWorker": 1, "TestNJ6_KilledDeadLettering": 1, "TestNJ7_Funnel": 6, "TestNJ10_LongBacklog": 4,
}

func fullSizes(version string) []step {
	var steps []step
	for _, s := range sized {
		for _, test := range s.tests {
			steps = append(steps, fullSize(version, s.pkg, test, s.minutes, s.env))
		}
	}
	return steps
}

func onOthers() []step {
	var steps []step
	for _, pkg := range slices.Sorted(maps.Keys(sizedOnRedis)) {
		for _, test := range sizedOnRedis[pkg] {
			steps = append(steps, fullSize("18", pkg, test, 5, nil))
		}
	}
	// With empty caches of Go.
	steps = append(steps, fullSize("18", "./internal/documents", "TestDR1_Quickstarts", 10, nil))
	// All platforms of a release, twice.
	steps = append(steps, fullSize("18", "./internal/documents", "TestDR5_TwoBuildsAreEqual", 25, nil))
	for _, test := range slices.Sorted(maps.Keys(sizedOnNATS)) {
		steps = append(steps, fullSize("18", "./internal/acceptance", test, sizedOnNATS[test], nil))
	}
	return steps
}

func fullSize(version, pkg, test string, minutes int, env []string) step {
	return step{name: fmt.Sprintf("full size of %s %s on %s", path.Base(pkg), test, version), minutes: minutes, env: append(slices.Clone(full), env...),
		command: []string{"-timeout=3h", "-run=" + anchored(test)}, packages: []string{pkg}, versions: version}
}

// peers checks the comparison with other queues, which is a separate module. It is built, not
// run.
func peers() step {
	return step{name: "bench beside other queues builds", minutes: 3, command: []string{"sh", "-ec",
		"go build -o .cache/staticcheck honnef.co/go/tools/cmd/staticcheck; cd bench/peers; go vet ./...; ../../.cache/staticcheck ./...; go test ./..."}}
}

// jetstreamTrial checks the trial of JetStream, which is a separate module, and its checker. It
// is not run.
func jetstreamTrial() step {
	return step{name: "trial of JetStream builds", minutes: 3, command: []string{"sh", "-ec",
		"go build -o .cache/staticcheck honnef.co/go/tools/cmd/staticcheck; cd bench/jetstream; go vet ./...; ../../.cache/staticcheck ./...; go test ./..."}}
}

// exampleModules checks the examples that are modules, since they use libraries that the program
// does not need.
func exampleModules() step {
	return step{name: "examples with other libraries build", minutes: 3, command: []string{"sh", "-ec",
		"go build -o .cache/staticcheck honnef.co/go/tools/cmd/staticcheck; root=$PWD; for example in examples/recipes examples/from-river/river; do (cd $example; go vet ./...; $root/.cache/staticcheck ./...; go test ./...); done"}}
}

// releaseModule checks the program that builds releases, which is a separate module, the chart and
// the compose file.
func releaseModule() step {
	return step{name: "releases, chart and compose file", minutes: 5, command: []string{"sh", "-ec",
		"go build -o .cache/staticcheck honnef.co/go/tools/cmd/staticcheck; cd release; go vet ./...; ../.cache/staticcheck ./...; go test ./..."}}
}

// chaos runs an hour on each engine, in two halves, so that a part of the night fits into an
// hour. Some clients have wrong clocks.
func chaos() []step {
	const build = "make bin/posthaste .cache/chaos; scripts/clock-off 60 go build -o .cache/chaos-ahead ./internal/chaos/run; scripts/clock-off -60 go build -o .cache/chaos-behind ./internal/chaos/run; "
	const run = ".cache/chaos -program bin/posthaste -duration 30m -clocks .cache/chaos-ahead,.cache/chaos-behind -engine "
	var steps []step
	for _, engine := range []string{"postgres", "redis"} {
		for _, half := range []string{"first", "second"} {
			steps = append(steps, step{name: "chaos on " + engine + ", " + half + " half hour", minutes: 33, command: []string{"sh", "-ec", build + run + engine}})
		}
	}
	return steps
}
