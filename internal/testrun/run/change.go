package main

import (
	"os/exec"
	"slices"
	"strings"
)

// lint returns the checks that run no tests.
func lint() []step {
	return []step{
		{name: "gofmt", minutes: 1, command: []string{"sh", "-c", `unformatted=$(gofmt -l .); test -z "$unformatted" || { echo "not formatted, run make fmt:"; echo "$unformatted"; exit 1; }`}},
		{name: "vet", minutes: 1, command: []string{"go", "vet", "./..."}},
		{name: "docs", minutes: 1, command: []string{"scripts/site/build"}},
		{name: "staticcheck", minutes: 2, command: []string{"go", "tool", "staticcheck", "./..."}},
	}
}

// underRace are the packages that run with the race detector on each change: those in which
// the product's goroutines share most memory. At night all packages do, except sql, whose Go
// code is tests. Building everything twice would take longer than testing it.
var underRace = []string{".", "./worker", "./internal/sharedbell", "./server", "./relay"}

// longest are the slowest packages. They start first, so that none of them runs alone at the
// end, and so that packages that mostly wait for brokers run next to others.
var longest = []string{"./sql", "./internal/acceptance", "./internal/cli", "./broker/rabbitmq", "./broker/kafka", "./redis", "./broker/redisstream", "./postgres", "./broker/nats", "./internal/chaos", "./internal/bench"}

// onFourteen are the tests that run on PostgreSQL 14 on each change: the contract and the
// golden files of the SQL, the engine's suite behind a pooler, and the scenarios in which the
// versions could differ. The suite costs two minutes of a processor.
const onFourteen = "^(TestContract|TestGolden.*|TestSchema.*|TestDS.*|TestDU.*|TestLP4.*|TestLP9.*|TestHA5.*|TestHA7.*|" + onlyOnFourteen + ")$"

// notOnFourteen are scenarios of these that run on 14 at night only: the most expensive ones, which
// use the same SQL as the others.
const notOnFourteen = "^(TestDS4_ExactlyOnceEffects|TestDS8_EachSubscriptionGetsEachMessageOnce|TestDS9_ArrivesAsSent|TestDU3_RescuersTogether|TestDU4_KilledBeforeTheSettle)$"

// onlyOnFourteen is the engine's suite behind a pooler. One version is enough for it.
const onlyOnFourteen = "TestHA6_EngineBehindPgbouncer"

// onChange returns the steps of `make test`.
func onChange() []step {
	return append(lint(),
		step{name: "nightly-age", do: checkNight},
		step{name: "tests on 18", packages: without(append(slices.Clone(longest), listed("./...")...), listed(underRace...)),
			command: []string{"-timeout=45m", "-p=5", "-skip=^" + onlyOnFourteen + "$"}, versions: "18,14"},
		step{name: "tests on 18 with -race", packages: underRace, command: []string{"-race", "-timeout=45m"}, versions: "18"},
		step{name: "tests on 14", packages: []string{"./sql", "./internal/acceptance", "./postgres"},
			command: []string{"-timeout=45m", "-p=3", "-run=" + onFourteen, "-skip=" + notOnFourteen}, versions: "14", beside: "tests on 18 with -race"},
	)
}

// listed returns the folders of packages, such as "./sql", in the given order. A pattern that
// cannot be listed stays as it is, and fails when it is built.
func listed(patterns ...string) []string {
	out, err := exec.Command("go", append([]string{"list"}, patterns...)...).Output()
	if err != nil {
		return patterns
	}
	var packages []string
	for pkg := range strings.FieldsSeq(string(out)) {
		packages = append(packages, short(pkg))
	}
	return packages
}

// without returns the distinct packages that are not among others.
func without(packages, others []string) []string {
	gone := map[string]bool{}
	for _, p := range others {
		gone[p] = true
	}
	var left []string
	for _, p := range packages {
		if !gone[p] {
			left = append(left, p)
		}
		gone[p] = true
	}
	return left
}
