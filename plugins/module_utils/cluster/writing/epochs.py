# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The epochs of a batch: labels by which VMs may stay on nodes that get another owner, and the policy that follows them.

The order keeps the promise, and docs/design/epochs.md explains it: a node is labelled with an epoch that no pod on it has;
its old handler ends; the launcher policy goes on to that epoch; only then the node gets its next handler.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t
from dataclasses import replace

from ...core.admission import launcher_backends, launcher_policy, probes
from ...core.admission.probes import Site
from ...core.base import affinity, epochs, kinds, names
from ...core.base.kinds import Kind
from ...core.base.objects import Object
from ...core.observed.nodes import Node
from ...core.observed.snapshot import Admission
from ...core.vms.launcher_pods import LauncherPod
from ...core.vms.mapping import Table
from ..api import waiting
from ..api.client import Cluster, Conflict
from ..reading import live

_CLOCKS_DIFFER_SECONDS = 86400
"""How far the clock of a controller may be ahead of that of another."""


class Epochs:
    """The epochs of a run, which has the Lease: no other run moves them on. Several threads may use them."""

    def __init__(self, cluster: Cluster, site: t.Callable[[], Site]) -> None:
        """``site``: where probes are made."""
        self._cluster = cluster
        self._site = site
        self._kind = _kind_of_policy(cluster)
        policy = self._policy()
        self._table = launcher_backends.recorded_table(_admission(policy)) or Table(())
        self._in_force = launcher_policy.epoch_of(policy) if policy is not None else None
        self._written = self._in_force
        self._highest = self._in_force or 0  # also that of a write whose answer was lost
        self._probe: Object | None = None
        self._alone = threading.Lock()
        self._being_labelled = 0

    @contextlib.contextmanager
    def leaving(self, node: Object, owner: str) -> t.Iterator[dict[str, str]]:
        """The labels of a node that this owner loses now: in an epoch that no pod has until this ends.

        :raises ClusterError: when the pods of the node cannot be read.
        """
        pods = self._pods_on(node) if self._in_force is None or owner in self._table.keep_off else ()
        with self._alone:
            labels = self._labels_of_leaving(Node.from_object(node), owner, pods)
            self._being_labelled += 1
        try:
            yield labels
        finally:
            with self._alone:
                self._being_labelled -= 1

    def _labels_of_leaving(self, node: Node, owner: str, pods: t.Iterable[LauncherPod]) -> dict[str, str]:
        epoch = max(self._highest, _newest_epoch(pods)) + 1
        if self._in_force is None:
            # Epochs follow the time. The clock of the controller that created a policy before may be ahead of ours.
            epoch = max(epoch, waiting.seconds_since_1970())
        labels = {epochs.until_label(owner): str(epoch)}
        both = {**labels, epochs.until_label(names.PRIMARY): str(epoch)}
        # The table no longer names pools that go and let others in, but those that keep others off until their last node left.
        lets_others_in = owner not in self._table.keep_off
        return both if lets_others_in or _stay_only_with(both, labels, node, pods) else labels

    def settle(self, node: Object, owner: str) -> dict[str, None] | None:
        """Prepare a node without a handler for its next owner. Call it again while it returns None.

        :returns: the labels to remove, which no VM on the node needs; None while the policy may still admit pods to the node
            by a label that stays.
        :raises ClusterError: when the pods of the node cannot be read, or the policy cannot be written.
        """
        after = Node.from_object(node).owned_by(owner)
        present = epochs.until_labels(after.labels)
        if not present:
            return {}
        # No other pod comes: the node has no virt-handler.
        needed = {key for pod in self._pods_on(node) for key in pod.placement.stays_by(after)}
        newest = epochs.newest({key: value for key, value in present.items() if key in needed})
        with self._alone:
            if not self._has_reached(newest):
                return None
        return dict.fromkeys(sorted(present.keys() - needed))

    def _pods_on(self, node: Object) -> list[LauncherPod]:
        """The launcher pods on the node that have not ended."""
        pods = map(LauncherPod.from_object, live.launcher_pods_on(self._cluster, node["metadata"]["name"]))
        return [pod for pod in pods if not pod.ended]

    def _has_reached(self, epoch: int) -> bool:
        """Whether the launcher policy gives pods this epoch, or a later one. Writes the policy the first time."""
        if self._in_force is None or self._in_force >= epoch:
            return True
        if self._written is None or self._written < epoch:
            if self._being_labelled:
                return False  # a pod of the new epoch could still come to that node, before it has its label
            policy = self._policy()
            if policy is None or self._kind is None:
                self._in_force = None
                return True
            present = launcher_policy.epoch_of(policy) or 0
            self._highest = max(self._highest, present, epoch)
            try:
                if present < epoch:  # an epoch never goes back, also where another run wrote it
                    self._cluster.replace(self._kind, launcher_policy.with_epoch(policy, epoch), dry_run=False)
            except Conflict:
                return False  # another client writes it as well: read it again in the next round
            self._written = max(present, epoch)
        admitted = self._admits()
        if admitted < epoch:
            return False
        self._in_force = admitted
        return True

    def _admits(self) -> int:
        """The epoch that a launcher pod would get now."""
        if self._probe is None:
            self._probe = probes.plain_pod(self._site())
        pod = self._cluster.create(kinds.POD, self._probe, dry_run=True)
        terms = affinity.required_terms(pod["spec"].get("affinity")) or ()
        values = {value for term in terms for value in epochs.stay_epochs(term)}
        return min(values, default=0)

    def _policy(self) -> Object | None:
        return None if self._kind is None else self._cluster.get(self._kind, names.POLICY)


def _newest_epoch(pods: t.Iterable[LauncherPod]) -> int:
    """The newest epoch by which one of the pods may stay. One of the far future is from a VM's own node affinity."""
    latest = waiting.seconds_since_1970() + _CLOCKS_DIFFER_SECONDS
    terms = (term for pod in pods for term in pod.placement.stay_terms)
    return max((epoch for term in terms for epoch in epochs.stay_epochs(term) if epoch <= latest), default=0)


def _stay_only_with(
    labels: t.Mapping[str, str], fewer: t.Mapping[str, str], node: Node, pods: t.Iterable[LauncherPod]
) -> bool:
    """Whether some pod may stay on the node in transit with these labels, but not with fewer: one that came while the owner let
    others in."""
    in_transit = node.owned_by(names.IN_TRANSIT)
    having, lacking = (replace(in_transit, labels={**in_transit.labels, **added}) for added in (labels, fewer))
    return any(pod.placement.misfit(lacking) and not pod.placement.misfit(having) for pod in pods)


def _kind_of_policy(cluster: Cluster) -> Kind | None:
    """The kind of the live launcher policy; None where none is live that gives pods an epoch."""
    served = (
        cluster.first_served(*kinds.MUTATING_ADMISSION_POLICIES),
        cluster.first_served(kinds.KYVERNO_MUTATING_POLICY),
    )
    for kind in served:
        policy = cluster.get(kind, names.POLICY) if kind is not None else None
        if policy is not None and launcher_backends.rules_object(_admission(policy)) is not None:
            return kind
    return None


def _admission(policy: Object | None) -> Admission:
    return Admission(objects={} if policy is None else {(policy["kind"], policy["metadata"]["name"]): policy})
