# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The command line: python -m local_cluster up|down|status|kubeconfig|build|seed|sums|go|list."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from . import cluster, go, instance, paths, programs
from .cluster import LocalCluster
from .errors import ClusterError

say = functools.partial(print, flush=True)


def main() -> int:
    """Run one command."""
    try:
        if sys.argv[1:2] == ["go"]:
            go.become(sys.argv[2:])
        arguments = _parser().parse_args()
        return COMMANDS[arguments.command](arguments)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; nothing is left running.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="local_cluster", description="A local Kubernetes for tests and demos.")
    commands = parser.add_subparsers(dest="command", required=True)
    name = argparse.ArgumentParser(add_help=False)
    name.add_argument("--name", default="demo", help="the cluster's name (default: %(default)s)")
    up = commands.add_parser("up", parents=[name], help="start a cluster, unless it runs already")
    up.add_argument("--fleet", type=Path, default=paths.FLEETS / "demo.yaml", help="file with its nodes")
    up.add_argument("--hco", action="store_true", help="let a HyperConverged object own KubeVirt")
    up.add_argument("--kubevirt", default=programs.KUBEVIRT, metavar="VERSION", help="default: %(default)s")
    up.add_argument("--kubernetes", default=programs.KUBERNETES, metavar="VERSION", help="default: %(default)s")
    up.add_argument("--namespace", default="kubevirt", help="KubeVirt's namespace")
    up.add_argument("--build", default="", choices=programs.BUILDS, help="play a build with pools of its own")
    up.add_argument("--no-kubevirt", action="store_true", help="only Kubernetes")
    commands.add_parser("down", parents=[name], help="stop a cluster and delete its files")
    commands.add_parser("status", parents=[name], help="show a cluster's components")
    commands.add_parser("kubeconfig", parents=[name], help="print the path of the administrator's kubeconfig")
    build = commands.add_parser("build", help="only build the programs of these versions, and the agent")
    for option, default in (("--kubevirt", programs.KUBEVIRT), ("--kubernetes", programs.KUBERNETES)):
        build.add_argument(option, nargs="*", default=[default], metavar="VERSION", help=f"default: {default}")
    build.add_argument("--kyverno", action="store_true", help="Kyverno's admission controller as well")
    commands.add_parser(
        "seed", help="build what a default cluster needs, and install KubeVirt in the cluster that others are copies of"
    )
    sums = commands.add_parser("sums", help="add a version: write the checksums that its own go.sum lacks")
    sums.add_argument("title", choices=programs.VERSIONS)
    sums.add_argument("version")
    commands.add_parser("go", help="run Go as programs are built with it; all further arguments are for Go")
    commands.add_parser("list", help="list all clusters")
    return parser


def _up(arguments: argparse.Namespace) -> int:
    running = LocalCluster.start(
        arguments.name,
        arguments.fleet,
        hco=arguments.hco,
        kubevirt="" if arguments.no_kubevirt else arguments.kubevirt,
        kubernetes=arguments.kubernetes,
        namespace=arguments.namespace,
        build=arguments.build,
        log=say,
    )
    say(f"Cluster {running.name} runs. Use it with: export KUBECONFIG={running.kubeconfig}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    existed = cluster.stop(arguments.name)
    say(f"Cluster {arguments.name} {'was deleted' if existed else 'does not exist'}.")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    loaded = instance.load(arguments.name)
    if loaded is None:
        raise ClusterError(f"Cluster {arguments.name} does not exist.")
    states = cluster.state(loaded)
    for component, alive in states.items():
        say(f"{component:<24} {'running' if alive else 'DEAD'}   {loaded.log(component)}")
    return 0 if all(states.values()) else 1


def _kubeconfig(arguments: argparse.Namespace) -> int:
    say(LocalCluster.attach(arguments.name).kubeconfig)
    return 0


def _build(arguments: argparse.Namespace) -> int:
    kyverno = [programs.KYVERNO] if arguments.kyverno else []
    wanted = {"Kubernetes": arguments.kubernetes, "KubeVirt": arguments.kubevirt, "Kyverno": kyverno}
    products = [programs.product(title, version) for title, versions in wanted.items() for version in versions]
    programs.make([programs.agent_product(), *products], say)
    for product in products:
        say(f"{product.title} is in {product.folder}")
    return 0


def _seed(_arguments: argparse.Namespace) -> int:
    say(LocalCluster.seed(instance.Options("", kubevirt=programs.KUBEVIRT), programs.build(say), say))
    say(programs.build_one("KubeVirt", programs.EARLIER, say))
    return 0


def _sums(arguments: argparse.Namespace) -> int:
    say(programs.write_sums(arguments.title, arguments.version, say))
    return 0


def _list(_arguments: argparse.Namespace) -> int:
    for name in instance.names():
        say(name)
    return 0


COMMANDS = {
    "up": _up,
    "down": _down,
    "status": _status,
    "kubeconfig": _kubeconfig,
    "build": _build,
    "seed": _seed,
    "sums": _sums,
    "list": _list,
}

if __name__ == "__main__":
    sys.exit(main())
