# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv/.stamp

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(VENV) ## The tools, pinned, in .venv

$(VENV): requirements.txt requirements/dev.txt requirements/constraints.txt ci/venv.sh
	PYTHON=$(PYTHON) ci/venv.sh
	@touch $@

.PHONY: lock
lock: ## After a change in requirements/dev.txt: resolve everything else anew
	rm -rf .build/lock && $(PYTHON) -m venv .build/lock
	.build/lock/bin/pip install --disable-pip-version-check --progress-bar off -r requirements.txt -r requirements/dev.txt
	{ sed '/^$$/,$$d' requirements/dev.txt; printf '\n# Made by make lock.\n'; \
	    .build/lock/bin/pip freeze -r requirements/dev.txt | sed '1,/added by pip freeze/d'; } > requirements/constraints.txt
	rm -rf .build/lock

# cluster, cluster-down, kubeconfig, demo
-include tests/control_plane/*.mk
