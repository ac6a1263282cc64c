# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import gc
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import dump
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

yaml = pytest.importorskip("yaml")

OBJECTS = (builders.excluding_kubevirt(), builders.primary(), builders.node("n1"), builders.handler_pod("n1"))


def read(directory, *kubevirt):
    return dump.snapshot_of(dump.read_objects(str(directory)), *kubevirt)


def refusal(directory):
    with pytest.raises(InputErrors) as caught:
        read(directory)
    (text,) = caught.value.messages
    return text


def test_yaml_and_json_files_make_one_snapshot(tmp_path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all(OBJECTS[:2]))
    (tmp_path / "b.json").write_text(json.dumps({"kind": "List", "items": OBJECTS[2:3]}))
    (tmp_path / "c.yml").write_text(yaml.safe_dump(OBJECTS[3]))
    (tmp_path / "notes.txt").write_text("{ no yaml")
    assumed = {
        "admission": snapshot.Admission.from_dump([], builders.NAMESPACE),
        "monitoring": snapshot.Monitoring.from_dump([]),
    }
    assert read(tmp_path) == builders.snapshot_of([OBJECTS[2]], **assumed)


def test_a_support_bundle_has_folders_and_some_objects_twice(tmp_path):
    core = tmp_path / "namespaces" / "kubevirt" / "core"
    nodes = tmp_path / "cluster.yaml" / "nodes"
    core.mkdir(parents=True)
    nodes.mkdir(parents=True)
    kubevirt, primary, node, pod = OBJECTS
    bare = {key: value for key, value in pod.items() if key not in ("apiVersion", "kind")}
    old = {**node, "metadata": {**node["metadata"], "resourceVersion": "9", "labels": {}}}
    new = {**node, "metadata": {**node["metadata"], "resourceVersion": "10"}}
    (core / "pods.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "PodList", "items": [bare]}))
    (core / "virt-handler-n1.yaml").write_text(yaml.safe_dump(pod))
    (core / "all.yaml").write_text(yaml.safe_dump_all([kubevirt, primary]))
    (core / "old.yaml").write_text(yaml.safe_dump({**kubevirt, "apiVersion": "kubevirt.io/v1alpha3"}))
    (nodes / "n1.json").write_text(json.dumps(new))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(old))
    found = read(tmp_path)
    assert [each.name for each in found.handlers["n1"]] == ["virt-handler-n1"]
    assert found.nodes["n1"].labels == node["metadata"]["labels"]


def test_a_json_file_may_hold_yaml(tmp_path):
    (tmp_path / "a.json").write_text("---\n".join(map(yaml.safe_dump, OBJECTS)))
    (tmp_path / "b.yaml").write_text("---\n".join(map(yaml.safe_dump, OBJECTS)))
    assert dump.read_file(str(tmp_path / "a.json")) == dump.read_file(str(tmp_path / "b.yaml"))


def test_a_plan_from_files_is_the_plan_from_the_cluster(tmp_path):
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    pools = [builders.pool("gpu", selector={"deviceNames": ["example.com/gpu"]})]
    offline = plan.make_plan(read(tmp_path), pools, Options())
    served = snapshot.Admission(policy_kind=kinds.MUTATING_ADMISSION_POLICIES[0], validating=True, version="v1.36.3")
    online = plan.make_plan(builders.snapshot_of([OBJECTS[2]], admission=served), pools, Options())
    assert (offline.digest, offline.changes()) == (online.digest, online.changes())


def test_which_kubevirt_can_be_said(tmp_path):
    other = builders.kubevirt()
    other["metadata"]["namespace"] = "other"
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*OBJECTS, other]))
    assert "2 KubeVirt objects" in refusal(tmp_path)
    assert read(tmp_path, builders.NAMESPACE).namespace == builders.NAMESPACE


class TestRefused:
    def test_a_directory_that_is_not_there(self, tmp_path):
        assert refusal(tmp_path / "none").endswith("none cannot be read: No such file or directory.")

    def test_a_directory_without_files(self, tmp_path):
        assert "holds no .yaml, .yml or .json file" in refusal(tmp_path)

    @pytest.mark.parametrize(
        "text",
        ["{ no yaml", "a: !!python/object:os.system {}", "a: 2026-99-99", "\x00"],
        ids=["syntax", "tag", "date", "byte"],
    )
    def test_a_file_that_is_no_yaml(self, tmp_path, text):
        (tmp_path / "bad.yaml").write_text(text)
        assert "bad.yaml cannot be read as YAML or JSON: " in refusal(tmp_path)

    def test_a_file_that_is_no_text(self, tmp_path):
        (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00\xd8")
        assert "bad.yaml cannot be read" in refusal(tmp_path)

    @pytest.mark.parametrize("field", ["labels", "annotations"])
    @pytest.mark.parametrize("value", [["a", "b"], [["a", "b"]], "text", {"a": 1}, {"a": None}])
    def test_labels_that_are_no_map_of_texts(self, tmp_path, field, value):
        node = copy.deepcopy(OBJECTS[2])
        node["metadata"][field] = value
        (tmp_path / "node.yaml").write_text(yaml.safe_dump(node))
        assert f"node.yaml: metadata.{field} of Node n1 is " in refusal(tmp_path)

    def test_files_without_nodes(self, tmp_path):
        (tmp_path / "a.yaml").write_text("- just\n- a list\n")
        assert "no Node object" in refusal(tmp_path)

    def test_everything_without_pyyaml(self, tmp_path, monkeypatch):
        monkeypatch.setattr(dump, "yaml", None)
        assert "PyYAML is missing" in refusal(tmp_path)


@pytest.fixture
def collections():
    """What the garbage collector has done."""
    done = []

    def note(phase, info):
        done.append((phase, info["generation"]))

    gc.callbacks.append(note)
    yield done
    gc.callbacks.remove(note)


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_no_garbage_is_looked_for_in_a_dump(tmp_path, collections, name):
    """Neither while it is read nor later, when its objects would be the oldest of the process."""
    # So many that with the usual thresholds there would be a hundred collections.
    nodes = [builders.node(f"n{number}") for number in range(500)]
    (tmp_path / name).write_text(json.dumps({"kind": "List", "items": nodes}))
    frozen = gc.get_freeze_count()
    collections.clear()
    found = dump.read_objects(str(tmp_path))
    assert not collections
    assert gc.get_freeze_count() - frozen > len(found)
    assert gc.isenabled()


def test_a_dump_that_cannot_be_read_leaves_the_collector_on(tmp_path):
    (tmp_path / "a.json").write_text("{")
    refusal(tmp_path)
    assert gc.isenabled()
