# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Build the programs of the local control plane, once per version, into a cache outside the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import go, modules, paths, progress
from .errors import ClusterError
from .go import Log
from .modules import Module

KUBERNETES = go.from_module(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)")
KUBERNETES_VERSIONS = tuple(sorted({KUBERNETES, *modules.versions("Kubernetes")}))
KUBEVIRT = "v1.9.0"
BUILDS = ("additionalVirtHandlers", "virtHandlerPools", "WorkerPool")
"""The builds of KubeVirt with pools of their own that the agent plays."""
# What make test upgrades from.
EARLIER = "v1.8.2"
KUBEVIRT_VERSIONS = modules.versions("KubeVirt")
KYVERNO = "v1.18.2"
KYVERNO_VERSIONS = modules.versions("Kyverno")
# Its modules have their own numbers: this is Prometheus 3.13.1.
PROMETHEUS = "v0.313.1"
# What a cluster of containers needs besides: kind itself, what looks into a node, a registry with passwords.
KIND = "v0.33.0"
CRICTL = "v1.36.0"
REGISTRY = "v3.1.2"
# What attaches pods to further networks. Newer versions of Multus cannot be had from the module proxy.
MULTUS = "v4.2.0"
BRIDGE = "v1.6.2"
VERSIONS = {
    "Kubernetes": KUBERNETES_VERSIONS,
    "KubeVirt": KUBEVIRT_VERSIONS,
    "Kyverno": KYVERNO_VERSIONS,
    "Prometheus": modules.versions("Prometheus"),
    "Node": modules.versions("Node"),
    "Handler": modules.versions("Handler"),
    "Launcher": modules.versions("Launcher"),
    "Kind": modules.versions("Kind"),
    "Crictl": modules.versions("Crictl"),
    "Registry": modules.versions("Registry"),
    "Multus": modules.versions("Multus"),
    "Bridge": modules.versions("Bridge"),
}

# What our own module builds.
TOOLS = ("go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok")
KUBERNETES_PROGRAMS = ("cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kubectl")
# Libraries of Kubernetes 1.35.2 that the module proxy or the checksum database lacks in that version.
OTHER_LIBRARIES = {
    "v1.35.2": {f"k8s.io/{name}": "v0.35.1" for name in ("endpointslice", "externaljwt", "kube-controller-manager")},
}
KUBEVIRT_PROGRAMS = ("cmd/virt-operator", "cmd/virt-controller", "cmd/virt-api", "tools/manifest-templator")
# Modules with one program and nothing special: the module and the program in it.
OTHER_PROGRAMS = {
    "Kyverno": ("github.com/kyverno/kyverno", "cmd/kyverno"),
    "Kind": ("sigs.k8s.io/kind", "cmd/kind"),
    "Crictl": ("sigs.k8s.io/cri-tools", "cmd/crictl"),
    "Registry": ("github.com/distribution/distribution/v3", "cmd/registry"),
    "Multus": ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4", "cmd/multus"),
    "Bridge": ("github.com/containernetworking/plugins", "plugins/main/bridge"),
}
PROMETHEUS_PROGRAMS = ("cmd/promtool",)
# What runs on a node of kind: its programs are those of Kubernetes and of KubeVirt that a local cluster does without.
NODE_PROGRAMS = ("cmd/kubelet", "cmd/kubeadm", "cmd/kube-proxy")
HANDLER_PROGRAMS = ("cmd/virt-handler", "cmd/virt-chroot")
LAUNCHER_PROGRAMS = (
    "cmd/virt-launcher",
    "cmd/virt-launcher-monitor",
    "cmd/virt-launcher/libvirt-hook-client",
    "cmd/virt-tail",
    "cmd/virt-probe",
    "cmd/virt-freezer",
)
CONTAINER_DISK = ("container-disk", "cmd/container-disk-v2alpha/main.c")
"""What a container disk's container runs: it serves the disk to virt-launcher."""
# libvirt is looked up when virt-launcher starts, so compiling needs nothing of it. net and os/user stay without C, as in all
# other programs.
LAUNCHER_TAGS = "libvirt_dlopen,netgo,osusergo"
# The module proxy has no version of libnbd's bindings. KubeVirt uses them for backups only.
WITHOUT_NBD = {
    "v1.8.2": {
        "pkg/virt-launcher/virtwrap/storage/nbd_client.go": """\
package storage

import nbdv1 "kubevirt.io/kubevirt/pkg/storage/cbt/nbd/v1"

func NewNBDClient(string) nbdv1.NBDServer { return nil }
"""
    },
    "v1.9.0": {
        "pkg/storage/nbdclient/nbdclient.go": (
            'package nbdclient\n\nimport "google.golang.org/grpc"\n\nfunc RegisterNBDServer(*grpc.Server, string) {}\n'
        ),
    },
}
# The only file of virt-handler with C in it finds out what Hyper-V features KVM offers. Without it no compiler of C is
# needed, no libc in the image, and a thousand libraries need not be compiled a second time.
WITHOUT_C = {
    "pkg/virt-handler/node-labeller/kvm-caps-info-plugin_amd64.go": (
        "package nodelabeller\n\nfunc getCapLabels() []string { return nil }\n"
    ),
}
# Kernels of containers' hosts may lack the device that virt-handler puts in the place of a pod's further interface: there a bridge
# without ports does as well.
WITHOUT_DUMMIES: dict[str, tuple[tuple[str, str], ...]] = {
    "pkg/network/driver/nmstate/types.go": (('TypeDummy  = "dummy"', "TypeDummy  = TypeBridge"),),
    "pkg/network/driver/nmstate/spec.go": (
        (
            """\
	TypeDummy: func(iface Interface) (vishnetlink.Link, error) {
		return initLink(iface.Name, &vishnetlink.Dummy{})
	},
""",
            "",
        ),
    ),
}
# A virt-handler that always does what KubeVirt's own does now and then on a busy node: at the end of a migration it deletes its
# record of the VM only after it has looked at the VM for the last time.
FORGETFUL: dict[str, tuple[tuple[str, str], ...]] = {
    "pkg/virt-handler/migration-target.go": (
        (
            "\tdefer c.launcherClients.CloseLauncherClient(vmi)\n",
            "\tdefer func() {\n\t\ttime.Sleep(20 * time.Second)\n\t\tc.launcherClients.CloseLauncherClient(vmi)\n\t}()\n",
        ),
    ),
}
# virt-operator and virt-api resolve the references in the schemas of all kinds when they start, which takes three quarters
# of the processor time of their start, 2.3 seconds each. Here they do so kind by kind, when one is first validated.
SCHEMAS_WHEN_NEEDED = {
    "pkg/util/openapi/expanded.go": """\
package openapi

import (
	"sync"

	"github.com/go-openapi/spec"
)

type place struct {
	root *spec.Schema
	name string
}

var (
	expanding sync.Mutex
	known     = map[place]spec.Schema{}
)

func expanded(root *spec.Schema, name string) spec.Schema {
	expanding.Lock()
	defer expanding.Unlock()
	definition, found := known[place{root, name}]
	if !found {
		definition = root.Definitions[name]
		if err := spec.ExpandSchema(&definition, root, nil); err != nil {
			panic(err)
		}
		known[place{root, name}] = definition
	}
	return definition
}
"""
}
_EXPAND_ALL = """\
	err = openapi_spec.ExpandSchema({0}, {0}, nil)
	if err != nil {{
		log.Print(err)
		os.Exit(2)
	}}
"""
EXPANSION: dict[str, tuple[tuple[str, str], ...]] = {
    "pkg/util/openapi/openapi.go": (
        (_EXPAND_ALL.format("specSchema"), ""),
        (_EXPAND_ALL.format("statusSchema"), ""),
        ('v.specSchemes.Definitions["v1."+gvk.Kind+"Spec"]', 'expanded(v.specSchemes, "v1."+gvk.Kind+"Spec")'),
        ('v.statusSchemes.Definitions["v1."+gvk.Kind+"Status"]', 'expanded(v.statusSchemes, "v1."+gvk.Kind+"Status")'),
    )
}
# Without what finds machines in two dozen clouds.
PROMETHEUS_TAGS = "remove_all_sd"
# Programs that we run under another name than Go gives them.
RENAMED = {"server": "etcd"}
AGENT = "agent"
STUB = "stub"

MANIFEST = "kubevirt-operator.yaml"
# What the built manifest has in place of KubeVirt's namespace and of the registry of its images.
NAMESPACE, IMAGES = "{{.Namespace}}", "images.invalid"


@dataclass(frozen=True)
class Programs:
    """The folders of the built programs."""

    kubernetes: Path
    """Kubernetes, etcd and kwok."""
    agent: Path
    """The agent itself."""
    kubevirt: Path | None = None
    """virt-operator, virt-controller, virt-api, and the manifest to install them with."""


@dataclass(frozen=True)
class Step:
    """One run of go build."""

    packages: tuple[str, ...]
    stamps: dict[str, str] = field(default_factory=dict)
    """Values for variables of packages."""
    module: Module | None = None
    """The module that they are of; without one they are built by our own."""


@dataclass(frozen=True)
class Product:
    """A folder of programs."""

    title: str
    folder: Path
    steps: tuple[Step, ...]


def build(
    log: Log = print, agent: bool = True, kubevirt: str | None = KUBEVIRT, kubernetes: str = KUBERNETES
) -> Programs:
    """Build the programs that the cache lacks, the agent and KubeVirt only if wanted; return where all of them are."""
    wanted = [product("Kubernetes", kubernetes), *([product("KubeVirt", kubevirt)] if kubevirt else [])]
    ours = agent_product()
    make([*wanted, *([ours] if agent else [])], log)
    return Programs(wanted[0].folder, ours.folder / AGENT, wanted[1].folder if kubevirt else None)


def build_one(title: str, version: str, log: Log = print) -> Path:
    """Build the programs of one version of something in VERSIONS if the cache lacks them; return their folder."""
    made = product(title, version)
    make([made], log)
    return made.folder


def build_forgetful_handler(log: Log = print) -> Path:
    """Build a virt-handler that forgets each VM which migrates to its node, if the cache lacks it; return its folder."""
    module = _module("Handler", KUBEVIRT)
    module = replace(module, edited={**module.edited, **FORGETFUL})
    step = Step(tuple(module.imports), _stamps("Handler", KUBEVIRT), module)
    made = _product(f"a forgetful virt-handler {KUBEVIRT}", f"forgetful-{module.name}", (step,))
    make([made], log)
    return made.folder


def build_stub(log: Log = print) -> Path:
    """Build the stub of images that have nothing to do if the cache lacks it; return the program."""
    sources = sorted(path for path in paths.STUB_SOURCE.iterdir() if path.is_file())
    made = _product("the stub", STUB, (Step((f"./{STUB}",)),), sources)
    make([made], log)
    return made.folder / STUB


def write_sums(title: str, version: str, log: Log = print) -> Path:
    """Write the file that makes a version of something in VERSIONS known."""
    module = _module(title, version)
    folder = paths.cache() / f"{module.name}-sums"
    shutil.rmtree(folder, ignore_errors=True)
    modules.write_sums(go.find(log), module, folder)
    shutil.rmtree(folder)
    return module.sums


def manifest(folder: Path, namespace: str = "kubevirt", images: str = "stock.example/kubevirt") -> str:
    """Return the manifest that installs the virt-operator of a folder of programs, with images from a registry."""
    return (folder / MANIFEST).read_text("utf-8").replace(NAMESPACE, namespace).replace(IMAGES, images)


def product(title: str, version: str) -> Product:
    """Return what is to be built for a version of something in VERSIONS."""
    if version not in VERSIONS[title]:
        known = ", ".join(VERSIONS[title])
        raise ClusterError(f"{title} {version} is not one of the versions that we build: {known}.")
    module = _module(title, version)
    stamps = _stamps(title, version)
    derived = Step(tuple(module.imports), stamps, module)
    if title not in {"Kubernetes", "Node"}:
        return _product(f"{title} {version}", module.name, (derived,))
    if title == "Node":
        return _product(f"the node programs of Kubernetes {version}", module.name, (derived,), _own_module())
    # Our own module has the default version, so that it shares compiled libraries with the agent.
    ours = Step((*TOOLS, *module.imports), stamps)
    steps = (ours,) if version == KUBERNETES else (Step(TOOLS), derived)
    return _product(f"{title} {version}", module.name, steps, _own_module())


def agent_product() -> Product:
    """Return what is to be built for the agent."""
    # It has a key of its own, so that an edit of it does not build Kubernetes again.
    sources = sorted(path for path in paths.AGENT_SOURCE.rglob("*") if path.is_file())
    return _product("the agent", AGENT, (Step((f"./{AGENT}",)),), [*_own_module(), *sources])


def _module(title: str, version: str) -> Module:
    if title == "Kubernetes":
        libraries = version.replace("v1.", "v0.", 1)
        others = OTHER_LIBRARIES.get(version, {})
        return Module(title, "k8s.io/kubernetes", version, KUBERNETES_PROGRAMS, libraries, others)
    if title == "Node":
        # The version is that of our own module, which has compiled most of it.
        return Module(title, "k8s.io/kubernetes", version, NODE_PROGRAMS, ours=True)
    if title == "KubeVirt":
        return Module(
            title,
            "kubevirt.io/kubevirt",
            version,
            KUBEVIRT_PROGRAMS,
            staging=version,
            replaced=SCHEMAS_WHEN_NEEDED,
            edited=EXPANSION,
        )
    if title == "Handler":
        return Module(
            title,
            "kubevirt.io/kubevirt",
            version,
            HANDLER_PROGRAMS,
            staging=version,
            replaced=WITHOUT_C,
            edited=WITHOUT_DUMMIES,
        )
    if title == "Launcher":
        return Module(
            title,
            "kubevirt.io/kubevirt",
            version,
            LAUNCHER_PROGRAMS,
            staging=version,
            tags=LAUNCHER_TAGS,
            replaced=WITHOUT_NBD[version],
            c_program=CONTAINER_DISK,
        )
    if title == "Prometheus":
        return Module(title, "github.com/prometheus/prometheus", version, PROMETHEUS_PROGRAMS, tags=PROMETHEUS_TAGS)
    path, package = OTHER_PROGRAMS[title]
    return Module(title, path, version, (package,))


def _stamps(title: str, version: str) -> dict[str, str]:
    values = {"gitVersion": version, "gitTreeState": "clean"}
    if title in {"Kubernetes", "Node"}:
        # kubectl refuses a server without a version.
        major, minor, _patch = version.removeprefix("v").split(".")
        values |= {"gitMajor": major, "gitMinor": minor}
        packages = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
    elif title in {"KubeVirt", "Handler", "Launcher"}:
        # virt-operator writes its own version into KubeVirt's status.
        packages = ["kubevirt.io/client-go/version"]
    elif title == "Kyverno":
        return {"github.com/kyverno/kyverno/pkg/version.BuildVersion": version}
    elif title == "Prometheus":
        return {"github.com/prometheus/common/version.Version": version}
    else:
        return {}
    return {f"{package}.{name}": value for package in packages for name, value in values.items()}


def _own_module() -> list[Path]:
    return [paths.TESTBED / "go.mod", paths.TESTBED / "go.sum"]


def _product(title: str, name: str, steps: tuple[Step, ...], sources: Iterable[Path] = ()) -> Product:
    """Return the product whose folder is named after all that it is made of."""
    digest = hashlib.sha256(repr(steps).encode())
    for step in steps:
        if step.module:
            digest.update(step.module.tags.encode())
            digest.update("".join(step.module.replaced.values()).encode())
            edits = [edit for edits in step.module.edited.values() for edit in edits]
            digest.update("".join(old + new for old, new in edits).encode())
            digest.update("".join(step.module.c_program or ()).encode())
    derived = [step.module.sums for step in steps if step.module]
    local = sorted(path for path in paths.MODULES.glob("*/**/*") if path.is_file()) if derived else []
    for file in [*sources, *derived, *local]:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(paths.TESTBED)} {len(content)}\n".encode())
        digest.update(content)
    return Product(title, paths.cache() / f"{name}-{digest.hexdigest()[:16]}", steps)


def make(products: list[Product], log: Log) -> None:
    """Build the products that the cache lacks."""
    for product in products:
        if not product.folder.exists():
            # Each has a lock of its own: who wants a small one does not wait for others that are being built.
            with paths.locked(product.folder.with_name(f".{product.folder.name}.lock")):
                if not product.folder.exists():
                    _make_one(product, log)
            _prune()
        os.utime(product.folder)


def _make_one(product: Product, log: Log) -> None:
    program = go.find(log)
    log(f"Building {product.title} into {paths.cache()}; the first time takes some minutes.")
    started = time.monotonic()
    # It gets its name when it is complete.
    folder = product.folder.with_name(f"{product.folder.name}.new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for step in product.steps:
        _build(program, step, folder, log)
    folder.rename(product.folder)
    log(f"  {product.title} built in {time.monotonic() - started:.0f} s")


def _build(program: str, step: Step, folder: Path, log: Log) -> None:
    inside = folder / "module" if step.module else paths.TESTBED
    source = modules.prepare(program, step.module, inside) if step.module else inside
    linker = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in step.stamps.items())])
    tags = [f"-tags={step.module.tags}"] if step.module and step.module.tags else []
    c_program = step.module.c_program if step.module else None
    output = [f"-ldflags={linker}", "-o", f"{folder}/"]
    if c_program and shutil.which("gcc") is None:
        raise ClusterError(
            "gcc is not in PATH: install it and the headers of the C library, for KubeVirt's virt-launcher has C in it."
        )
    progress.build(program, output, list(step.packages), inside, log, tags, cgo=bool(step.module and step.module.cgo))
    if c_program:
        _compile(source / c_program[1], folder / c_program[0])
    for name, ours in RENAMED.items():
        if (folder / name).exists():
            (folder / name).rename(folder / ours)
    if step.module and step.module.title == "KubeVirt":
        _render_manifest(folder, source, step.module.version)
    if step.module and step.module.title == "Kyverno":
        # Its Deployments name images; what we want are the CRDs, roles and settings.
        shutil.copyfile(source / "config/install-latest-testing.yaml", folder / "kyverno.yaml")


def _compile(source: Path, program: Path) -> None:
    command = ["gcc", "-O2", "-static", "-o", str(program), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise go.failed(command, result.stderr)


def _render_manifest(folder: Path, source: Path, version: str) -> None:
    templator, manifests = folder / "manifest-templator", source / "manifests"
    values = {
        "namespace": NAMESPACE,
        "container-prefix": IMAGES,
        "container-tag": version,
        "generated-manifests-dir": f"{manifests}/generated",
        "input-file": f"{manifests}/release/{MANIFEST}.in",
        # It wants a picture, which this manifest does not have.
        "kubevirt-logo-path": os.devnull,
    }
    options = ["--process-vars", "--process-files", *(f"--{name}={value}" for name, value in values.items())]
    command = [str(templator), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise go.failed(command, result.stderr)
    (folder / MANIFEST).write_text(result.stdout, "utf-8")
    templator.unlink()


def _prune() -> None:
    """Remove builds that were not used for a week: each edit of the agent leaves one behind."""
    for folder in paths.cache().glob("*-*"):
        if time.time() - folder.stat().st_mtime > 7 * 24 * 3600:
            shutil.rmtree(folder, ignore_errors=True)
