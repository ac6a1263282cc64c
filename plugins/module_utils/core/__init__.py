# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The pure core: pools and a snapshot of the cluster in; plans, objects, verdicts and text out.

No Ansible, no Kubernetes client, no clock and no files. Each room imports only those before it in this list: base, pools,
observed, kubevirt, vms, admission, monitoring, planning, checks, operator_mode, reports.
"""
