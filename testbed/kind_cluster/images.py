# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The images of a kind cluster, made from packages: of the node, of Kubernetes, of KubeVirt; and a registry.

Each has a label with a digest of its sources, and is rebuilt only when that differs.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from local_cluster import paths, programs
from local_cluster.go import Log

from . import debian, engine, guest, multus
from .debian import Debian
from .engine import File

RECIPES = Path(__file__).parent / "files" / "node"
LAUNCHER_FILES = RECIPES.parent / "launcher"
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
LAUNCHER_USERS = {"v1.8.2": 0}
"""The user of launcher images whose KubeVirt starts them in virt-handler's pod and does not say as whom."""
STUB_NAMES = ("pause", "virt-exportproxy")
NEWER_QEMU = f"virtpools-kind/virt-launcher:{KUBEVIRT}-newer-qemu"
"""A launcher whose QEMU has another major version."""
FORGETFUL = f"virtpools-kind/virt-handler:{KUBEVIRT}-forgetful"
"""A handler that has no record of the VMs that migrate to its node."""
GUEST, GUEST_KERNEL, GUEST_INITRD = "virtpools-kind/guest:kernel", "/boot/vmlinuz", "/boot/initrd"
"""The guest's image, and where its kernel and files are."""


@dataclass(frozen=True)
class Release:
    """A version of KubeVirt, as a cluster is given it."""

    manifest: Path
    """What installs its operator."""
    images: list[str]
    """What the nodes must have."""


def make(log: Log = print) -> dict[str, object]:
    """Make all images that the engine lacks; return the variables with which the scenario kind takes them."""
    engine.require()
    kubernetes = programs.build_one("Kubernetes", KUBERNETES, log)
    node = programs.build_one("Node", KUBERNETES, log)
    launcher = programs.build_one("Launcher", KUBEVIRT, log)
    stub = programs.build_stub(log)
    root = debian.NODE.make(log)
    release = make_release(KUBEVIRT, log)
    earlier = make_release(programs.EARLIER, log)
    inside = [
        *(
            _program(f"{OURS}/{name}:{KUBERNETES}", [kubernetes / name], log, user="0")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        ),
        _program(f"{OURS}/etcd:{ETCD}", [kubernetes / "etcd"], log, user="0"),
        _kube_proxy(node / "kube-proxy", root, log),
        _stub(f"{OURS}/pause:stub", stub, log),
    ]
    crictl = programs.build_one("Crictl", programs.CRICTL, log)
    _node([kubernetes / "kubectl", node / "kubelet", node / "kubeadm", crictl / "crictl"], inside, log)
    make_registry(log)
    _launcher(NEWER_QEMU, debian.NEWER_LAUNCHER, launcher, log)
    _handler(FORGETFUL, programs.build_forgetful_handler(log), log)
    make_guest(log)
    multus.build(log)  # tests put it on nodes
    return _variables(release, earlier)


def make_release(version: str, log: Log = print) -> Release:
    """Make the images of a version of KubeVirt, and the manifest that installs it with them."""
    kubevirt = programs.build_one("KubeVirt", version, log)
    handler = programs.build_one("Handler", version, log)
    launcher = programs.build_one("Launcher", version, log)
    stub = programs.build_stub(log)
    made = [
        *(
            _program(f"{STOCK}/{name}:{version}", [kubevirt / name], log)
            for name in ("virt-operator", "virt-controller", "virt-api")
        ),
        _handler(f"{STOCK}/virt-handler:{version}", handler, log),
        _launcher(f"{STOCK}/virt-launcher:{version}", debian.LAUNCHER, launcher, log, LAUNCHER_USERS.get(version)),
        _stub(f"{STOCK}/virt-exportproxy:{version}", stub, log, user="1001"),
    ]
    manifest = paths.cache() / f"kubevirt-operator-{version}.yaml"
    paths.write_atomically(manifest, programs.manifest(kubevirt, images=STOCK))
    return Release(manifest, made)


def make_registry(log: Log = print) -> str:
    """Make the registry's image, which published images need as well, and return its name."""
    program = programs.build_one("Registry", programs.REGISTRY, log) / "registry"
    files = {
        "/usr/bin/registry": program,
        **{f"/etc/registry/{each.name}": each for each in sorted((RECIPES.parent / "registry").iterdir())},
    }
    instructions = ["ENV OTEL_TRACES_EXPORTER=none", 'CMD ["registry", "serve", "/etc/registry/config.yml"]']
    return _image(REGISTRY, engine.archive(files), instructions, log)


def kind(log: Log = print) -> Path:
    """Return kind itself."""
    return programs.build_one("Kind", programs.KIND, log) / "kind"


def _variables(release: Release, earlier: Release) -> dict[str, object]:
    return {
        "node_image": NODE,
        # What the node image has of its own: addresses of pods, and no DNS for them, which KubeVirt does not need.
        "kind_networking": {"disableDefaultCNI": True},
        "kubeadm_patches": [json.dumps(patch) for patch in _kubeadm()],
        "kubevirt_version": KUBEVIRT,
        "kubevirt_operator": str(release.manifest),
        "kubevirt_configuration": {
            # Its programs are of another project, whose modules cannot be had.
            "virtTemplateDeployment": {"enabled": False},
            # The node's containerd mounts no images.
            "developerConfiguration": {"disabledFeatureGates": ["ImageVolume"]},
        },
        "images_to_load": [*release.images, *earlier.images],
        "earlier_kubevirt_version": programs.EARLIER,
        "earlier_kubevirt_operator": str(earlier.manifest),
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
    return _image(name, engine.archive(placed), [f"USER {user}", f'ENTRYPOINT ["{files[0].name}"]'], log)


def _handler(name: str, folder: Path, log: Log) -> str:
    files = {f"/usr/bin/{program}": folder / program for program in ("virt-handler", "virt-chroot")}
    layer = engine.archive(files)
    return _image(name, layer, ["USER 0", 'ENTRYPOINT ["/usr/bin/virt-handler"]'], log, debian.HANDLER)


def _launcher(name: str, system: Debian, folder: Path, log: Log, user: int | None = None) -> str:
    """Make a launcher's image as KubeVirt's own is, as far as VMs of tests need it."""
    files: dict[str, Path | bytes | File] = {
        f"/usr/bin/{each.name}": each for each in folder.iterdir() if each.is_file()
    }
    monitor = folder / "virt-launcher-monitor"
    files[f"/usr/bin/{monitor.name}"] = File(monitor, binds_ports=True)
    files["/usr/sbin/virtqemud"] = LAUNCHER_FILES / "virtqemud"
    files["/usr/bin/node-labeller.sh"] = LAUNCHER_FILES / "node-labeller.sh"
    for each in ("qemu.conf", "virtqemud.conf"):
        files[f"/etc/libvirt/{each}"] = File(LAUNCHER_FILES / each, 0o644)
    # virt-launcher puts a link to its hook into that folder.
    layer = engine.archive(files, folders=["/etc/libvirt/hooks"])
    instructions = [f"USER {engine.QEMU if user is None else user}", 'ENTRYPOINT ["/usr/bin/virt-launcher"]']
    return _image(name, layer, instructions, log, system)


def _base(system: Debian, log: Log) -> str:
    name = f"virtpools-kind/{system.name}:base"
    if not engine.has(name, system.recipe):
        engine.make(name, system.make(log), system.recipe, [])
    return name


def make_python(log: Log = print) -> str:
    """Make an image with Python, on which an execution environment can be built, and return its name."""
    engine.require()
    return _base(debian.PYTHON, log)


def make_guest(log: Log = print) -> str:
    """Make the image with the guest's kernel, from which KubeVirt boots, and return its name."""
    kernel, initrd = guest.kernel_and_initrd(debian.GUEST.make(log))
    layer = engine.archive({GUEST_KERNEL: File(kernel, 0o644), GUEST_INITRD: File(initrd, 0o644)})
    return _image(GUEST, layer, [f"USER {engine.QEMU}"], log)


def _stub(name: str, stub: Path, log: Log, user: str = "0") -> str:
    links = {f"/usr/bin/{called}": "stub" for called in STUB_NAMES}
    layer = engine.archive({"/usr/bin/stub": stub}, links)
    return _image(name, layer, [f"USER {user}", 'ENTRYPOINT ["pause"]'], log)


def _kube_proxy(program: Path, root: Path, log: Log) -> str:
    links = {"/run": "tmp"}
    for family in ("iptables", "ip6tables"):
        links |= {f"/usr/sbin/{family}{end}": "xtables-nft-multi" for end in ("", "-save", "-restore")}
    # kubeadm's DaemonSet calls it by its path.
    files: dict[str, Path | bytes] = {"/usr/local/bin/kube-proxy": program, **debian.iptables(root)}
    return _image(f"{OURS}/kube-proxy:{KUBERNETES}", engine.archive(files, links), [], log)


def _image(name: str, layer: bytes, instructions: list[str], log: Log, system: Debian | None = None) -> str:
    """Make an image of an archive, on top of a Debian or of nothing, and return its name."""
    below = (system.recipe,) if system else ()
    recipe = hashlib.sha256(layer + repr((*below, instructions)).encode()).hexdigest()[:16]
    if not engine.has(name, recipe):
        log(f"Making the image {name}.")
        if system:
            engine.derive(name, _base(system, log), layer, recipe, instructions)
        else:
            engine.make(name, layer, recipe, instructions)
    return name


def _node(tools: list[Path], images: list[str], log: Log) -> None:
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
    recipe = hashlib.sha256(layer + repr((debian.NODE.recipe, ids)).encode()).hexdigest()[:16]
    if engine.has(NODE, recipe):
        return
    log(f"Making the image {NODE}.")
    with tempfile.TemporaryDirectory(prefix="virtpools-kind-") as folder:
        saved = Path(folder) / "kubernetes.tar"
        engine.run("save", "--output", str(saved), *images)
        instructions = ["ENV container=docker", 'ENTRYPOINT ["/kind/entrypoint"]', "CMD []"]
        engine.derive(NODE, _base(debian.NODE, log), layer, recipe, instructions, (saved, "/kind/images/"))
