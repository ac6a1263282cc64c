# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The gates share .build; a machine of two cores is busy enough with one.
.NOTPARALLEL:

PYTHON ?= python3
VENV := .venv/.stamp
BIN := $(CURDIR)/.venv/bin
# Tools find their helpers here: molecule runs ansible-playbook, yamllint and ansible-lint import the collection.
export PATH := $(BIN):$(PATH)

# As the local control plane is built, or everything would be compiled twice.
GO := cd tests/control_plane && CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS='-mod=readonly -buildvcs=false -trimpath' go
COLLECTIONS := .build/collection
COPY := $(COLLECTIONS)/ansible_collections/virtpools/kubevirt

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)


##### Tools

.PHONY: venv
venv: $(VENV) ## The tools, pinned, in .venv

$(VENV): requirements.txt requirements/dev.txt requirements/constraints.txt ci/venv.sh
	PYTHON=$(PYTHON) ci/venv.sh
	@touch $@

.PHONY: programs
programs: $(VENV)
	@# Minutes of compiling, while the gates leave a core idle; who needs the programs waits for them, and says what is wrong.
	@mkdir -p .build
	@cd tests/control_plane && { nohup python -m local_cluster build > ../../.build/programs.log 2>&1 < /dev/null & }

.PHONY: go
go: $(VENV)
	@# Where Go is missing or too old, the build of the local control plane puts one into .venv.
	@$(GO) list -m > /dev/null 2>&1 || { cd tests/control_plane && python -m local_cluster build; }

.PHONY: lock
lock: ## After a change in requirements/dev.txt: resolve everything else anew
	rm -rf .build/lock && $(PYTHON) -m venv .build/lock
	.build/lock/bin/pip install --disable-pip-version-check --progress-bar off -r requirements.txt -r requirements/dev.txt
	{ sed '/^$$/,$$d' requirements/dev.txt; printf '\n# Made by make lock.\n'; \
	    .build/lock/bin/pip freeze -r requirements/dev.txt | sed '1,/added by pip freeze/d'; } > .build/constraints.txt
	mv .build/constraints.txt requirements/constraints.txt
	rm -rf .build/lock

.PHONY: clean
clean: ## Remove the tools and all that was built in this checkout
	rm -rf .build .venv


##### Tests

.PHONY: test
test: programs lint sanity test-unit units molecule test-control-plane ## Everything, from nothing
	@echo; tail -qn 1 .build/test-unit.log .build/test-control-plane.log

.PHONY: test-unit
test-unit: go ## The pure core, the modules and the KubeVirt stand-in, without a cluster
	@mkdir -p .build
	$(GO) test ./standin/...
	pytest --numprocesses 2 tests/unit | tee .build/test-unit.log

.PHONY: test-control-plane
test-control-plane: $(VENV) ## The modules and playbooks against a local Kubernetes with the KubeVirt stand-in
	@mkdir -p .build
	@# Three files at a time, each with clusters of its own, in the order of their names: by default the long ones, which have few
	@# tests, would come last. A second try is named in the summary.
	pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --reruns 1 -r R --durations 25 \
	    -m "not thorough" tests/control_plane | tee .build/test-control-plane.log

.PHONY: test-thorough
test-thorough: $(VENV) ## The same with what make test leaves out for its time, and with a bigger random fleet: two hours
	VIRTPOOLS_TEST_NODES=300 VIRTPOOLS_TEST_RUNS=4 pytest --numprocesses 3 --dist loadfile tests/control_plane

.PHONY: test-crash
test-crash: $(VENV) ## Runs disturbed in every way at every write, and on the local Kubernetes killed at every write: hours
	VIRTPOOLS_TEST_ALL_CRASHES=1 pytest tests/unit/plugins/modules/test_crash.py
	VIRTPOOLS_TEST_ALL_KILLS=1 pytest -s tests/control_plane/test_crash.py tests/control_plane/test_interruption.py

.PHONY: molecule
molecule: $(VENV) ## The default scenario: site.yml on a local cluster, twice, then verified
	molecule test --scenario-name default


##### Gates

.PHONY: lint
lint: lint-headers lint-python lint-types lint-yaml lint-shell lint-go lint-meta lint-changelog lint-docs lint-ansible lint-galaxy ## All gates but sanity

.PHONY: copy
copy: $(VENV)
	@ci/copy.sh

.PHONY: lint-headers
lint-headers: copy
	python ci/check_headers.py $(COPY)

.PHONY: lint-python
lint-python: $(VENV)
	ruff check
	ruff format --check

.PHONY: lint-types
lint-types: copy
	cd $(COLLECTIONS) && mypy --config-file $(CURDIR)/pyproject.toml --cache-dir ../mypy \
	    $(addprefix ansible_collections/virtpools/kubevirt/,plugins)
	cd $(COPY)/tests/control_plane && mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.build/mypy local_cluster

.PHONY: lint-yaml
lint-yaml: copy
	cd $(COPY) && yamllint --strict .

.PHONY: lint-shell
lint-shell: copy
	cd $(COPY) && grep -rlE --exclude-dir=.git '^#!.*\b(ba)?sh$$' . | xargs shellcheck

.PHONY: lint-go
lint-go: go
	@unformatted=$$(cd tests/control_plane && gofmt -l standin) && \
	    if [[ -n $$unformatted ]]; then printf 'gofmt would change:\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) vet ./standin/...

.PHONY: lint-meta
lint-meta: copy
	ANSIBLE_COLLECTIONS_PATH=$(COLLECTIONS) python ci/check_meta.py $(COPY)

.PHONY: lint-changelog
lint-changelog: copy
	cd $(COPY) && antsibull-changelog lint

.PHONY: lint-docs
lint-docs: copy
	@# It copies kubernetes.core out of .venv, and only what git tracks if it finds our repository above.
	GIT_CEILING_DIRECTORIES=$(CURDIR)/.venv antsibull-docs lint-collection-docs --plugin-docs \
	    --validate-collection-refs dependent $(COPY)

.PHONY: lint-ansible
lint-ansible: copy
	cd $(COPY) && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/$(COLLECTIONS) ansible-lint

.PHONY: lint-galaxy
lint-galaxy: copy
	ci/import_as_galaxy.sh

.PHONY: sanity
sanity: copy ## ansible-test sanity over what we ship, with its own tools from PyPI
	ci/ansible_test.sh sanity $(foreach folder,ci tests/control_plane tests/unit,--exclude $(folder)/)

.PHONY: units
units: copy ## The unit tests once more as ansible-test runs them: modules without the controller's code
	ci/ansible_test.sh units


##### The local cluster: cluster, cluster-down, kubeconfig, demo; and bench, on such clusters

-include tests/control_plane/*.mk benchmarks/*.mk
