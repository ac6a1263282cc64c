# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

# What the launcher policy, the verification and a rollout cost, on a local Kubernetes. Figures: benchmarks/README.md.
BENCH = PYTHONPATH=tests/control_plane .venv/bin/python

.PHONY: bench
bench: bench-admission bench-verify ## Measure what benchmarks/README.md reports

.PHONY: bench-admission
bench-admission: $(VENV) ## What the launcher policy adds to the creation of a launcher pod
	$(BENCH) benchmarks/admission.py

.PHONY: bench-verify
bench-verify: $(VENV) ## Verify thousands of VMs, against listing them and against k8s_info
	$(BENCH) benchmarks/verify.py

NODES ?= 1000

.PHONY: bench-rollout
bench-rollout: $(VENV) ## Roll out pools on NODES nodes in waves: the order, the gaps, the requests, the engine's own work
	$(BENCH) benchmarks/rollout.py $(NODES)
