# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Labels a node with its owner, unless another client has given it another one."""

from __future__ import annotations

import contextlib
import typing as t

from ...core.base import kinds, names, objects
from ...core.base.objects import Object
from ...core.observed.nodes import Node
from ..api.client import Cluster, ClusterError, Conflict, NotFound

_MOST_TRIES = 10


class OwnerChanged(ClusterError):
    """Another client has given the node another owner."""


class NodeGone(NotFound):
    """The node was deleted: it is the Node itself that a request did not find, or another one has its name now."""


def existing_node(cluster: Cluster, name: str) -> Object:
    """The node. Raises NodeGone when it was deleted."""
    with _missing_is_gone():
        return cluster.existing(kinds.NODE, name)


def refuse_another(seen: Object, node: Object) -> None:
    """
    :param seen: the node as it was seen before; empty when it was not.
    :raises NodeGone: when it was deleted since, and another one was created under its name: another machine, with other pods.
    """
    if seen and seen["metadata"].get("uid") != node["metadata"].get("uid"):
        raise NodeGone(f"Node {node['metadata']['name']} was deleted, and another one with its name was created.")


@contextlib.contextmanager
def _missing_is_gone() -> t.Iterator[None]:
    """For a request about a Node."""
    try:
        yield
    except NotFound as error:
        raise NodeGone(str(error), maybe_applied=error.maybe_applied) from error


def write_owner(
    cluster: Cluster,
    node: Object,
    expected: str,
    owner: str,
    former: str | None,
    until: t.Mapping[str, str | None] | None = None,
) -> Object:
    """Give the node a new owner if it still has the one that we expect, and write its former owner (None: remove that).

    :param until: labels that say until when owners had the node, to write with it; None removes one.
    :param node: the node as it was seen last. The patch tests what it changes, so that the node is read again only where
        something has changed since.
    :returns: the node as stored.
    :raises OwnerChanged: when another client has changed the owner label.
    :raises NodeGone: when the node was deleted, also when it was created again.
    """
    labels = {names.OWNER_LABEL: None if owner == names.PRIMARY else owner, **(until or {})}
    annotations = {names.FORMER_OWNER_ANNOTATION: former}
    seen, name = node, node["metadata"]["name"]
    for attempt in range(_MOST_TRIES):
        if attempt or Node.from_object(node).owner != expected:
            node = existing_node(cluster, name)
            refuse_another(seen, node)
        live = Node.from_object(node)
        until_stands = all(live.labels.get(key) == value for key, value in (until or {}).items())
        if (live.owner, live.former_owner) == (owner, former) and until_stands:
            # This was our own write, whose answer was lost, or another client wrote the same.
            return node
        if live.owner != expected:
            raise OwnerChanged(
                f"Node {name} was to go from {expected} to {owner}, but another client has changed its label "
                f"{names.OWNER_LABEL}: it is {live.owner} now. Find out who did that, then run again."
            )
        same = {"op": "test", "path": "/metadata/uid", "value": node["metadata"].get("uid")}
        patch = [same, *objects.metadata_patch(node, labels=labels, annotations=annotations)]
        try:
            with _missing_is_gone():
                return cluster.json_patch(kinds.NODE, name, patch, dry_run=False)
        except Conflict:  # its labels or annotations were changed since we read it: read it again
            if attempt == _MOST_TRIES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
