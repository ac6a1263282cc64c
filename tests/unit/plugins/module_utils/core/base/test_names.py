# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names


def test_the_creator_of_launcher_pods_is_in_kubevirts_namespace():
    assert names.controller_user("virt") == "system:serviceaccount:virt:kubevirt-controller"


def test_a_pools_daemonset_has_the_prefix_of_kubevirts_own():
    assert names.pool_daemonset_name("gpu") == "virt-handler-gpu"


def test_labels_and_annotations_of_ours_have_our_domain():
    ours = [names.OWNER_LABEL, names.FORMER_OWNER_ANNOTATION, names.TEMPLATE_ANNOTATION, names.POOL_ANNOTATION]
    assert all(re.fullmatch(r"virtpools\.io/[a-z-]+", name) for name in ours)
    assert len(set(ours)) == len(ours)
