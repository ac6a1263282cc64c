# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Gives a pool's DaemonSet its former pod template back, when handlers from the new one do not become Ready.

The DaemonSet controller keeps former templates as ControllerRevisions: the last ten (``revisionHistoryLimit``), and all that
a pod still has. ``kubectl rollout undo`` reads them, too.
"""

from __future__ import annotations

from ...core.base import kinds
from ...core.base.objects import Object, field
from ...core.kubevirt import daemonsets
from ..api.client import Cluster


def restore(cluster: Cluster, namespace: str, name: str, unwanted: str | None, former: str | None) -> str | None:
    """Give the DaemonSet a former template.

    :param unwanted: the digest of the template that does not work. A DaemonSet with another one is left as it is.
    :param former: the digest of the template to bring back; None: the newest other one.
    :returns: the digest of the DaemonSet's template now; None when the former one is not known any more.
    :raises ClusterError: when it cannot be read or written.
    """
    live = cluster.existing(kinds.DAEMON_SET, name, namespace)
    if daemonsets.template_of(live) != unwanted:
        return daemonsets.template_of(live)
    template = _template(cluster, live, unwanted, former)
    if template is None:
        return None

    def change(now: Object) -> Object | None:
        if daemonsets.template_of(now) != unwanted:
            return None
        return {**now, "spec": {**now["spec"], "template": template}}

    _before, after = cluster.edit(kinds.DAEMON_SET, name, namespace, change, dry_run=False)
    return daemonsets.template_of(after)


def _template(cluster: Cluster, daemonset: Object, unwanted: str | None, former: str | None) -> Object | None:
    """The former template."""
    uid = daemonset["metadata"].get("uid")
    known: list[tuple[int, Object]] = []
    for revision in cluster.list(kinds.CONTROLLER_REVISION, daemonset["metadata"]["namespace"]):
        owners = revision["metadata"].get("ownerReferences") or ()
        template = field(revision, "data", "spec", "template")
        if not template or uid not in {owner.get("uid") for owner in owners}:
            continue
        digest = daemonsets.template_of({"spec": {"template": template}})
        if digest not in (None, unwanted) and former in (None, digest):
            # "$patch" is how the controller stores a template: as a strategic merge patch.
            kept = {key: value for key, value in template.items() if key != "$patch"}
            known.append((int(revision.get("revision") or 0), kept))
    return max(known, key=lambda each: each[0])[1] if known else None
