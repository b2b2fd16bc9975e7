# The commands of this repository. `make check` is what CI runs beside `make demo` and `make test`.

GO   ?= go
TOOL  = $(GO) tool -modfile=tools/go.mod

# What `make test` does not run, named at its end.
LEFT_OUT = fuzzing beyond the seeds (go test -fuzz NAME ./PACKAGE), more simulator seeds \
	(go test ./test/sim -seeds N), benchmarks (make bench), full-size jobs (make mainjob), all rounds on Apache Kafka (make chaos)

# What `make build` stamps into the binary where git knows it. Go does so itself only where it may ask git.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
STAMP    = -X github.com/a0c75104/enricher/cli.version=$(VERSION) -X github.com/a0c75104/enricher/cli.commit=$(COMMIT)

.PHONY: build demo test mainjob chaos check check-format check-tidy check-generated lint vulncheck bench generate

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(STAMP)' -o bin/enricher ./cmd/enricher

demo:
	$(GO) run ./cmd/enricher demo

# The race detector needs cgo, and with it a C compiler. Without one the tests run all the same, save where CI is set.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race,$(if $(CI),-race))

test:
	$(GO) test $(RACE) -shuffle=on -timeout 20m ./...
	@kafka=$$($(GO) run ./test/kafka/need); \
	echo "make test: passed. Left out: $(if $(RACE),,the race detector (it needs cgo and a C compiler), )$${kafka:+all of test/kafka ($$kafka), }$(strip $(LEFT_OUT))."

# The scenarios of test/mainjob at full size: 100,000 events beside brokers, workers and kills in processes of their own.
mainjob:
	$(GO) test -count=1 -timeout 30m -v -run . ./test/mainjob -full

# The suites of test/kafka with all their rounds, and the table of what they found, which is also written to CHAOS_REPORT,
# where all passed also into the docs: make chaos CHAOS_REPORT=docs/reliability.md.
# Outages of ten minutes, in which little happens, run side by side.
CHAOS_REPORT ?= $(CURDIR)/.kafka/report.md

chaos:
	CI=1 $(GO) test -count=1 -timeout 45m -v -run . ./test/kafka -parallel 4 -full -report $(abspath $(CHAOS_REPORT))

check: check-format check-tidy check-generated lint test bench vulncheck

check-format:
	@diff=$$($(TOOL) gofumpt -d $$(git ls-files -co --exclude-standard '*.go')) && test -z "$$diff" || \
		{ printf '%s\nmake check: run gofumpt -w on these files\n' "$$diff"; exit 1; }

check-tidy:
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff

# The tests below compare each generated file to what its source makes now; -update writes it.
GENERATED = -run 'Generated|Schema|Docs' ./pipeline

check-generated:
	$(GO) test $(GENERATED)

generate:
	$(GO) test $(GENERATED) -update

lint:
	$(TOOL) golangci-lint run ./...

# Each benchmark runs once, so that none rots.
bench:
	$(GO) test -run '^$$' -bench . -benchtime=1x ./...

# A report, not a gate: a new advisory must not stop an unrelated change.
vulncheck:
	-$(TOOL) govulncheck ./...
