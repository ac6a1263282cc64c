# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""KubeVirt itself: the snapshot of a cluster, KubeVirt's health, feature gates and HyperConverged, the exclusion of the
primary virt-handler from pool nodes, and the DaemonSets that are derived from the primary.
"""
