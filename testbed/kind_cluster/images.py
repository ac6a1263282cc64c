# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The images of a kind cluster, made from packages: of the node, of Kubernetes, of KubeVirt; and a registry.

Each has a label with a digest of its sources, and is rebuilt only when that differs.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from local_cluster import paths, programs
from local_cluster.go import Log

from . import engine, rootfs

RECIPES = Path(__file__).parent / "files" / "node"
KUBERNETES, KUBEVIRT = programs.KUBERNETES, programs.KUBEVIRT
NODE = f"virtpools-kind/node:{KUBERNETES}"
REGISTRY = f"virtpools-kind/registry:{programs.REGISTRY}"
# Names of no real registry. The one of KubeVirt's images is what a local cluster has, too.
OURS, STOCK = "node.example", "stock.example/kubevirt"
ETCD = "3.6.8-0"
"""The tag of etcd's image that kubeadm of KUBERNETES asks for; the program in it is the one of local clusters."""
NOT_ON_A_NODE = (
    "getty.target",
    "console-getty.service",
    "timers.target",
    "e2scrub_reap.service",
    "systemd-logind.service",
)
"""Units of Debian that a machine without a console does without."""
STUB_NAMES = ("pause", "sleep", "true", "node-labeller.sh", "virt-launcher-monitor", "virt-tail", "virt-exportproxy")


def make(log: Log = print) -> dict[str, object]:
    """Make all images that the engine lacks; return the variables with which the scenario kind takes them."""
    engine.require()
    kubernetes = programs.build_one("Kubernetes", KUBERNETES, log)
    node = programs.build_one("Node", KUBERNETES, log)
    kubevirt = programs.build_one("KubeVirt", KUBEVIRT, log)
    handler = programs.build_one("Handler", KUBEVIRT, log)
    stub = programs.build_stub(log)
    debian = rootfs.make(log)
    loaded = [
        *(
            _program(f"{STOCK}/{name}:{KUBEVIRT}", [kubevirt / name], log)
            for name in ("virt-operator", "virt-controller", "virt-api")
        ),
        _program(
            f"{STOCK}/virt-handler:{KUBEVIRT}", [handler / "virt-handler", handler / "virt-chroot"], log, user="0"
        ),
        _stub(f"{STOCK}/virt-launcher:{KUBEVIRT}", stub, log),
        _stub(f"{STOCK}/virt-exportproxy:{KUBEVIRT}", stub, log, user="1001"),
    ]
    inside = [
        *(
            _program(f"{OURS}/{name}:{KUBERNETES}", [kubernetes / name], log, user="0")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        ),
        _program(f"{OURS}/etcd:{ETCD}", [kubernetes / "etcd"], log, user="0"),
        _kube_proxy(node / "kube-proxy", debian, log),
        _stub(f"{OURS}/pause:stub", stub, log),
    ]
    crictl = programs.build_one("Crictl", programs.CRICTL, log)
    _node(debian, [kubernetes / "kubectl", node / "kubelet", node / "kubeadm", crictl / "crictl"], inside, log)
    make_registry(log)
    manifest = paths.cache() / f"kubevirt-operator-{KUBEVIRT}.yaml"
    paths.write_atomically(manifest, programs.manifest(kubevirt, images=STOCK))
    return _variables(manifest, loaded)


def make_registry(log: Log = print) -> str:
    """Make the registry's image, which published images need as well, and return its name."""
    program = programs.build_one("Registry", programs.REGISTRY, log) / "registry"
    files = {
        "/usr/bin/registry": program,
        **{f"/etc/registry/{each.name}": each for each in sorted((RECIPES.parent / "registry").iterdir())},
    }
    return _image(
        REGISTRY,
        files,
        {},
        ["ENV OTEL_TRACES_EXPORTER=none", 'CMD ["registry", "serve", "/etc/registry/config.yml"]'],
        log,
    )


def kind(log: Log = print) -> Path:
    """Return kind itself."""
    return programs.build_one("Kind", programs.KIND, log) / "kind"


def _variables(manifest: Path, loaded: list[str]) -> dict[str, object]:
    return {
        "node_image": NODE,
        # What the node image has of its own: addresses of pods, and no DNS for them, which KubeVirt does not need.
        "kind_networking": {"disableDefaultCNI": True},
        "kubeadm_patches": [json.dumps(patch) for patch in _kubeadm()],
        "kubevirt_version": KUBEVIRT,
        "kubevirt_operator": str(manifest),
        # Its programs are of another project, whose modules cannot be had.
        "kubevirt_configuration": {"virtTemplateDeployment": {"enabled": False}},
        "images_to_load": loaded,
    }


def _kubeadm() -> list[dict[str, object]]:
    kubelet = {"kind": "KubeletConfiguration", "cgroupRoot": "/", "cgroupDriver": "cgroupfs", "failCgroupV1": False}
    return [
        {"kind": "ClusterConfiguration", "imageRepository": OURS},
        {"kind": "InitConfiguration", "skipPhases": ["preflight", "addon/coredns"]},
        kubelet,
    ]


def _program(name: str, files: list[Path], log: Log, user: str = "1001") -> str:
    placed = {f"/usr/bin/{file.name}": file for file in files}
    return _image(name, placed, {}, [f"USER {user}", f'ENTRYPOINT ["{files[0].name}"]'], log)


def _stub(name: str, stub: Path, log: Log, user: str = "0") -> str:
    links = {f"/usr/bin/{called}": "stub" for called in STUB_NAMES} | {"/bin/sh": "/usr/bin/stub"}
    return _image(
        name, {"/usr/bin/stub": stub}, links, [f"USER {user}", f"ENV IMAGE={name}", 'ENTRYPOINT ["pause"]'], log
    )


def _kube_proxy(program: Path, debian: Path, log: Log) -> str:
    links = {"/run": "tmp"}
    for family in ("iptables", "ip6tables"):
        links |= {f"/usr/sbin/{family}{end}": "xtables-nft-multi" for end in ("", "-save", "-restore")}
    # kubeadm's DaemonSet calls it by its path.
    files: dict[str, Path | bytes] = {"/usr/local/bin/kube-proxy": program, **rootfs.iptables(debian)}
    return _image(f"{OURS}/kube-proxy:{KUBERNETES}", files, links, [], log)


def _image(
    name: str, files: Mapping[str, Path | bytes], links: Mapping[str, str], instructions: list[str], log: Log
) -> str:
    layer = engine.archive(files, links)
    recipe = hashlib.sha256(layer + repr(instructions).encode()).hexdigest()[:16]
    if not engine.has(name, recipe):
        log(f"Making the image {name}.")
        engine.make(name, layer, recipe, instructions)
    return name


def _node(debian: Path, tools: list[Path], images: list[str], log: Log) -> None:
    """Make the node's image: Debian, the tools, our recipes, and the images of Kubernetes as an archive."""
    recipes = {path.name: path for path in sorted(RECIPES.iterdir())}
    files: dict[str, Path | bytes] = {f"/usr/bin/{tool.name}": tool for tool in tools}
    files |= {
        "/kind/version": f"{KUBERNETES}\n".encode(),
        "/kind/entrypoint": recipes["entrypoint"],
        "/kind/import-images": recipes["import-images"],
        "/kind/cni.json": recipes["cni.json"],
        "/kind/images/README": b"What containerd gets when it starts for the first time.\n",
        "/etc/cni/net.d/README": b"The entrypoint writes a configuration.\n",
        "/etc/containerd/config.toml": recipes["containerd.toml"],
        "/etc/crictl.yaml": b"runtime-endpoint: unix:///run/containerd/containerd.sock\n",
        "/etc/systemd/system/containerd.service": recipes["containerd.service"],
        "/etc/systemd/system/kubelet.service": recipes["kubelet.service"],
    }
    wants = "/etc/systemd/system/multi-user.target.wants"
    links = {f"{wants}/{name}.service": f"/etc/systemd/system/{name}.service" for name in ("containerd", "kubelet")}
    links |= {f"/etc/systemd/system/{unit}": "/dev/null" for unit in NOT_ON_A_NODE}
    layer = engine.archive(files, links)
    ids = [engine.run("image", "inspect", "--format", "{{.Id}}", image) for image in images]
    recipe = hashlib.sha256(layer + repr((rootfs.RECIPE, ids)).encode()).hexdigest()[:16]
    if engine.has(NODE, recipe):
        return
    log(f"Making the image {NODE}.")
    with tempfile.TemporaryDirectory(prefix="virtpools-kind-") as folder:
        saved = Path(folder) / "kubernetes.tar"
        engine.run("save", "--output", str(saved), *images)
        engine.derive(NODE, debian, layer, saved, "/kind/images/", recipe)
