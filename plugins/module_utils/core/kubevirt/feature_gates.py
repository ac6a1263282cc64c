# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""KubeVirt's feature gates: edits of its two lists, and warnings for unknown names.

``featureGates`` turns gates on. ``disabledFeatureGates`` (KubeVirt 1.8 and later) turns off gates that are on by
default, as Beta gates are from 1.9 on. KubeVirt refuses a gate that is in both lists. It accepts any name, so an
enabled gate proves nothing.
"""

from __future__ import annotations

import collections
import copy
import difflib
import re
import typing as t
from dataclasses import dataclass

from ..base import findings, names
from ..base.findings import Finding, InputErrors
from ..base.objects import KubeObject, Object, field
from ..observed.operator_api import POOL_FIELDS
from ..observed.snapshot import Snapshot
from . import hco
from .hco import Edit
from .health import dotted, release_of, version_of

_LISTS_IN = ("spec", "configuration", "developerConfiguration")
_ON, _OFF = "featureGates", "disabledFeatureGates"
_PLACE = ".".join(_LISTS_IN)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_DISABLING_SINCE = (1, 8)

# Names ------------------------------------------------------------------------------------------------------------

_KNOWN_SINCE: t.Final[dict[tuple[int, int], str]] = {
    (1, 6): """
        AlignCPUs AutoResourceLimitsGate BochsDisplayForEFIGuests CPUManager CPUNodeDiscovery ClusterProfiler
        CommonInstancetypesDeploymentGate DecentralizedLiveMigration DeclarativeHotplugVolumes
        DisableCustomSELinuxPolicy DisableMDEVConfiguration DockerSELinuxMCSWorkaround DownwardMetrics
        DynamicPodInterfaceNaming EnableVirtioFsConfigVolumes EnableVirtioFsStorageVolumes ExpandDisks
        ExperimentalIgnitionSupport ExperimentalVirtiofsSupport GPU GPUsWithDRA HostDevices HostDevicesWithDRA
        HostDisk HotplugNICs HotplugVolumes HypervStrictCheck ImageVolume IncrementalBackup
        InstancetypeReferencePolicy KubevirtSeccompProfile LiveMigration Macvtap MultiArchitecture NUMA
        NetworkBindingPlugins NodeRestriction NonRoot ObjectGraph PSA PanicDevices Passt PasstIPStackMigration
        PersistentReservation Root SRIOVLiveMigration SecureExecution Sidecar Snapshot
        VMExport VMLiveUpdateFeatures VMPersistentState VSOCK VideoConfig VolumeMigration VolumesUpdateStrategy
        WorkloadEncryptionSEV WorkloadEncryptionTDX
    """,
    (1, 7): "MigrationPriorityQueue",
    (1, 8): """
        ConfigurableHypervisor ContainerPathVolumes ExternalNetResourceInjection LibvirtHooksServerAndClient
        LiveUpdateNADRef OptOutRoleAggregation PCINUMAAwareTopology PasstBinding PodSecondaryInterfaceNamingUpgrade
        RebootPolicy ReservedOverheadMemlock Template UtilityVolumes VmiMemoryOverheadReport
    """,
    (1, 9): """
        CrossArchitectureVirtualization FirmwareAutoSelection GraceIOVirtualization IOMMUFD MigrationStallDetection
        NetworkDevicesWithDRA OCIExport Plugins PortRangesSpec VGPULiveMigration VMStatsCollector
    """,
}
"""Every gate in KubeVirt's ``pkg/virt-config/featuregate`` of 1.9, by the first release whose source has it. The sources
of 1.7, 1.8 and 1.9 were read: comments there may name an earlier release. What 1.7 has is of 1.6, unless its comment
names 1.7. Names stay registered when a feature is finished or given up. Good enough for advice, not for refusals."""

_BETA: t.Final = """
    DeclarativeHotplugVolumes ExternalNetResourceInjection GPUsWithDRA HostDevicesWithDRA ImageVolume KubevirtSeccompProfile
    LibvirtHooksServerAndClient NodeRestriction OptOutRoleAggregation PasstBinding PodSecondaryInterfaceNamingUpgrade RebootPolicy
    Snapshot Template VmiMemoryOverheadReport WorkloadEncryptionSEV
"""
_ON_BY_DEFAULT: t.Final = frozenset(_BETA.split())
"""The gates that are Beta in KubeVirt 1.9. All others that are known are off unless a list turns them on, or cannot be turned off."""

_OF_HCO: t.Final = {
    "AlignCPUs": "alignCPUs",
    "ContainerPathVolumes": "containerPathVolumes",
    "DecentralizedLiveMigration": "decentralizedLiveMigration",
    "DeclarativeHotplugVolumes": "declarativeHotplugVolumes",
    "DisableMDEVConfiguration": "disableMDevConfiguration",
    "DownwardMetrics": "downwardMetrics",
    "IncrementalBackup": "incrementalBackup",
    "ObjectGraph": "objectGraph",
    "PersistentReservation": "persistentReservation",
    "Template": "template",
    "VideoConfig": "videoConfig",
}
"""The gates of KubeVirt that HCO has a switch for in its own ``spec.featureGates``, with HCO's names (read in HCO's documentation of
its API v1, and its source, of 2026). It ignores all other names there with a warning (seen)."""

_SINCE: t.Final = {name: release for release, known in _KNOWN_SINCE.items() for name in known.split()}
_NEWEST_KNOWN: t.Final = max(_KNOWN_SINCE)

WORKER_POOLS_GATE: t.Final = "WorkerPools"
_WORKER_POOLS = "workerPools"
"""The list whose gate a build with WorkerPool objects has, too."""


def gate_problems(gates: t.Iterable[t.Any]) -> list[str]:
    """What is wrong with the spelling of these names, one sentence each."""
    return [
        f"Feature gate {gate!r} is not a valid name: use letters and digits, a letter first."
        for gate in gates
        if not isinstance(gate, str) or not _NAME.fullmatch(gate)
    ]


def unknown_gates(
    gates: t.Iterable[str], kubevirt_version: str | None, fields: t.Collection[str] = (), *, worker_pools: bool = False
) -> list[Finding]:
    """Warnings for names that are known to mean nothing to this KubeVirt. KubeVirt accepts them silently.

    :param fields: the fields for pools of its own that its CRD has; ``worker_pools``: whether it has the kind WorkerPool.
    """
    known = {gate for gate, name in POOL_FIELDS.items() if name in fields or (worker_pools and name == _WORKER_POOLS)}
    unsure = sorted(set(gates) - known)
    return [finding for gate in unsure if (finding := _unknown(gate, release_of(kubevirt_version)))]


def _unknown(gate: str, release: tuple[int, int] | None) -> Finding | None:
    if gate in POOL_FIELDS:
        return findings.warning(
            "feature_gate_of_fork",
            f"Feature gate {gate} does not exist in stock KubeVirt, which accepts it silently, so setting it proves "
            f"nothing: a KubeVirt with pools of its own has spec.{POOL_FIELDS[gate]} in its CRD.",
        )
    since = _SINCE.get(gate)
    if since is None:
        nearest = difflib.get_close_matches(gate, sorted(_SINCE), n=1)
        hint = f" (nearest known: {nearest[0]})" if nearest else ""
        return findings.warning(
            "feature_gate_unknown",
            f"Feature gate {gate} is not among those known of KubeVirt up to {dotted(_NEWEST_KNOWN)}, and KubeVirt "
            f"accepts unknown names silently; check the spelling{hint}.",
        )
    if release is not None and release < since and since != min(_KNOWN_SINCE):
        return findings.warning(
            "feature_gate_unknown",
            f"Feature gate {gate} exists since KubeVirt {dotted(since)}, and this is KubeVirt {dotted(release)}, which "
            f"accepts it silently and ignores it.",
        )
    return None


# Pools of KubeVirt's own --------------------------------------------------------------------------------------------


def is_on(kubevirt: KubeObject, gate: str) -> bool:
    """Whether the live KubeVirt object turns a gate on that is off by default."""
    return gate in _gates(kubevirt, _ON) and gate not in _gates(kubevirt, _OFF)


# Edits ------------------------------------------------------------------------------------------------------------


def set_gates(
    kubevirt: KubeObject, hyperconverged: KubeObject | None, present: t.Sequence[str], absent: t.Sequence[str]
) -> Edit:
    """The edit that turns ``present`` on and ``absent`` off: of HyperConverged if there is one, else of KubeVirt.

    A gate is off when it is in the list of disabled gates; before KubeVirt 1.8, which has no such list, and when it is known
    to be off by default, when it is not in the list of enabled gates.

    :raises InputErrors: for bad names, a gate in both lists, and what HCO does not allow (see ``_hco_operations``).
    """
    on, off = sorted(set(present)), sorted(set(absent))
    problems = gate_problems([*present, *absent])
    problems += [f"Feature gate {gate} is to be both present and absent; name it once." for gate in on if gate in off]
    if problems:
        raise InputErrors(problems)
    wanted = [f"{name} {', '.join(gates)}" for name, gates in (("enable", on), ("disable", off)) if gates]
    what = f"feature gates: {'; '.join(wanted) or 'as they are'}"
    if hyperconverged is not None:
        after = hco.with_operations(hyperconverged, _hco_operations(kubevirt, hyperconverged, on, off))
        place = f"annotation {names.HCO_PATCH_ANNOTATION}, {_PLACE} of KubeVirt"
        return Edit(kind="HyperConverged", before=hyperconverged, after=after, what=what, place=place)
    return Edit(kind="KubeVirt", before=kubevirt, after=_with_gates(kubevirt, on, off), what=what, place=_PLACE)


def _gates(kubevirt: KubeObject, name: str) -> list[str]:
    return field(kubevirt, *_LISTS_IN, name) or []


def _has_disabled_list(kubevirt: KubeObject) -> bool:
    release = release_of(version_of(kubevirt))
    if release is not None:
        return release >= _DISABLING_SINCE
    # A development build tells no release, but the API server prunes the field unless the CRD has it.
    return field(kubevirt, *_LISTS_IN, _OFF) is not None


def _off_by_itself(kubevirt: KubeObject, gate: str) -> bool:
    """Whether a gate is known to be off in this KubeVirt unless a list turns it on: then nothing need turn it off."""
    release = release_of(version_of(kubevirt))
    known = release is not None and release <= _NEWEST_KNOWN and gate in _SINCE
    return known and gate not in _ON_BY_DEFAULT


def _to_disable(kubevirt: KubeObject, off: t.Sequence[str]) -> list[str]:
    return [gate for gate in off if not _off_by_itself(kubevirt, gate)]


def _with_gates(kubevirt: KubeObject, on: t.Sequence[str], off: t.Sequence[str]) -> KubeObject:
    disabled = _gates(kubevirt, _OFF)
    wanted = {
        _ON: _moved(_gates(kubevirt, _ON), on, off),
        _OFF: _moved(disabled, _to_disable(kubevirt, off), on),
    }
    if not _has_disabled_list(kubevirt):
        wanted[_OFF] = _moved(disabled, (), on)
    changed = {name: gates for name, gates in wanted.items() if gates != _gates(kubevirt, name)}
    if not changed:
        return kubevirt
    after = copy.deepcopy(dict(kubevirt))
    lists: Object = after
    for key in _LISTS_IN:
        if lists.get(key) is None:
            lists[key] = {}
        lists = lists[key]
    for name, gates in changed.items():
        if gates:
            lists[name] = gates
        else:
            lists.pop(name, None)
    return after


def _moved(gates: t.Sequence[str], add: t.Sequence[str], drop: t.Sequence[str]) -> list[str]:
    kept = [gate for gate in gates if gate not in drop]
    return [*kept, *(gate for gate in add if gate not in kept)]


# In a plan --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gates:
    """The feature gates that a user asks for. Those in neither list stay as they are."""

    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.present or self.absent)

    def are_set(self, kubevirt: KubeObject) -> bool:
        """Whether the KubeVirt object has them. HCO may turn one off by leaving it out of both lists."""
        return all(is_on(kubevirt, gate) for gate in self.present) and not set(self.absent) & {*_gates(kubevirt, _ON)}

    def to_object(self) -> list[list[str]]:
        """What the approval of a plan covers."""
        return [sorted(set(self.present)), sorted(set(self.absent))]


@dataclass(frozen=True)
class GateChange:
    """What a run does about feature gates."""

    gates: Gates
    edit: Edit | None
    """None when none are asked for, or when it is refused."""
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The change for people; empty when the gates are as they should be."""
        return (str(self.edit),) if self.edit is not None and self.edit.changed else ()


NO_GATES: t.Final = GateChange(Gates(), None)
"""Of a run whose user names no feature gates."""


def plan_gates(snapshot: Snapshot, gates: Gates) -> GateChange:
    """What a run would do to bring these gates. An error says what is impossible."""
    api = snapshot.operator_api
    try:
        edit = set_gates(snapshot.kubevirt, snapshot.hyperconverged, gates.present, gates.absent)
    except InputErrors as problem:
        return GateChange(gates, None, tuple(findings.error("feature_gate_refused", each) for each in problem.messages))
    unknown = unknown_gates(
        (*gates.present, *gates.absent),
        version_of(snapshot.kubevirt),
        api.fields,
        worker_pools=api.worker_pools_served,
    )
    return GateChange(gates, edit, tuple(unknown))


# Under HCO --------------------------------------------------------------------------------------------------------


def _path(name: str) -> str:
    return f"/{'/'.join(_LISTS_IN)}/{name}"


def _hco_operations(
    kubevirt: KubeObject, hyperconverged: KubeObject, on: t.Sequence[str], off: t.Sequence[str]
) -> list[Object]:
    """The annotation's operations with the wanted gates: only appends to lists that HCO renders anyway.

    We refuse to take a gate out of a list that HCO itself renders it into. An operation by position would hit another
    gate after an upgrade of HCO. An operation that replaces the whole list would freeze it, until an upgrade adds a
    frozen gate to the other list and KubeVirt refuses both. When HCO renders no list of disabled gates, we do not start
    one: it would hide the list of a later HCO. A gate is then off when it is not in the other list.
    """
    current = hco.operations(hyperconverged)
    rendered = {name: _rendered_by_others(kubevirt, current, name) for name in (_ON, _OFF)}
    problems = [
        _refused_by_hco(hyperconverged, gate, name, current)
        for name, gates in ((_OFF, on), (_ON, off))
        for gate in gates
        if gate in rendered[name]
    ]
    if problems:
        raise InputErrors(problems)
    wanted = {_ON: [gate for gate in on if gate not in rendered[_ON]], _OFF: []}
    if rendered[_OFF]:
        wanted[_OFF] = [gate for gate in _to_disable(kubevirt, off) if gate not in rendered[_OFF]]
    return _appending(hyperconverged, current, wanted, unwanted={_ON: off, _OFF: on})


def _refused_by_hco(hyperconverged: KubeObject, gate: str, name: str, current: t.Sequence[Object]) -> str:
    """Why an append cannot turn a gate on or off, and what can."""
    theirs = [index for index, each in enumerate(current) if _sets(each, name, gate)]
    who = f"operation {theirs[-1]} in its annotation" if theirs else "HCO"
    message = (
        f"{hco.title(hyperconverged)}: {who} {_STATES[name]} the feature gate {gate}, which an append cannot undo; "
    )
    if theirs:
        return f"{message}take {gate} out of that operation."
    if gate in _OF_HCO:
        state = "Enabled" if name == _OFF else "Disabled"
        return f"{message}set {_OF_HCO[gate]} to {state} in its own spec.featureGates."
    return (
        f"{message}HCO has no switch for it in spec.featureGates. Add an operation to the annotation that replaces "
        f"{_path(name)} with the present list without {gate}, and compare it with HCO's own at each upgrade of HCO."
    )


_STATES: t.Final = {_OFF: "disables", _ON: "enables"}


def _sets(operation: Object, name: str, gate: str) -> bool:
    """Whether an operation of others puts a gate into a list."""
    return (
        operation["op"] in ("add", "replace")
        and hco.is_within(operation["path"], _path(name))
        and (gate == operation["value"] or (isinstance(operation["value"], list) and gate in operation["value"]))
    )


def _appending(
    hyperconverged: KubeObject,
    current: list[Object],
    wanted: t.Mapping[str, t.Sequence[str]],
    unwanted: t.Mapping[str, t.Sequence[str]],
) -> list[Object]:
    kept: list[Object] = []
    missing = {name: list(gates) for name, gates in wanted.items()}
    for index, operation in enumerate(current):
        name, gate = _appended(operation)
        if name and gate in wanted[name] and gate in missing[name] and not _replaced(current[index + 1 :], name):
            missing[name].remove(gate)
        elif name and (gate in wanted[name] or gate in unwanted[name]):
            hco.refuse_positions(hyperconverged, _path(name), current[index + 1 :])
            continue
        kept.append(operation)
    return [
        *kept,
        *({"op": "add", "path": f"{_path(name)}/-", "value": gate} for name in (_ON, _OFF) for gate in missing[name]),
    ]


def _appended(operation: Object) -> tuple[str, str]:
    """The list and the gate that an operation appends to it; empty strings for any other operation."""
    for name in (_ON, _OFF):
        if operation["op"] == "add" and operation["path"] == f"{_path(name)}/-":
            return name, str(operation["value"])
    return "", ""


def _replaced(later: t.Iterable[Object], name: str) -> bool:
    """Whether a later operation sets or removes the whole list, and with it what was appended before."""
    return any(operation["op"] != "test" and hco.is_within(_path(name), operation["path"]) for operation in later)


def _rendered_by_others(kubevirt: KubeObject, operations: t.Sequence[Object], name: str) -> set[str]:
    """The gates in a list of the live KubeVirt object that do not come from an append in the annotation."""
    appended: collections.Counter[str] = collections.Counter()
    for index, operation in enumerate(operations):
        into, gate = _appended(operation)
        if into == name and not _replaced(operations[index + 1 :], name):
            appended[gate] += 1
    return set(collections.Counter(_gates(kubevirt, name)) - appended)
