# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The command line: python -m local_cluster up|down|status|kubeconfig|build|list."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from . import cluster, instance, paths, programs
from .cluster import LocalCluster
from .errors import ClusterError

say = functools.partial(print, flush=True)


def main() -> int:
    """Run one command."""
    arguments = _parser().parse_args()
    try:
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
    up = commands.add_parser("up", parents=[name], help="start a cluster; does nothing if it runs")
    up.add_argument("--fleet", type=Path, default=paths.FLEETS / "demo.yaml", help="file with its nodes")
    up.add_argument("--hco", action="store_true", help="let a HyperConverged object own KubeVirt")
    up.add_argument("--no-kubevirt", action="store_true", help="Kubernetes alone")
    commands.add_parser("down", parents=[name], help="stop a cluster and remove all it has")
    commands.add_parser("status", parents=[name], help="show a cluster's components")
    commands.add_parser("kubeconfig", parents=[name], help="print the path of the administrator's kubeconfig")
    commands.add_parser("build", help="only build the programs")
    commands.add_parser("list", help="name all clusters")
    return parser


def _up(arguments: argparse.Namespace) -> int:
    kubevirt = not arguments.no_kubevirt
    running = LocalCluster.start(arguments.name, arguments.fleet, hco=arguments.hco, kubevirt=kubevirt, log=say)
    say(f"Cluster {running.name} runs. Use it with: export KUBECONFIG={running.kubeconfig}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    existed = cluster.stop(arguments.name)
    say(f"Cluster {arguments.name} is {'gone' if existed else 'not there'}.")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    found = instance.load(arguments.name)
    if found is None:
        raise ClusterError(f"There is no cluster {arguments.name}.")
    states = cluster.state(found)
    for component, alive in states.items():
        say(f"{component:<24} {'running' if alive else 'DEAD'}   {found.log(component)}")
    return 0 if all(states.values()) else 1


def _kubeconfig(arguments: argparse.Namespace) -> int:
    say(LocalCluster.attach(arguments.name).kubeconfig)
    return 0


def _build(_arguments: argparse.Namespace) -> int:
    built = programs.build(say)
    say(f"Kubernetes {programs.kubernetes_version()} is in {built.kubernetes}")
    return 0


def _list(_arguments: argparse.Namespace) -> int:
    for name in instance.names():
        say(name)
    return 0


COMMANDS = {"up": _up, "down": _down, "status": _status, "kubeconfig": _kubeconfig, "build": _build, "list": _list}

if __name__ == "__main__":
    sys.exit(main())
