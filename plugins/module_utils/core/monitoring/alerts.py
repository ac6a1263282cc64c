# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The PrometheusRule with the alerts on pools: what the user chooses about it, what a run does, and what was edited.

A pool is watched as long as it has a DaemonSet. A run that deletes some therefore writes the rules twice: first for all
pools, at the end for those that stay.
"""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass, field, replace

from ..base import kinds, names, objects, permissions
from ..base.findings import Finding, InputErrors, error, warning
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject, Object, change_line, foreign_message, is_managed
from ..base.parts import LAST, Step
from ..base.permissions import Permission
from ..base.selectors import dns_label_problem
from ..observed.snapshot import Monitoring
from ..pools import inputs
from ..pools.inputs import FieldPath, Problems
from . import alert_rules
from .alert_rules import Scope

RUNBOOK_URL: t.Final = "https://github.com/virtpools/virtpools.kubevirt/blob/main/docs/alerts.md"
"""The page about the alerts, where galaxy.yml says that the documentation is."""

LABELS: t.Final = FrozenMap({"k8s-app": "kubevirt", "prometheus.kubevirt.io": "true"})
"""The labels of KubeVirt's own PrometheusRule (pkg/monitoring/rules/rules.go): who selects that one gets ours, too."""

_namespace = inputs.checked(dns_label_problem)
_URL = re.compile(r"https?://[^\s#{}]+")

# What the user chooses ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Where the PrometheusRule is and what it carries. ``namespace``: None for KubeVirt's. ``labels``: besides ours."""

    namespace: str | None = None
    labels: FrozenMap[str] = field(default_factory=FrozenMap)
    runbook_url: str = RUNBOOK_URL

    def to_object(self) -> Object:
        return {"namespace": self.namespace, "labels": dict(self.labels), "runbookUrl": self.runbook_url}

    @classmethod
    def from_object(cls, written: t.Mapping[str, t.Any]) -> Settings:
        """What ``to_object`` wrote.

        :raises InputErrors: when it is something else.
        """
        settings = parse(True, written.get("namespace"), written.get("labels"), written.get("runbookUrl"))
        return settings or cls()


def parse(wanted: bool, namespace: object, labels: object, runbook_url: object) -> Settings | None:
    """What the options ``alerts``, ``alerts_namespace``, ``alerts_labels`` and ``runbook_url`` specify; None for no alerts.

    :raises InputErrors: with all problems of the other three.
    """
    if not wanted:
        return None
    problems = Problems()
    place = _namespace(FieldPath(problems, "virtpools_alerts_namespace"), namespace) if namespace else None
    given = inputs.labels(FieldPath(problems, "virtpools_alerts_labels"), labels) if labels else None
    for key in (given or {}).keys() & {names.MANAGED_BY_LABEL, *LABELS}:
        problems.add(
            f"virtpools_alerts_labels has the label {key}, which the PrometheusRule has already; leave it out."
        )
    url = runbook_url or RUNBOOK_URL
    if not isinstance(url, str) or not _URL.fullmatch(url):
        problems.add(
            f"virtpools_runbook_url is {inputs.shown(url)}; give the address of a page, as https://docs.example/alerts, "
            "without an anchor."
        )
    problems.raise_if_any()
    return Settings(place, FrozenMap(given), str(url))


# What a run does ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alerts:
    """What a run does about the alerts.

    ``namespace``: KubeVirt's. ``settings``: None for no alerts. ``pools``: those that exist after the run.
    ``leaving``: those whose DaemonSets the run deletes. ``admission_policy``: see ``alert_rules.Scope``.
    """

    monitoring: Monitoring
    namespace: str
    settings: Settings | None = None
    pools: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    admission_policy: bool = False
    undoing: bool = False
    """Whether the run takes pools away: then the alerts are written only after that, so that pools are watched to the end."""
    approved_pools: tuple[str, ...] = ()
    """The pools once everything that should go could go: what an approval covers."""
    name: t.ClassVar = "alerts"

    def desired(self, *, after_removal: bool = False) -> Object | None:
        """The PrometheusRule to write, before DaemonSets are deleted or after that; None when there is to be none."""
        if self.settings is None or not self.monitoring.served:
            return None
        pools = self.pools if after_removal else (*self.pools, *self.leaving)
        return derive(Scope(self.namespace, tuple(sorted(set(pools))), self.admission_policy), self.settings)

    def to_write(self, *, after_removal: bool = False) -> Object | None:
        """The PrometheusRule, if the live one is missing or differs."""
        desired = self.desired(after_removal=after_removal)
        live = self.live_at(desired) if desired is not None else None
        return desired if desired is not None and (live is None or drifted(desired, live)) else None

    @property
    def to_delete(self) -> tuple[KubeObject, ...]:
        """Our live PrometheusRules that are not wanted, or not wanted in their namespace."""
        desired = self.desired()
        return tuple(
            live for live in live_objects(self.monitoring) if desired is None or not _same_place(live, desired)
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        steps: tuple[Step, ...] = (0, LAST)
        return tuple(step for step in steps if self.changes(step))

    def changes(self, step: Step) -> tuple[str, ...]:
        """What happens to each PrometheusRule, one line each."""
        if step == LAST:
            return self.before(LAST).written(after_removal=True)
        return self.written() if step == 0 and not self.undoing else ()

    @property
    def approved(self) -> str | None:
        """The digest of the PrometheusRule; None when there is to be none."""
        desired = replace(self, pools=self.approved_pools, leaving=()).desired()
        return None if desired is None else objects.digest(desired)

    @property
    def rights(self) -> tuple[Permission, ...]:
        return permissions.ALERTS if self.steps else ()

    def facts(self, _step: Step) -> t.Mapping[str, t.Any]:
        return {}

    def written(self, *, after_removal: bool = False) -> tuple[str, ...]:
        """What happens to each PrometheusRule from its live state, one line each."""
        written = self.to_write(after_removal=after_removal)
        verb = "update" if written is not None and self.live_at(written) is not None else "create"
        return (
            *((change_line(written, verb),) if written is not None else ()),
            *(change_line(live, "delete") for live in self.to_delete),
        )

    def before(self, step: Step) -> Alerts:
        """The same as the run finds it at this step: at the last one, it has written the rules for all pools before, those that
        leave included."""
        if self.undoing or step != LAST:
            return self
        written = self.desired()
        rules = () if written is None else (written,)
        return replace(self, monitoring=replace(self.monitoring, rules=rules))

    def live_at(self, desired: KubeObject) -> KubeObject | None:
        """The live PrometheusRule of this name and namespace, ours or not."""
        return next((live for live in self.monitoring.rules if _same_place(live, desired)), None)

    def findings(self) -> t.Iterator[Finding]:
        """What forbids the alerts, or keeps them from being written."""
        if self.settings is None:
            return
        if not self.monitoring.served:
            yield warning(
                "alerts_not_served",
                f"virtpools_alerts is true, but this cluster does not serve {kinds.PROMETHEUS_RULE}, so the run writes no "
                "alerts; install the Prometheus operator, then run site again, or leave that option out.",
            )
        if self.settings.namespace in self.monitoring.missing_namespaces:
            yield error(
                "alerts_namespace_missing",
                f"Namespace {self.settings.namespace} of virtpools_alerts_namespace does not exist; create it, or name the "
                "one where your Prometheus looks for rules.",
            )
        desired = self.desired()
        live = self.live_at(desired) if desired is not None else None
        if live is not None and not is_managed(live):
            title = f"{kinds.PROMETHEUS_RULE} {live['metadata']['namespace']}/{names.ALERTS}"
            yield error("alerts_foreign", foreign_message(title))


def derive(scope: Scope, settings: Settings) -> Object:
    """The PrometheusRule for these pools."""
    spec = {"groups": alert_rules.groups(scope, settings.runbook_url)}
    obj = kinds.PROMETHEUS_RULE.object(names.ALERTS, settings.namespace or scope.namespace, spec=spec)
    noted = {"digest": _digest(spec), "settings": settings.to_object()}
    obj["metadata"].update(
        labels={**LABELS, **settings.labels, names.MANAGED_BY_LABEL: names.MANAGED_BY},
        annotations={names.ALERTS_ANNOTATION: objects.canonical_json(noted)},
    )
    return obj


def drifted(desired: KubeObject, live: KubeObject) -> bool:
    """Whether a live PrometheusRule is not as desired. Labels and annotations of others are ignored."""
    metadata = [{key: obj["metadata"].get(key) or {} for key in ("labels", "annotations")} for obj in (desired, live)]
    return live.get("spec") != desired["spec"] or not objects.contains(metadata[1], metadata[0])


def live_objects(monitoring: Monitoring | None) -> tuple[KubeObject, ...]:
    """Our live PrometheusRules."""
    return tuple(live for live in monitoring.rules if is_managed(live)) if monitoring is not None else ()


def recorded(monitoring: Monitoring | None) -> Settings | None:
    """What the user chose when the live alerts were written; None where there are none."""
    for live in live_objects(monitoring):
        noted = _noted(live)
        settings = noted[1] if noted else Settings()
        return replace(settings, namespace=str(live["metadata"]["namespace"]))
    return None


# What was edited ----------------------------------------------------------------------------------------------------


def examine(monitoring: Monitoring | None, *, expected: bool) -> t.Iterator[Finding]:
    """Warnings when the live alerts were changed or deleted by hand.

    :param expected: whether the run that completed last was to write alerts.
    """
    live = live_objects(monitoring)
    for obj in live:
        if _edited(obj):
            yield warning(
                "alerts_edited",
                f"{kinds.PROMETHEUS_RULE} {obj['metadata']['namespace']}/{names.ALERTS} was changed by hand, so that alerts "
                "on pools may not fire; run site with virtpools_alerts: true to repair it, or with false to delete it.",
            )
    # A dump may leave PrometheusRules out.
    if expected and not live and monitoring is not None and monitoring.served and not monitoring.assumed:
        yield warning(
            "alerts_missing",
            f"The last run was to write alerts, but {kinds.PROMETHEUS_RULE} {names.ALERTS} does not exist, so the "
            f"pools have no alerts; run site with virtpools_alerts: true to write it, or with false to do without.",
        )


def _edited(live: KubeObject) -> bool:
    noted = _noted(live)
    if noted is None:
        return True
    digest, settings = noted
    labels = live["metadata"]["labels"]
    return digest != _digest(live.get("spec")) or not objects.contains(labels, {**LABELS, **settings.labels})


def _noted(live: KubeObject) -> tuple[str, Settings] | None:
    """The digest and the settings that a PrometheusRule of ours was written with; None when it does not say."""
    try:
        noted = json.loads(live["metadata"]["annotations"][names.ALERTS_ANNOTATION])
        return str(noted["digest"]), Settings.from_object(noted["settings"])
    except (InputErrors, AttributeError, KeyError, TypeError, ValueError):
        return None


def _digest(spec: object) -> str:
    return objects.short_digest(spec)


def _same_place(one: KubeObject, other: KubeObject) -> bool:
    return bool(one["metadata"].get("namespace") == other["metadata"].get("namespace"))
