# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import pool_sources
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import History
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer

yaml = pytest.importorskip("yaml")

RAW = {"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": builders.GPU_IMAGE}
WORKER_POOL = {
    "apiVersion": "worker.kubevirt.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "gpu"},
    "spec": {
        "nodeSelector": {"hw": "gpu"},
        "virtHandlerImage": builders.GPU_IMAGE,
        "selector": {"deviceNames": ["example.com/gpu"]},
    },
}


def read(server=None, **params):
    everything = {
        "pools": None,
        "pools_dialect": "virtpools",
        "pools_manifest": None,
        "pools_from_cluster": False,
        "kubevirt_namespace": None,
        "kubevirt_name": None,
        **params,
    }

    def cluster():
        assert server is not None, "no cluster is needed"
        return server.client()

    return pool_sources.read(everything, cluster, History)[1]


def names(pools):
    return [pool.name for pool in pools]


def refusal(**params):
    with pytest.raises(InputErrors) as caught:
        read(**params)
    return " ".join(caught.value.messages)


class TestWhich:
    def test_none(self):
        assert "No pool list is given; set virtpools_pools" in refusal()

    def test_an_empty_list_is_not_none(self):
        assert "empty list" in refusal(pools=[])

    def test_two(self):
        text = refusal(pools=[RAW], pools_manifest="x")
        assert text == "The pool list is given more than once (pools, pools_manifest); keep one of them."
        assert "pools_from_cluster" in refusal(pools=[RAW], pools_from_cluster=True)

    def test_the_options(self):
        assert names(read(pools=[RAW])) == ["gpu"]

    @pytest.mark.parametrize(
        ("raw", "words"),
        [
            ("", 'virtpools_pools is "";'),
            ("gpu", 'virtpools_pools is "gpu"; give a list of pools.'),
            (3, "virtpools_pools is 3; give a list of pools."),
            ({"name": "gpu"}, "virtpools_pools is a mapping; give a list of pools."),
            ([None], "virtpools_pools[0] is null; give a mapping"),
            ([[]], "virtpools_pools[0] is an empty list; give a mapping"),
            ([3], "virtpools_pools[0] is 3; give a mapping"),
        ],
    )
    def test_nonsense_is_refused_in_words(self, raw, words):
        assert refusal(pools=raw).startswith(words)


class TestManifest:
    def manifest(self, tmp_path, text):
        path = tmp_path / "pools.yaml"
        path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
        return str(path)

    def test_of_our_own(self, tmp_path):
        assert names(read(pools_manifest=self.manifest(tmp_path, {"virtpools_pools": [RAW]}))) == ["gpu"]

    @pytest.mark.parametrize(
        ("content", "begin"),
        [
            ({"virtpools_pool": [RAW]}, "No pools were found in {}; give the variable"),
            ([WORKER_POOL, {"virtpools_pools": [RAW]}], "Pools were found in several places of {} ("),
        ],
    )
    def test_messages_name_the_file(self, tmp_path, content, begin):
        path = self.manifest(tmp_path, {"kind": "List", "items": content} if isinstance(content, list) else content)
        assert refusal(pools_manifest=path).startswith(begin.format(path))

    def test_of_objects(self, tmp_path):
        assert names(read(pools_manifest=self.manifest(tmp_path, WORKER_POOL))) == ["gpu"]

    def test_with_empty_documents(self, tmp_path):
        text = f"---\n---\n{yaml.safe_dump(WORKER_POOL)}\n---\n"
        assert names(read(pools_manifest=self.manifest(tmp_path, text))) == ["gpu"]

    def test_that_is_not_there(self, tmp_path):
        reason = "No such file or directory; correct its path, or the file."
        assert refusal(pools_manifest="/none") == f"The pool manifest /none cannot be read: {reason}"

    @pytest.mark.parametrize("text", ["{ no yaml", "a: 2026-99-99", "a: !!python/name:os.system", 100 * "["])
    def test_that_is_no_yaml(self, tmp_path, text):
        assert "pools.yaml is not valid YAML: " in refusal(pools_manifest=self.manifest(tmp_path, text))

    def test_that_is_no_text(self, tmp_path):
        (tmp_path / "pools.yaml").write_bytes(b"\xff\xfe\x00\xd8")
        assert "cannot be read: it is not text;" in refusal(pools_manifest=str(tmp_path / "pools.yaml"))

    def test_that_is_far_too_large(self, tmp_path):
        assert "larger than 4 MiB; is it the right file?" in refusal(
            pools_manifest=self.manifest(tmp_path, "#" * (4 * 2**20 + 1))
        )

    @pytest.mark.parametrize("text", ["", "just text", "- 1\n- 2\n"])
    def test_without_pools(self, tmp_path, text):
        assert refusal(pools_manifest=self.manifest(tmp_path, text))

    def test_without_pyyaml(self, tmp_path, monkeypatch):
        path = self.manifest(tmp_path, WORKER_POOL)
        monkeypatch.setattr(pool_sources, "yaml", None)
        assert "PyYAML is missing" in refusal(pools_manifest=path)


class TestCluster:
    def from_cluster(self, dialect, *objects, **options):
        server = ApiServer(builders.kubevirt() if not options.get("kubevirt") else options["kubevirt"], *objects)
        return names(read(server, pools_from_cluster=True, pools_dialect=dialect))

    def refusal(self, dialect, *objects, **options):
        with pytest.raises(InputErrors) as caught:
            self.from_cluster(dialect, *objects, **options)
        return " ".join(caught.value.messages)

    def test_of_worker_pools(self):
        assert self.from_cluster("WorkerPool", WORKER_POOL) == ["gpu"]

    def test_of_the_field_of_kubevirt(self):
        kubevirt = builders.kubevirt()
        kubevirt["spec"]["virtHandlerPools"] = [{**RAW, "selector": {"deviceNames": ["example.com/gpu"]}}]
        assert self.from_cluster("virtHandlerPools", kubevirt=kubevirt) == ["gpu"]

    def test_of_the_config_map(self):
        rule = {
            "name": "gpu",
            "image": builders.GPU_LAUNCHER_IMAGE,
            "selector": {"deviceNames": ["example.com/gpu"]},
            "nodeSelector": {"matchLabels": {"hw": "gpu"}},
        }
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kubevirt-aie-launcher-config", "namespace": builders.NAMESPACE},
            "data": {"config.yaml": yaml.safe_dump({"rules": [rule]})},
        }
        assert self.from_cluster("kubevirt-aie-launcher-config", config_map) == ["gpu"]
        config_map["data"]["config.yaml"] = "{ no yaml"
        assert "The YAML inside the ConfigMap is not valid" in self.refusal("kubevirt-aie-launcher-config", config_map)

    def test_needs_a_dialect(self):
        assert "virtpools_pools_from_cluster needs virtpools_pools_dialect" in self.refusal("virtpools")

    @pytest.mark.parametrize("dialect", ["WorkerPool", "workerPools", "kubevirt-aie-launcher-config"])
    def test_that_has_none(self, dialect):
        assert self.refusal(dialect) == f"The cluster at https://api.example:6443 has no {dialect} to read pools from."
