# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

# make demo: nodes of three platforms move to their pools, on a local Kubernetes. Again: "no change".
.PHONY: demo
demo: $(VENV) ## See it work: pools on a local Kubernetes with 15 nodes
	PYTHONPATH=tests/control_plane .venv/bin/python tests/control_plane/demo.py $(CLUSTER) $(FLEET)
