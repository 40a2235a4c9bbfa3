# Every task of this repository; CI calls only targets of this file.
#
#   make test    installs what is missing, then checks and tests what each change needs
#   make nightly everything: all twins, full sizes, chaos, fuzzing, benches (PART=3/20)
#   make build   bin/posthaste
#   make up      PostgreSQL, server, worker and a mail catcher, to try it out
#   make golden  writes the golden files anew
#   make screenshots  writes all pages of the dashboard to dist/screenshots, and the picture of the README
#   make docs    builds the documentation site into dist/docs
#   make twins   runs all broken twins of the SQL and records those that were found
#   make release builds what a release consists of, into dist: make release VERSION=v0.1.0
#   make peers   runs Posthaste and other queues in PostgreSQL side by side
#   make jetstream-trial  tries the protocol of an engine on NATS JetStream under faults
#   make chaos   breaks everything around it, and accounts for every message

GO        ?= go
# With paths of this folder, nothing that was built in another clone could be used again.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
# How long each fuzz target runs. They are found by themselves.
FUZZTIME  ?= 20s
# Further flags and packages of the tests: make test-18 PACKAGES=./worker TESTFLAGS='-race -run DU1 -v'
TESTFLAGS ?= -race -count=1 -timeout 40m
# The longest first, so that it does not run alone at the end.
PACKAGES  ?= ./sql ./...

# Which part of the night `make nightly` runs, such as 3/20, and which of its steps, as
# a pattern of names.
PART      ?=
STEPS     ?= .

# How long `make chaos` takes, and what repeats a run's faults (0: a new one).
CHAOS_DURATION ?= 40s
CHAOS_SEED     ?= 0
# The engine that it runs on, postgres or redis.
CHAOS_ENGINE   ?= postgres
CHAOS_FLAGS    ?=

# The version and the platforms of `make release`, such as linux/amd64 (default: the tag's, all).
VERSION   ?=
PLATFORMS ?=

# What `make peers` is given; see bench/peers/README.md.
PEERS_FLAGS    ?=

# What `make jetstream-trial` is given; see bench/jetstream/README.md.
TRIAL_FLAGS    ?=

LAUNCH = .cache/launch
CHAOS  = .cache/chaos

.PHONY: test build up needs lint fmt fmt-check vet staticcheck fence prose test-18 test-14 fuzz golden screenshots docs chaos nightly nightly-list nightly-age nightly-page testing-page twins peers jetstream-trial release clean $(LAUNCH) $(CHAOS) bin/posthaste
.NOTPARALLEL:

# Runs all steps even if some fail, and ends with a summary.
test: needs $(LAUNCH)
	$(GO) run ./internal/testrun/run change

build: bin/posthaste
bin/posthaste:
	$(GO) build -o $@ ./cmd/posthaste

up:
	$(GO) run ./cmd/posthaste up

# What the tests need and Go does not bring.
needs:
	scripts/needs

lint: fmt-check vet staticcheck fence prose

fmt:
	gofmt -w .

fmt-check:
	@echo gofmt -l .
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) tool staticcheck ./...

# Which package imports which, and the measures of structure. If one of them improved:
# go test ./internal/fence -update
fence:
	$(GO) test -count=1 ./internal/fence

# Phrases that the style avoids, and the subjects of the last commits.
prose:
	$(GO) test -count=1 ./internal/prose

# Starts PostgreSQL, runs a command with it, and stops it. Without the race
# detector, for it also unpacks PostgreSQL the first time.
$(LAUNCH):
	$(GO) build -o $@ ./internal/testpg/launch

# Everything, on PostgreSQL 18. A server of 14 is started too: not used, but
# unpacked for the tests of internal/devpg, which are slow at that.
test-18: $(LAUNCH)
	POSTHASTE_TEST_POSTGRES=18 $(LAUNCH) -- $(GO) test $(TESTFLAGS) $(PACKAGES)

# What touches a database, on PostgreSQL 14.
test-14: $(LAUNCH)
	packages=$$(scripts/database-packages $(PACKAGES)) && \
	POSTHASTE_TEST_POSTGRES=14 $(LAUNCH) -versions 14 -- $(GO) test $(TESTFLAGS) $$packages

fuzz: $(LAUNCH)
	$(LAUNCH) -versions 18 -- scripts/fuzz $(FUZZTIME)

# The golden files anew, for a change that is meant; look at the difference. The
# schema is the same on both versions, the plans are not.
golden: $(LAUNCH)
	POSTHASTE_TEST_POSTGRES=18 $(LAUNCH) -versions 18 -- $(GO) test -count=1 ./sql -run Golden -update
	POSTHASTE_TEST_POSTGRES=14 $(LAUNCH) -versions 14 -- $(GO) test -count=1 ./sql -run Golden -update

# Look at them after a change of the dashboard.
screenshots: needs $(LAUNCH)
	rm -rf dist/screenshots
	POSTHASTE_TEST_POSTGRES=18 POSTHASTE_TEST_NIGHT=1 $(LAUNCH) -versions 18 -- $(GO) test -count=1 ./internal/browsertest -run 'Screenshot|DB8_.*Pages' -update

# The documentation site, in a folder for its version: make docs VERSION=0.1
docs: needs
	VERSION=$(VERSION) scripts/site/build

# See docs/project/chaos.md.
chaos: bin/posthaste $(CHAOS)
	$(CHAOS) -engine $(CHAOS_ENGINE) -program bin/posthaste -duration $(CHAOS_DURATION) -seed $(CHAOS_SEED) $(CHAOS_FLAGS)

$(CHAOS):
	$(GO) build -o $@ ./internal/chaos/run

# What takes too long for every change; see docs/project/tests.md. nightly-list names the
# steps, and nightly-page gives each a row in docs/project/nightly.md.
nightly: needs $(LAUNCH)
	$(GO) run ./internal/testrun/run nightly -part '$(PART)' -steps '$(value STEPS)'

nightly-list:
	$(GO) run ./internal/testrun/run list -steps '$(value STEPS)'

# Whether a result is older than it may be.
nightly-age:
	$(GO) run ./internal/testrun/run change -steps '^nightly-age$$'

nightly-page:
	$(GO) run ./internal/testrun/run page

# The table in docs/project/tests.md of what runs when.
testing-page:
	$(GO) run ./internal/testrun/run table

# Every broken twin of the SQL, after a change of many of its files.
twins: $(LAUNCH)
	rm -f sql/testdata/twins.sum
	POSTHASTE_TEST_POSTGRES=18 POSTHASTE_TEST_NIGHT=1 POSTHASTE_TEST_RECORD_TWINS=1 $(LAUNCH) -versions 18 -- $(GO) test -count=1 -timeout 50m ./sql ./postgres -run 'Rule|Arm|PassingSend|Settlers|BrokenPromises|BrokenTwins'

# A module of its own: nothing of the products compared comes into the program.
peers:
	cd bench/peers && $(GO) build -o ../../.cache/peers .
	.cache/peers $(PEERS_FLAGS)

# A module of its own, so that the program does not contain a NATS server.
jetstream-trial:
	cd bench/jetstream && $(GO) build -o ../../.cache/jetstream-trial .
	.cache/jetstream-trial $(TRIAL_FLAGS)

# A module of its own: its libraries do not come into the program. See docs/start/install.md.
release:
	cd release && $(GO) run . -version "$(VERSION)" $(if $(PLATFORMS),-platforms "$(PLATFORMS)")

clean:
	rm -rf bin .cache dist
