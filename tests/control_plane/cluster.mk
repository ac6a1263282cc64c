# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

# A local Kubernetes with a KubeVirt stand-in: make cluster [CLUSTER=name] [FLEET=file].
CLUSTER ?= demo
FLEET ?= tests/control_plane/fleets/demo.yaml
LOCAL_CLUSTER = PYTHONPATH=tests/control_plane .venv/bin/python -m local_cluster

.PHONY: cluster
cluster: $(VENV) ## Start a local Kubernetes with a KubeVirt stand-in
	$(LOCAL_CLUSTER) up --name $(CLUSTER) --fleet $(FLEET)

.PHONY: cluster-down
cluster-down: $(VENV) ## Stop it and remove all it has
	$(LOCAL_CLUSTER) down --name $(CLUSTER)

.PHONY: kubeconfig
kubeconfig: $(VENV) ## Print the path of its kubeconfig
	@$(LOCAL_CLUSTER) kubeconfig --name $(CLUSTER)
