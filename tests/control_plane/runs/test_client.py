# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client against a real API server: what it relies on, and what scripted answers cannot show."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.request

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import (
    Cluster,
    Conflict,
    DeleteOptions,
    Forbidden,
    Invalid,
    NotFound,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import Request
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DAEMON_SET,
    KUBEVIRT,
    NODE,
    POD,
    Kind,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import metadata_patch
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.permissions import Permission
from merge_patch import merge_patch
from scenario import Scenario, pool

THING = Kind("example.com/v1", "Thing", "things")
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
OWNER = "virtpools.io/pool"


@pytest.fixture(scope="module")
def kubernetes(start_cluster):
    """A cluster of our own: its API server is stopped and its etcd compacted."""
    return start_cluster(kubevirt="")


@pytest.fixture(scope="module")
def cluster(kubernetes):
    return Cluster.connect({"kubeconfig": str(kubernetes.kubeconfig)})


@pytest.fixture
def namespace(cluster):
    """A namespace of the test's own."""
    name = f"test-{time.monotonic_ns()}"
    cluster.create(NAMESPACE, NAMESPACE.object(name), dry_run=False)
    return name


@pytest.fixture
def node(cluster):
    """A node of the test's own."""
    name = f"node-{time.monotonic_ns()}"
    obj = NODE.object(name)
    # Every real node has annotations. Kubernetes' TTL controller would write its first one at some moment of the test.
    obj["metadata"] |= {
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
    }
    yield cluster.create(NODE, obj, dry_run=False)
    cluster.delete(NODE, name, dry_run=False)


def config_map(name, namespace, **data):
    return CONFIG_MAP.object(name, namespace, data=data)


def test_a_cluster_without_kubevirt(kubernetes):
    said = Scenario(kubernetes).module("plan_info", pools=[pool("gpu", "a100")])
    assert "has no KubeVirt: it does not serve kubevirt.io/v1; install KubeVirt first." in said["msg"]


class TestList:
    def test_pages(self, cluster, namespace):
        names = {f"cm-{number:02}" for number in range(25)}
        for name in names:
            cluster.create(CONFIG_MAP, config_map(name, namespace), dry_run=False)
        listed = [obj["metadata"]["name"] for obj in cluster.list(CONFIG_MAP, namespace, page=10)]
        assert len(listed) == len(set(listed))
        assert set(listed) >= names
        (one,) = cluster.list(CONFIG_MAP, namespace, field_selector="metadata.name=cm-07")
        assert (one["kind"], one["metadata"]["name"]) == ("ConfigMap", "cm-07")

    def test_selects_labels(self, cluster, node):
        name = node["metadata"]["name"]
        (selected,) = cluster.list(NODE, label_selector=f"kubernetes.io/hostname in ({name}),!{OWNER}")
        assert selected["metadata"]["name"] == name

    def test_of_an_api_that_is_not_served(self, cluster):
        assert list(cluster.list(KUBEVIRT, missing_ok=True)) == []
        with pytest.raises(NotFound, match=r"this cluster does not serve kubevirts in kubevirt.io/v1"):
            list(cluster.list(KUBEVIRT))
        assert cluster.get(KUBEVIRT, "kubevirt", "kubevirt") is None

    def test_of_a_version_that_is_not_served(self, cluster):
        newer = Kind("apps/v9", "DaemonSet", "daemonsets")
        assert cluster.first_served(newer, DAEMON_SET) is DAEMON_SET
        with pytest.raises(NotFound, match=r"this cluster does not serve daemonsets in apps/v9"):
            list(cluster.list(newer))

    def test_survives_a_token_that_expired(self, kubernetes, cluster, namespace):
        """The token of the next page expires when etcd is compacted."""
        names = [f"cm-{number}" for number in range(6)]
        for name in names:
            cluster.create(CONFIG_MAP, config_map(name, namespace), dry_run=False)
        listing = cluster.list(CONFIG_MAP, namespace, page=2)
        listed = [next(listing)["metadata"]["name"]]
        compact(kubernetes, cluster)
        listed += [obj["metadata"]["name"] for obj in listing]
        assert [name for name in listed if name in names] == names

    def test_an_expired_token_is_answered_with_410(self, kubernetes, cluster, namespace):
        """By this answer the client knows that it must list anew."""
        for number in range(3):
            cluster.create(CONFIG_MAP, config_map(f"cm-{number}", namespace), dry_run=False)
        path = CONFIG_MAP.path(namespace)
        first = cluster._transport.send(Request("GET", path, (("limit", "1"),)))
        token = json.loads(first.body)["metadata"]["continue"]
        compact(kubernetes, cluster)
        kubernetes.restart("kube-apiserver")  # drops its cache, which could still serve the old revision
        expired = cluster._transport.send(Request("GET", path, (("limit", "1"), ("continue", token))))
        assert (expired.status, json.loads(expired.body)["reason"]) == (410, "Expired")


def compact(kubernetes, cluster):
    """Make etcd forget all revisions but the newest."""
    merge_patch(cluster, NAMESPACE, "default", {"metadata": {"labels": {"t": str(time.time_ns())}}}, dry_run=False)
    newest = cluster.existing(NAMESPACE, "default")["metadata"]["resourceVersion"]
    body = json.dumps({"revision": newest, "physical": True}).encode()
    url = f"http://127.0.0.1:{kubernetes._instance.etcd_port}/v3/kv/compaction"
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, body, timeout=10).close()


class TestApply:
    def test_creates_changes_and_lets_others_be(self, cluster, namespace):
        cluster.apply(CONFIG_MAP, config_map("cm", namespace, ours="1"), dry_run=False)
        merge_patch(cluster, CONFIG_MAP, "cm", {"data": {"theirs": "1"}}, namespace, dry_run=False)
        applied = cluster.apply(CONFIG_MAP, config_map("cm", namespace, ours="2"), dry_run=False)
        assert applied["data"] == {"ours": "2", "theirs": "1"}
        again = cluster.apply(CONFIG_MAP, config_map("cm", namespace, ours="2"), dry_run=False)
        assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]

    def test_takes_fields_from_others_only_with_force(self, kubernetes, cluster, namespace):
        cluster.create(CONFIG_MAP, config_map("cm", namespace, a="1"), dry_run=False)
        patch = json.dumps({"data": {"a": "theirs"}})
        kubernetes.kubectl("patch", "configmap", "cm", "-n", namespace, "--type=merge", "-p", patch)
        with pytest.raises(Conflict, match=r'others own fields of it .*"kubectl-patch".*\.data\.a'):
            cluster.apply(CONFIG_MAP, config_map("cm", namespace, a="ours"), force=False, dry_run=False)
        assert cluster.apply(CONFIG_MAP, config_map("cm", namespace, a="ours"), dry_run=False)["data"] == {"a": "ours"}

    def test_unknown_fields_are_refused_at_once(self, cluster, namespace):
        started = time.monotonic()
        with pytest.raises(Invalid, match="typo: field not declared in schema"):
            cluster.apply(CONFIG_MAP, {**config_map("cm", namespace), "typo": {}}, dry_run=False)
        with pytest.raises(Invalid, match='unknown field "typo"'):
            cluster.create(CONFIG_MAP, {**config_map("cm", namespace), "typo": {}}, dry_run=False)
        assert time.monotonic() - started < 5


class TestJsonPatch:
    def test_an_owner_is_written_only_where_there_is_none(self, cluster, node):
        """In the API server a test for null passes on an absent member; RFC 6902 does not say so."""
        name = node["metadata"]["name"]
        patched = cluster.json_patch(NODE, name, metadata_patch(node, labels={OWNER: "gpu"}), dry_run=False)
        assert patched["metadata"]["labels"][OWNER] == "gpu"
        with pytest.raises(Conflict, match="it is not as it was when the change was planned"):
            cluster.json_patch(NODE, name, metadata_patch(node, labels={OWNER: "fpga"}), dry_run=False)
        moved = metadata_patch(patched, labels={OWNER: None}, annotations={"former": "gpu"})
        freed = cluster.json_patch(NODE, name, moved, dry_run=False)
        assert OWNER not in freed["metadata"]["labels"]
        assert freed["metadata"]["annotations"]["former"] == "gpu"
        with pytest.raises(Conflict):
            cluster.json_patch(NODE, name, moved, dry_run=False)

    def test_other_changes_do_not_matter(self, cluster, node):
        name = node["metadata"]["name"]
        merge_patch(cluster, NODE, name, {"metadata": {"annotations": {"heartbeat": "1"}}}, dry_run=False)
        cluster.json_patch(NODE, name, metadata_patch(node, labels={OWNER: "gpu"}), dry_run=False)
        assert cluster.existing(NODE, name)["metadata"]["labels"][OWNER] == "gpu"

    def test_mappings_that_are_not_there(self, cluster, namespace):
        bare = cluster.create(CONFIG_MAP, config_map("cm", namespace), dry_run=False)
        assert "annotations" not in bare["metadata"]
        patch = metadata_patch(bare, labels={OWNER: None}, annotations={"a": "1"})
        patched = cluster.json_patch(CONFIG_MAP, "cm", patch, namespace, dry_run=False)
        assert patched["metadata"]["annotations"] == {"a": "1"}
        emptied = metadata_patch(patched, annotations={"a": None})
        emptied = cluster.json_patch(CONFIG_MAP, "cm", emptied, namespace, dry_run=False)
        assert "annotations" not in emptied["metadata"]  # an empty mapping is served as none
        cluster.json_patch(CONFIG_MAP, "cm", patch, namespace, dry_run=False)

    def test_an_invalid_result_is_no_conflict(self, cluster, node):
        with pytest.raises(Invalid, match="a valid label must be"):
            cluster.json_patch(
                NODE, node["metadata"]["name"], metadata_patch(node, labels={OWNER: "b@d"}), dry_run=False
            )


class TestWrites:
    def test_replace_only_what_was_read(self, cluster, namespace):
        first = cluster.create(CONFIG_MAP, config_map("cm", namespace, a="1"), dry_run=False)
        cluster.replace(CONFIG_MAP, {**first, "data": {"a": "2"}}, dry_run=False)
        with pytest.raises(Conflict, match="it was changed by someone else in the meantime"):
            cluster.replace(CONFIG_MAP, {**first, "data": {"a": "3"}}, dry_run=False)

    def test_delete_only_what_was_meant(self, cluster, namespace):
        first = cluster.create(CONFIG_MAP, config_map("cm", namespace), dry_run=False)["metadata"]
        second = merge_patch(cluster, CONFIG_MAP, "cm", {"data": {"a": "1"}}, namespace, dry_run=False)["metadata"]
        assert not cluster.delete(CONFIG_MAP, "cm", namespace, DeleteOptions(uid="another"), dry_run=False)
        with pytest.raises(Conflict):
            cluster.delete(
                CONFIG_MAP, "cm", namespace, DeleteOptions(first["uid"], first["resourceVersion"]), dry_run=False
            )
        options = DeleteOptions(first["uid"], second["resourceVersion"])
        assert cluster.delete(CONFIG_MAP, "cm", namespace, options, dry_run=False)
        assert not cluster.delete(CONFIG_MAP, "cm", namespace, dry_run=False)

    def test_dry_runs_store_nothing(self, kubernetes, cluster, namespace):
        obj = cluster.create(CONFIG_MAP, config_map("cm", namespace, a="1"), dry_run=False)
        marker = kubernetes.audit_marker()
        changed = config_map("cm", namespace, a="2")
        cluster.create(CONFIG_MAP, config_map("new", namespace), dry_run=True)
        assert cluster.apply(CONFIG_MAP, changed, dry_run=True)["data"] == {"a": "2"}
        cluster.replace(CONFIG_MAP, {**obj, "data": {}}, dry_run=True)
        cluster.json_patch(CONFIG_MAP, "cm", metadata_patch(obj, labels={"a": "b"}), namespace, dry_run=True)
        cluster.edit(CONFIG_MAP, "cm", namespace, lambda live: {**live, "data": {}}, dry_run=True)
        assert cluster.delete(CONFIG_MAP, "cm", namespace, dry_run=True)
        assert kubernetes.writes(marker, user="admin") == []
        assert cluster.existing(CONFIG_MAP, "cm", namespace) == obj
        assert cluster.get(CONFIG_MAP, "new", namespace) is None

    def test_edits_of_two_at_once_are_all_kept(self, kubernetes, cluster, namespace):
        cluster.create(CONFIG_MAP, config_map("cm", namespace, list=""), dry_run=False)

        def append(letter):
            mine = Cluster.connect({"kubeconfig": str(kubernetes.kubeconfig)})
            for _ in range(10):
                mine.edit(
                    CONFIG_MAP,
                    "cm",
                    namespace,
                    lambda live: {**live, "data": {"list": live["data"]["list"] + letter}},
                    dry_run=False,
                )

        threads = [threading.Thread(target=append, args=(letter,)) for letter in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(cluster.existing(CONFIG_MAP, "cm", namespace)["data"]["list"]) == sorted("ab" * 10)

    def test_into_a_namespace_that_is_not_there(self, cluster):
        with pytest.raises(NotFound, match=r'Could not create ConfigMap cm in namespace nowhere: namespaces "nowhere"'):
            cluster.create(CONFIG_MAP, config_map("cm", "nowhere"), dry_run=False)


class TestPermissions:
    def test_of_someone_without_any(self, kubernetes, cluster):
        nobody = Cluster.connect({"kubeconfig": str(kubernetes.kubeconfig_for("nobody"))})
        wanted = [Permission("patch", "nodes"), Permission("get", "leases", "coordination.k8s.io", "kubevirt")]
        assert nobody.missing_permissions(wanted) == tuple(wanted)
        assert cluster.missing_permissions(wanted) == ()
        assert nobody.user() == "system:serviceaccount:virtpools-system:nobody"
        with pytest.raises(Forbidden, match=r'^Not allowed to list nodes: nodes is forbidden: User "system:serviceacc'):
            list(nobody.list(NODE))

    def test_in_one_namespace_are_not_taken_for_everywhere(self, kubernetes, namespace):
        kubeconfig = kubernetes.kubeconfig_for("local-admin")
        kubernetes.kubectl(
            *("create", "rolebinding", "local-admin", "--clusterrole=cluster-admin", f"--namespace={namespace}"),
            "--serviceaccount=virtpools-system:local-admin",
        )
        local = Cluster.connect({"kubeconfig": str(kubeconfig)})
        everywhere = [Permission("get", "nodes"), Permission("get", "configmaps")]
        assert local.missing_permissions([*everywhere, Permission("get", "configmaps", namespace=namespace)]) == tuple(
            everywhere
        )

    def test_that_roles_give_take_one_request(self, kubernetes):
        kubernetes.kubectl("create", "clusterrole", "sees-nodes", "--verb=get,list", "--resource=nodes")
        kubeconfig = kubernetes.kubeconfig_for("sees-nodes", ["sees-nodes"])
        sees = Cluster.connect({"kubeconfig": str(kubeconfig)})
        asked = []
        send = sees._transport.send
        sees._transport.send = lambda request: asked.append(request.path) or send(request)
        assert sees.missing_permissions([Permission("get", "nodes"), Permission("list", "nodes")]) == ()
        assert [path.rpartition("/")[2] for path in asked] == ["selfsubjectrulesreviews"]
        assert sees.missing_permissions([Permission("patch", "nodes")]) == (Permission("patch", "nodes"),)

    def test_of_someone_unknown(self, kubernetes, cluster):
        ca_cert = str(kubernetes._instance.authority)
        unknown = Cluster.connect({"host": cluster.server, "api_key": "wrong", "ca_cert": ca_cert})
        with pytest.raises(Forbidden, match="does not accept the credentials"):
            list(unknown.list(NODE))


class TestRestartOfTheApiServer:
    @pytest.mark.parametrize("kill", [False, True], ids=["politely", "killed"])
    def test_every_write_is_carried_out_once(self, kubernetes, cluster, namespace, kill):
        """A restarted server reads RBAC rules late, and serves custom resources late; the writes depend on both."""
        cluster.apply(CUSTOM_RESOURCE_DEFINITION, definition_of(THING), dry_run=False)
        kubernetes.wait(lambda: cluster.serves(THING), 20, "the API")
        admin = Cluster.connect({"kubeconfig": str(kubernetes.kubeconfig_for("writer", ["cluster-admin"]))})
        restart = threading.Timer(0.5, kubernetes.restart, ["kube-apiserver"], {"kill": kill})
        written, conflicts = [], []
        restart.start()
        for number in itertools.count():
            name = f"cm-{number}"
            admin.create(CONFIG_MAP, config_map(name, namespace, state="new"), dry_run=False)
            created = admin.existing(CONFIG_MAP, name, namespace)
            patch = metadata_patch(created, labels={"a": "b"})
            try:
                admin.json_patch(CONFIG_MAP, name, patch, namespace, dry_run=False)
            except Conflict as error:
                conflicts.append(error)
            admin.edit(CONFIG_MAP, name, namespace, lambda live: {**live, "data": {"state": "old"}}, dry_run=False)
            admin.apply(THING, THING.object(name, namespace), dry_run=False)
            assert admin.delete(THING, name, namespace, dry_run=False)
            written.append(name)
            if not restart.is_alive() and number >= 20:
                break
        live = {obj["metadata"]["name"]: obj for obj in admin.list(CONFIG_MAP, namespace) if "state" in obj["data"]}
        assert set(live) == set(written)
        assert all(conflict.maybe_applied for conflict in conflicts)  # with its own attempt before the restart
        assert all(obj["data"] == {"state": "old"} and obj["metadata"]["labels"] == {"a": "b"} for obj in live.values())
        assert list(admin.list(THING, namespace)) == []

    def test_a_listing_goes_on(self, kubernetes, cluster, namespace):
        names = {f"cm-{number}" for number in range(10)}
        for name in names:
            cluster.create(CONFIG_MAP, config_map(name, namespace), dry_run=False)
        listing = cluster.list(CONFIG_MAP, namespace, page=3)
        listed = [next(listing)["metadata"]["name"]]
        kubernetes.restart("kube-apiserver", kill=True)
        listed += [obj["metadata"]["name"] for obj in listing]
        assert len(listed) == len(set(listed))
        assert set(listed) >= names

    def test_a_server_that_stays_away_is_reported_in_time(self, kubernetes):
        impatient = Cluster.connect({"kubeconfig": str(kubernetes.kubeconfig)}, retry_seconds=1)
        kubernetes.stop_component("kube-apiserver")
        try:
            with pytest.raises(Exception, match="gave no useful answer for 1 s, last: Connection refused") as caught:
                list(impatient.list(POD))
        finally:
            kubernetes.start_component("kube-apiserver")
        assert type(caught.value).__name__ == "Unreachable"


def definition_of(kind):
    """A CRD that takes anything."""
    return CUSTOM_RESOURCE_DEFINITION.object(
        f"{kind.plural}.{kind.group}",
        spec={
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.name, "plural": kind.plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    )
