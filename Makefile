# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Gates share .build, and one of them is enough for two cores.
.NOTPARALLEL:

PYTHON ?= $(shell ci/python.sh)
# .venv is installed in two steps: what the collection needs to run, then the tools of tests and gates.
RUN := .venv/.run
VENV := .venv/.stamp
# Tools find each other here: molecule runs ansible-playbook, yamllint and ansible-lint import the collection.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# The packages of the test bed: local_cluster and kind_cluster.
TESTBED := PYTHONPATH=$(CURDIR)/testbed
# The same and the helpers of the tests that run on it.
CONTROL_PLANE := PYTHONPATH=$(CURDIR)/testbed:$(CURDIR)/tests/control_plane/support
KIND := $(TESTBED) python -m kind_cluster
# Go with the flags that all builds use. If Go is missing or too old, it is installed in .venv.
GO := $(TESTBED) python -m local_cluster go

COLLECTIONS := .build/collection
COPY := $(COLLECTIONS)/ansible_collections/virtpools/kubevirt

define INTRODUCTION
make TARGET. It needs Linux, git and Python 3.11 to 3.13; everything else comes from PyPI and the Go module proxy.

  New here?          make demo shows the collection at work and how to look around. make cluster-down stops it.
  A change?          make test-unit and make lint while you work on it, make test before you submit it.
endef
export INTRODUCTION

.PHONY: help
help:
	@echo "$$INTRODUCTION"
	@awk -F ':.*## ' '/^##### / {printf "\n%s\n", substr($$0, 7)} /^[a-z-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' Makefile


##### See it work

CLUSTER ?= demo
FLEET ?= testbed/fleets/demo.yaml
LOCAL_CLUSTER := $(TESTBED) python -m local_cluster

.PHONY: demo
demo: $(RUN) ## Pools on a local Kubernetes with 15 nodes; the first start builds it, which takes minutes
	$(TESTBED) python testbed/demo.py $(CLUSTER) $(FLEET)

KIND_CLUSTER := virtpools-molecule
# [IMAGES=published], else those of kind-images.
ON_KIND = variables=$(if $(filter published,$(IMAGES)),,$$($(KIND) images)); program=$$($(KIND) kind); \
    PATH=$$(dirname $$program):$$PATH VIRTPOOLS_KIND_IMAGES=$$variables

.PHONY: demo-guests
demo-guests: $(VENV) ## Two pools and three guests that boot, on a kind cluster with images made from packages: needs what kind-images needs
	$(ON_KIND) molecule create --scenario-name kind
	$(TESTBED) python testbed/demo_guests.py $(KIND_CLUSTER)

.PHONY: demo-guests-down
demo-guests-down: $(VENV) ## Stop that cluster
	$(ON_KIND) molecule destroy --scenario-name kind
	-docker rm --force --volumes $(KIND_CLUSTER)-registry

.PHONY: cluster
cluster: $(RUN) ## Start a local Kubernetes with KubeVirt and no pools: [CLUSTER=name] [FLEET=file of nodes] [KUBEVIRT=v1.8.2] [KUBERNETES=v1.37.0]
	$(LOCAL_CLUSTER) up --name $(CLUSTER) --fleet $(FLEET) \
	    $(addprefix --kubevirt ,$(KUBEVIRT)) $(addprefix --kubernetes ,$(KUBERNETES))

.PHONY: kubeconfig
kubeconfig: $(RUN) ## Print the path of the cluster's kubeconfig: [CLUSTER=name]
	@$(LOCAL_CLUSTER) kubeconfig --name $(CLUSTER)

.PHONY: cluster-down
cluster-down: $(RUN) ## Stop the cluster and delete its files: [CLUSTER=name]
	$(LOCAL_CLUSTER) down --name $(CLUSTER)


##### Develop

$(RUN): requirements.txt requirements/run.txt requirements/constraints.txt ci/venv.sh
	PYTHON=$(PYTHON) ci/venv.sh run

.PHONY: venv
venv: $(VENV) ## Install the pinned tools in .venv; the targets below do so if needed: [PYTHON=python3.12]

$(VENV): requirements.txt $(wildcard requirements/*.txt) ci/venv.sh
	PYTHON=$(PYTHON) ci/venv.sh dev

.PHONY: docs
docs: copy ## Build the HTML site of pages, modules, roles and playbooks; fails on broken links: 20 seconds
	rm -rf .build/docs
	python ci/docs/sources.py $(COPY) .build/docs/source
	ANSIBLE_COLLECTIONS_PATH=$(COLLECTIONS) antsibull-docs collection --use-current --squash-hierarchy --fail-on-error \
	    --dest-dir .build/docs/source/reference virtpools.kubevirt
	sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --jobs auto --conf-dir $(COPY)/ci/docs \
	    --doctree-dir .build/docs/doctrees .build/docs/source .build/docs/html
	@echo "$(CURDIR)/.build/docs/html/index.html"

.PHONY: options
options: $(VENV) ## Generate specs and defaults of roles, documentation and docs/variables.md from the option table
	python ci/options.py

.PHONY: lock
lock: ## Update requirements/constraints.txt after a change in requirements/
	rm -rf .build/lock && $(PYTHON) -m venv .build/lock
	.build/lock/bin/pip install --disable-pip-version-check --progress-bar off -r requirements.txt -r requirements/dev.txt
	{ sed '/^$$/,$$d' requirements/dev.txt; printf '\n# Written by make lock.\n'; \
	    .build/lock/bin/pip freeze $(foreach file,run test dev,-r requirements/$(file).txt) | sed '1,/added by pip freeze/d'; \
	    } > .build/constraints.txt
	mv .build/constraints.txt requirements/constraints.txt
	{ sed '/^$$/,$$d' requirements/ee.txt; sed -n 's/^\([A-Za-z-]*\).*/\1/p' requirements.txt | while read -r name; do \
	    grep -hio "^$$name==[^ ]*" requirements/run.txt requirements/constraints.txt; done; } > .build/ee.txt
	mv .build/ee.txt requirements/ee.txt
	rm -rf .build/lock

.PHONY: ee
ee: $(VENV) ## Build the execution environment: an image with podman or docker, BASE_IMAGE=...; without them a venv, .build/ee
	PYTHON=$(PYTHON) BASE_IMAGE=$(BASE_IMAGE) $(TESTBED) ci/ee.sh

.PHONY: clean
clean: ## Delete the tools and all that was built in this checkout
	rm -rf .build .venv


##### Test

.PHONY: one
one: $(VENV) ## Run the given tests: make one T="tests/unit -k selectors", make one T=tests/control_plane/runs/test_lease.py
	pytest $(or $(T),$(error T is missing: make one T="tests/unit -k selectors"))

.PHONY: test-unit
test-unit: test-agent ## Unit tests of the core, the modules and the agent, without a cluster: some minutes
	pytest --numprocesses 2 --dist worksteal tests/unit

.PHONY: test-agent
test-agent: $(VENV)
	$(GO) -C testbed test ./agent/...

.PHONY: test-unit-others
test-unit-others: $(VENV)
	@# ansible-test would take much longer: it runs each test in a process of its own. With CI, hypothesis repeats its examples.
	@mkdir -p .build
	CI=true pytest --numprocesses 2 --dist worksteal --ignore tests/unit/plugins/modules tests/unit | tee .build/test-unit.log

.PHONY: test-unit-core
test-unit-core: ## Unit tests with another ansible-core: CORE=2.16 [PYTHON=python3.12]
	PYTHON=$(PYTHON) ci/venv.sh core $(CORE)
	.build/core-$(CORE)/bin/python -m pytest --numprocesses 2 --dist worksteal tests/unit

# Three files at a time, each with its own clusters, in the order of support/schedule_plugin.py: without it, long files with few tests
# would come last.
ON_CONTROL_PLANE := $(CONTROL_PLANE) pytest -p schedule_plugin --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 25 \
    tests/control_plane

.PHONY: test-control-plane
test-control-plane: $(VENV) ## Tests of modules and playbooks on a local Kubernetes with KubeVirt's own programs
	@mkdir -p .build
	$(ON_CONTROL_PLANE) -m "not thorough" | tee .build/test-control-plane.log

.PHONY: molecule
molecule: $(VENV) ## The molecule scenario default: site.yml on a local cluster, twice, then verify.yml
	molecule test --scenario-name default

.PHONY: kind-images
# Node, Kubernetes, KubeVirt and a registry, from Debian's packages and Go modules. Not part of make test.
kind-images: $(VENV) ## Build the images of make test-kind from packages: needs root, docker, mmdebstrap, gcc; slow, once
	$(KIND) images

.PHONY: test-kind
test-kind: $(VENV) ## Tests with real kubelets and virt-handlers: the molecule scenario kind. [IMAGES=published], else those of kind-images
	@mkdir -p .build
	$(ON_KIND) molecule test --scenario-name kind

.PHONY: test-image
test-image: $(VENV) ## Build the execution environment's image, and run the example project in it: needs docker. [BASE_IMAGE=...]
	@# Without BASE_IMAGE also root and mmdebstrap. ansible-navigator gets a venv of its own: it needs much, and no other test needs it.
	$(PYTHON) -m venv .build/navigator
	.build/navigator/bin/python -m pip install --quiet -r requirements/navigator.txt
	VIRTPOOLS_TEST_BASE_IMAGE=$(BASE_IMAGE) $(CONTROL_PLANE) pytest -v tests/control_plane/awx/test_image.py

.PHONY: test
# Unit tests run once: those of modules with units, the stricter way.
test: programs test-agent beside-begin test-control-plane beside-end ## Unit and control-plane tests, molecule and all gates, from a clean checkout, as in CI
	@echo; grep -h ' passed' .build/units.log .build/test-unit.log; tail -n 1 .build/test-control-plane.log

# In parallel to the control-plane tests, at low priority: they hardly wait for it, and at the lowest one a single playbook of a
# unit test took five minutes. molecule itself mostly waits. What uses one core at a time comes before the unit tests, which use two.
.PHONY: beside-begin beside-end
beside-begin: copy
	@rm -f .build/beside.ended
	@echo "molecule, units, sanity, test-unit-others and lint run in parallel to the control-plane tests;" \
	    "their output is printed at the end; until then see .build/beside.log and .build/lint.log"
	@# They use one copy: otherwise each would write it while the other reads it.
	@{ code=0; nohup nice -n 10 $(MAKE) --keep-going --old-file copy lint > .build/lint.log 2>&1 & lint=$$!; \
	    nohup $(MAKE) molecule || code=$$?; \
	    nohup nice -n 10 $(MAKE) --keep-going --old-file copy units sanity test-unit-others || code=$$?; \
	    wait $$lint || code=$$?; \
	    echo $$code > .build/beside.ended; } > .build/beside.log 2>&1 < /dev/null &

beside-end:
	@until [[ -f .build/beside.ended ]]; do sleep 1; done
	@cat .build/lint.log .build/beside.log; exit $$(< .build/beside.ended)

.PHONY: programs
programs: $(VENV)
	@# Compiles for minutes, in parallel to other tests. Targets that need the programs wait for them and report build errors.
	@mkdir -p .build
	@$(TESTBED) nohup python -m local_cluster seed > .build/programs.log 2>&1 < /dev/null &

.PHONY: test-matrix
test-matrix: $(VENV) ## The full user journey on each version of KubeVirt and Kubernetes, and with Kyverno: half an hour
	@mkdir -p .build
	VIRTPOOLS_TEST_MATRIX=1 $(CONTROL_PLANE) pytest -v --numprocesses 2 --durations 0 --durations-min 5 \
	    $(wildcard tests/control_plane/runs/test_user_journey.py tests/control_plane/policies/test_kyverno.py \
	    tests/control_plane/policies/test_no_admission_policies.py) | tee .build/test-matrix.log

.PHONY: test-core
test-core: $(VENV) ## Unit tests and the full user journey with another ansible-core: CORE=2.16 [PYTHON=python3.12]
	$(MAKE) test-unit-core
	$(CONTROL_PLANE) ci/user_journey.sh .build/core-$(CORE)

.PHONY: test-thorough
test-thorough: $(VENV) ## All control-plane tests, also those too slow for make test, a bigger random fleet, moves from all builds: 2 hours
	VIRTPOOLS_TEST_ALL=1 pytest --numprocesses 2 tests/unit/runs/test_moving.py
	VIRTPOOLS_TEST_NODES=300 VIRTPOOLS_TEST_RUNS=4 $(ON_CONTROL_PLANE)

.PHONY: test-crash
test-crash: $(VENV) ## Runs disturbed in every way at every write, and killed at every write on the local Kubernetes: hours
	VIRTPOOLS_TEST_ALL=1 pytest tests/unit/runs/test_crash.py
	VIRTPOOLS_TEST_ALL_KILLS=1 pytest -s tests/control_plane/disturbances/test_crash.py tests/control_plane/disturbances/test_interruption.py

.PHONY: mutants
mutants: copy ## Mutants of the core that unit tests must notice: hours. [ROOM=base, or a file in it] [SAMPLE=how many] [SEED=1]
	python ci/mutants.py $(addprefix --only ,$(ROOM)) $(addprefix --sample ,$(SAMPLE)) $(addprefix --seed ,$(SEED))


##### Gates

.PHONY: lint
lint: lint-headers lint-python lint-types lint-yaml lint-shell lint-go lint-meta lint-changelog lint-docs lint-pages lint-words docs lint-ansible lint-workflows lint-galaxy ## All gates below except sanity, and make docs

.PHONY: copy
copy: $(VENV)
	@ci/copy.sh

.PHONY: lint-headers
lint-headers: copy ## Check copyright and license headers
	python ci/check_headers.py $(COPY)

.PHONY: lint-python
lint-python: $(VENV) ## ruff: errors and format of Python
	ruff check
	ruff format --check

.PHONY: lint-types
lint-types: copy ## mypy, strict on the core
	cd $(COLLECTIONS) && mypy --config-file $(CURDIR)/pyproject.toml --cache-dir ../mypy \
	    $(addprefix ansible_collections/virtpools/kubevirt/,plugins)
	cd $(COPY)/testbed && mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.build/mypy local_cluster kind_cluster

.PHONY: lint-yaml
lint-yaml: copy ## yamllint
	cd $(COPY) && yamllint --strict .

.PHONY: lint-shell
lint-shell: copy ## shellcheck
	cd $(COPY) && grep -rlE --exclude-dir=.git '^#!.*\b(ba)?sh$$' . | xargs shellcheck

.PHONY: lint-go
lint-go: $(VENV) ## gofmt and go vet
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l testbed) && \
	    if [[ -n $$unformatted ]]; then printf 'gofmt would change:\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) -C testbed vet ./agent/... ./stub/... ./swap/...

.PHONY: lint-meta
lint-meta: copy ## Check that meta/ agrees with the modules and requirements
	ANSIBLE_COLLECTIONS_PATH=$(COLLECTIONS) python ci/check_meta.py $(COPY)

.PHONY: lint-changelog
lint-changelog: copy ## antsibull-changelog: changelog fragments
	cd $(COPY) && antsibull-changelog lint

.PHONY: lint-docs
lint-docs: copy ## antsibull-docs: markup and links in the documentation of modules and roles
	@# It copies kubernetes.core from .venv, but only files in git if it finds our repository above.
	GIT_CEILING_DIRECTORIES=$(CURDIR)/.venv antsibull-docs lint-collection-docs --plugin-docs \
	    --validate-collection-refs dependent $(COPY)

.PHONY: lint-pages
lint-pages: copy ## Check the line width of Markdown pages
	python ci/check_docs.py $(COPY)

.PHONY: lint-words
lint-words: copy ## Check messages, options and pages for phrases with a plainer one
	python ci/check_words.py $(COPY)

.PHONY: lint-ansible
lint-ansible: copy ## ansible-lint, production profile
	cd $(COPY) && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/$(COLLECTIONS) ansible-lint

.PHONY: lint-workflows
lint-workflows: $(VENV) ## actionlint: the workflows of GitHub
	$(GO) -C ci/tools tool actionlint $(wildcard $(CURDIR)/.github/workflows/*.yml)

.PHONY: lint-galaxy
lint-galaxy: copy ## Build the collection and import it as Galaxy does
	ci/import_as_galaxy.sh

.PHONY: sanity
sanity: copy ## ansible-test sanity for what we ship, with its own tools from PyPI
	ci/ansible_test.sh sanity $(foreach folder,ci testbed tests/control_plane tests/kind tests/unit,--exclude $(folder)/)

.PHONY: units
units: copy ## Unit tests of modules as ansible-test runs them: without the controller's code
	@mkdir -p .build
	ci/ansible_test.sh units tests/unit/plugins/modules/ | tee .build/units.log


##### Measure

BENCH := $(CONTROL_PLANE) python
NODES ?= 1000

.PHONY: bench
bench: bench-planning bench-runs bench-site bench-admission bench-verify ## All benchmarks below except rollouts; all but bench-planning need a local Kubernetes

.PHONY: bench-planning
bench-planning: $(VENV) ## Time of a plan by nodes and pools, and of matching by VMs: half a minute, no cluster
	$(BENCH) benchmarks/planning.py

.PHONY: bench-runs
bench-runs: $(VENV) ## A run without changes and one more module call, compared with tasks of kubernetes.core: 4 minutes
	$(BENCH) benchmarks/runs.py

.PHONY: bench-site
bench-site: $(VENV) ## A first run with nine nodes, compared with what virt-operator and handlers need: 4 minutes
	$(BENCH) benchmarks/site.py

.PHONY: bench-admission
bench-admission: $(VENV) ## What the launcher policy adds to the creation of a pod, compared with a webhook: a minute. [KYVERNO=1]
	$(BENCH) benchmarks/admission.py $(if $(KYVERNO),--kyverno)

.PHONY: bench-verify
bench-verify: $(VENV) ## Verification of up to 100,000 VMs, compared with listing them, parsing a dump, and k8s_info
	$(BENCH) benchmarks/verify.py

.PHONY: bench-scheduling
bench-scheduling: $(VENV) ## What the launcher policy's terms cost the scheduler, with 3,000 nodes and up to 60,000 pods: 14 minutes
	$(BENCH) benchmarks/scheduling.py

.PHONY: bench-rollout
bench-rollout: $(VENV) ## A rollout in waves to NODES nodes: its order, gaps, requests and CPU time
	$(BENCH) benchmarks/rollout.py $(NODES)
