# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import stat
import xml.etree.ElementTree as ET

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

FORMS = ("json", "junit", "prometheus", "html")


def objects():
    """A cluster in order, with a VM of the pool and one without."""
    nodes, sets = vms.nodes(), [builders.primary(desired=1), builders.pool_daemonset(vms.gpu(), desired=2)]
    return [
        builders.excluding_kubevirt(),
        kinds.NAMESPACE.object(builders.NAMESPACE),
        kinds.NAMESPACE.object("plain"),
        *sets,
        *nodes,
        *builders.handlers_of(nodes, sets),
        *vms.policy(),
        vms.vmi(),
        vms.launcher(),
        vms.vmi("other", "rest"),
        vms.launcher("other", "rest", "primary", device=False),
    ]


@pytest.fixture
def world():
    return World(*objects())


@pytest.fixture
def wrong(world):
    world.put(vms.vmi("bad"))
    world.put(vms.launcher("bad", pool=None))
    return world


@pytest.fixture
def dumped(tmp_path):
    """Write a dump of these objects."""

    def dumped(found):
        for number, obj in enumerate(found):
            (tmp_path / f"{number:03}.json").write_text(json.dumps(obj))
        return str(tmp_path)

    return dumped


def test_a_cluster_in_order(run, world):
    found = run("verification_info")
    assert (found["changed"], found["healthy"], found["failing"], found["findings"]) == (False, True, {}, [])
    assert found["counts"]["vms"] == 2
    assert (found["vms"], found["nodes"]) == ([], [])
    assert found["text"][:2] == [
        f"Cluster {found['server']}, UID unknown: the user may not read namespace kube-system",
        found["summary"],
    ]
    assert world.writes == []


def test_what_is_wrong(run, wrong):
    found = run("verification_info")
    assert (found["healthy"], found["failing"]) == (False, {"wrong_image": 1})
    (vm,) = found["vms"]
    assert (vm["name"], vm["verdict"], vm["remedy"]) == ("bad", "wrong_image", "migration")
    assert vm["images"]["container compute"] == vms.STOCK


def test_what_it_fails_on_is_for_the_user_to_say(run, wrong):
    assert run("verification_info", fail_on=["no_handler"])["failing"] == {}
    assert "give problems, any, none" in run.failure("verification_info", fail_on=["No Handler"])


def test_pools_that_are_given_count_instead_of_those_recorded(run, world):
    pool = vms.gpu(virtLauncherImage=f"{vms.IMAGE}-new").to_object()
    found = run("verification_info", pools=[pool])
    assert found["problems"] == {"daemonset_drift": 1, "handler_outdated": 1}
    assert found["verdicts"]["correct"] == 2  # the new image takes effect once the pool's nodes have its handler


def test_without_any_pool(run, world):
    world.drop(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
    assert "No pools were given, and the cluster has none" in run.failure("verification_info")


def test_a_dump_says_the_same(run, wrong, dumped):
    more = [vms.vmi("bad"), vms.launcher("bad", pool=None)]
    online = run("verification_info")
    run.connected = False
    offline = run("verification_info", dump=dumped([*objects(), *more]))
    assert not run.connected
    # But for the name of the cluster.
    assert online["text"][1:] == offline["text"]
    of_cluster = ("invocation", "server", "uid", "text")
    said = [{key: value for key, value in each.items() if key not in of_cluster} for each in (offline, online)]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "Pod",
            "The dump holds no Pod of namespace kubevirt, where KubeVirt is deployed; add the output of `kubectl get pods -n",
        ),
        ("DaemonSet", "The dump holds no DaemonSet of namespace kubevirt"),
    ],
)
def test_a_dump_without_what_tells_of_handlers(run, dumped, kind, words):
    elsewhere = kinds.POD.object("other", "plain") | {"spec": {"containers": []}}
    folder = dumped([elsewhere, *(obj for obj in objects() if obj["kind"] != kind)])
    assert words in run.failure("verification_info", dump=folder)
    if kind == "DaemonSet":
        assert words in run.failure("plan_info", dump=folder, pools=[vms.gpu().to_object()])


def test_a_dump_has_nothing_to_probe(run, dumped):
    assert "probe needs a cluster" in run.failure("verification_info", dump=dumped(objects()), probe=True)


def test_a_policy_that_does_not_act_is_found_by_probes(run, world):
    found = run("verification_info", probe=True)
    assert found["problems"] == {"policy_failing": 1}
    assert "does not act on launcher pods" in found["policy"]["problem"]
    assert world.writes == []


def test_rights_are_asked_for(run, world):
    world.denied = {("create", "pods")}
    assert run("verification_info")["healthy"]
    assert "create pods in namespace kubevirt" in run.failure("verification_info", probe=True)
    world.denied = {("list", "virtualmachineinstances")}
    assert "list virtualmachineinstances.kubevirt.io" in run.failure("verification_info")


@pytest.mark.parametrize("limit", [0, 1])
def test_only_some_vms_are_told(run, wrong, limit):
    wrong.put(vms.vmi("worse"))
    wrong.put(vms.launcher("worse", pool=None))
    found = run("verification_info", max_listed_vms=limit)
    assert (len(found["vms"]), found["vms_left_out"], found["problems"]) == (limit, 2 - limit, {"wrong_image": 2})
    assert run.failure("verification_info", max_listed_vms=-1) == "max_listed_vms is -1; give a number from 0."


@pytest.mark.parametrize("check", [False, True])
def test_reports(run, wrong, tmp_path, check):
    paths = {form: str(tmp_path / f"report.{form}") for form in FORMS}
    (tmp_path / "report.json").write_text("former")
    run("verification_info", check=check, reports=paths, cluster_name="east")
    written = {form: (tmp_path / f"report.{form}").read_text() for form in FORMS}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"report.{form}" for form in FORMS)
    data = json.loads(written["json"])
    assert (data["healthy"], data["cluster"], len(data["nodes"])) == (False, "east", 3)
    assert ET.fromstring(written["junit"]).get("failures") != "0"
    assert 'virtpools_healthy{cluster="east"} 0' in written["prometheus"]
    assert written["html"].startswith("<!DOCTYPE html>")
    # A collector is another user.
    assert stat.S_IMODE((tmp_path / "report.prometheus").stat().st_mode) & 0o044


def test_a_folder_of_reports(run, wrong, tmp_path):
    found = run("verification_info", reports={"folder": str(tmp_path)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "report.txt"]
    when, *lines = (tmp_path / "report.txt").read_text().splitlines()
    assert (when[:12], lines) == ("Verified at ", "\n".join(found["text"]).splitlines())
    said = run.failure("verification_info", reports={"folder": "/missing"})
    assert said.splitlines()[0] == (
        "reports.folder is /missing/report.txt, but there is no folder /missing; create it, or name another file."
    )


def test_a_report_that_cannot_be_written_is_refused_first(run, tmp_path):
    missing = tmp_path / "missing"
    found = run.failure("verification_info", reports={"html": str(missing / "report.html")})
    assert found == (
        f"virtpools_report_html is {missing}/report.html, but there is no folder {missing}; create it, or name another file."
    )
    assert not run.connected
