# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A real Kubernetes without kubelets or containers, on this machine, for tests and demos."""

from __future__ import annotations

from .audit import Write
from .cluster import KUBELET_ANNOTATION, LocalCluster, keep_logs
from .errors import ClusterError
from .fleet import Fleet, Nodes

__all__ = ["KUBELET_ANNOTATION", "ClusterError", "Fleet", "LocalCluster", "Nodes", "Write", "keep_logs"]
