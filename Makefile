# `make help` lists the targets. Everything they need is installed by `bash .ci/setup TARGET`, which then runs make.

GO          ?= go
STATICCHECK  = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT      = $(GO) run mvdan.cc/gofumpt@v0.12.0
GOSEC        = $(GO) run github.com/securego/gosec/v2/cmd/gosec@v2.30.0
GOVULNCHECK  = $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0
E2E          = ./daemon/e2e/...
PACKAGES     = $$($(GO) list ./... | grep -v '/daemon/e2e')
# Packages that import Fyne are tested without the race detector: Fyne is then compiled once, for lint, tests and sp-tray alike, and what runs at the same time lives in packages
# without it (ui/watch, ui/notify, ui/single, ui/tray).
USES_FYNE    = {{$$fyne := false}}{{range .Deps}}{{if eq . "fyne.io/fyne/v2"}}{{$$fyne = true}}{{end}}{{end}}
RACE         = $$($(GO) list -f '$(USES_FYNE){{if not $$fyne}}{{.ImportPath}}{{end}}' ./... | grep -v '/daemon/e2e')
FYNE         = $$($(GO) list -f '$(USES_FYNE){{if $$fyne}}{{.ImportPath}}{{end}}' ./...)
GOFILES      = $$(git ls-files --cached --others --exclude-standard -- '*.go')
FUZZTIME    ?= 30s
COUNT       ?= 20

# OpenGL ES compiles in one minute where the other binding takes four. Fyne's own picture letters would lie in memory once for each style of text, some 5 MB each. One set of flags for all targets, or Go's
# build cache holds everything twice. For a release: make tray TAGS=no_emoji TRAYFLAGS=-trimpath
TAGS        ?= gles,no_emoji
TRAYFLAGS   ?=
export GOFLAGS := $(strip $(GOFLAGS) $(if $(TAGS),-tags=$(TAGS)))

.PHONY: help demo build systems tray test race e2e check lint gosec govulncheck fmt fuzz bench soak picture screenshots clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 8

demo: build ## one lost answer and its retry: a real daemon, a real target, a throw-away home
	./bin/spctl demo

build: ## spd and spctl, without cgo, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/spd ./cmd/spctl

systems: ## that spd and spctl compile for macOS and Windows, where they cannot tell who asks and serve no agent yet
	@for system in darwin windows; do \
		GOOS=$$system CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/spd && GOOS=$$system CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/spctl || exit 1; \
	done

tray: ## sp-tray, the tray app, into bin/ (needs what .ci/setup installs for it)
	CGO_ENABLED=1 $(GO) build $(TRAYFLAGS) -o bin/ ./cmd/sp-tray

test: ## every test but the end-to-end ones
	$(GO) test $(PACKAGES)

race: ## the same under the race detector, and the packages of the window without it
	CGO_ENABLED=1 $(GO) test -race $(RACE)
	$(GO) test $(FYNE)

# -count 1: Go does not see that a test builds the programs, and would take an old result for one of the new ones.
e2e: ## real MCP clients against the real programs, built without cgo
	$(GO) test -count 1 -timeout 30m $(E2E)

check: lint build systems race e2e ## everything that must pass before a change is merged; continuous integration runs this

lint: ## formatting, go vet, staticcheck
	@bad=$$($(GOFUMPT) -l $(GOFILES)); [ -z "$$bad" ] || { echo "not formatted (run make fmt):"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...

# What only tests use is left out, and three rules whose findings were all looked at; SECURITY.md says what came of each.
gosec: ## search the code for known mistakes (fetches gosec and much that it needs)
	$(GOSEC) -quiet -tags '$(TAGS)' -exclude=G104,G115,G304 -exclude-dir=assets -exclude-dir=daemon/e2e -exclude-dir=daemon/channel/conformance -exclude-dir=daemon/channel/sshchan/sshdtest \
		-exclude-dir=daemon/egress/proxytest -exclude-dir=daemon/mcpserver/enginetest -exclude-dir=vault/keychain/keyringtest -exclude-dir=ui/bustest -exclude-dir=ui/looktest ./...

govulncheck: ## search what is linked for known vulnerabilities (needs the network: it asks a database)
	$(GOVULNCHECK) -tags '$(TAGS)' ./...

fmt: ## format with gofumpt
	$(GOFUMPT) -w $(GOFILES)

fuzz: ## every fuzz target for FUZZTIME (30s)
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "== $$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

bench: ## every benchmark, each beside its floor
	$(GO) test -run '^$$' -bench . -benchmem ./...

soak: ## the end-to-end tests COUNT (20) times over
	$(GO) test -count $(COUNT) -timeout 0 $(E2E)

picture: ## draw the README's picture from a run of the installed spctl's demonstration, without the card's details and the journal
	{ echo '$$ spctl demo'; spctl demo; } | \
		sed -e '/^  why asked/,/^  valid for/c\  …' -e '/^3\. /,$$d' | fold -s -w 108 | $(GO) run ./daemon/e2e/cmd/picture > docs/demo.svg.new
	mv docs/demo.svg.new docs/demo.svg

screenshots: ## draw docs/screenshots from the end-to-end tests of the tray app: everything light, what the README shows dark as well
	SINGLEPASS_SCREENSHOTS=$(CURDIR)/docs/screenshots SINGLEPASS_SCREENSHOTS_THEME=light $(GO) test -count 1 -run 'Person|Lost' ./daemon/e2e/tray
	SINGLEPASS_SCREENSHOTS=$(CURDIR)/docs/screenshots SINGLEPASS_SCREENSHOTS_THEME=dark $(GO) test -count 1 -run 'Person|Lost' ./daemon/e2e/tray

clean: ## remove what was built
	rm -rf bin
