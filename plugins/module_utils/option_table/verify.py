# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What verify and explain look at, and the reports that they and runs write."""

from __future__ import annotations

from .option import Option
from .surveys import Question

OPTIONS: tuple[Option, ...] = (
    Option(
        "probe",
        "bool",
        """
        Whether to try out the launcher policy by creating pods in KubeVirt's namespace as server-side dry runs, which
        stores none.

        This needs the right to create pods there, which the ClusterRole C(virtpools-reader) lacks.
        """,
        roles=("verify",),
        modules=("verification_info",),
        default=False,
    ),
    Option(
        "max_listed_vms",
        "int",
        "How many single VMs to list at most. All are counted.",
        roles=("verify", "workload_update"),
        modules=("verification_info", "workload_update"),
        module_variants={
            "workload_update": {
                "text": "How many single VMs to list at most in RV(vms) and in RV(restarts). All are counted."
            }
        },
        default=1000,
    ),
    Option(
        "fail_on",
        "raw",
        """
        What makes the role fail. V(problems) is everything that is wrong, V(any) also what is only listed, V(none)
        nothing. Or a list of verdicts and codes of findings (C(docs/findings.md)).

        VMs that are only outdated are listed, not wrong.
        """,
        roles=("verify",),
        modules=("verification_info",),
        module_variants={
            "verification_info": {
                "text": """
                    What RV(failing) has. V(problems) is everything that is wrong, V(any) also what is only listed,
                    V(none) nothing. Or a list of verdicts and codes of findings (C(docs/findings.md)).

                    VMs that are only V(outdated) are listed, not wrong.
                    """
            }
        },
        default="problems",
        written="items",
        question=Question("What makes the job fail", ("verify",)),
    ),
    Option(
        "report_json",
        "path",
        """
        A file on the controller to write the whole report to, as JSON. With several clusters, put C({{
        inventory_hostname }}) into its name.
        """,
        roles=("verify",),
    ),
    Option(
        "report_junit",
        "path",
        "A file to write the report to as JUnit XML, for CI systems.",
        roles=("verify",),
    ),
    Option(
        "report_prometheus",
        "path",
        "A file to write the report's counts to for the textfile collector of Prometheus' node exporter.",
        roles=("verify",),
    ),
    Option(
        "report_html",
        "path",
        """
        A file to write one HTML page to that needs no network. Of a verification it is the report. Of a run it tells what
        the run was to change, when each node was handed over, and how the run ended.

        It is written in check mode, too. With several clusters, put C({{ inventory_hostname }}) into its name.
        """,
        roles=("verify", "pools", "remove"),
    ),
    Option(
        "report_configmap",
        "str",
        """
        A ConfigMap to write the report to, as V(namespace/name), or as V(name) in KubeVirt's namespace. It outlives the
        job, and holds the report as text, JSON and HTML. Large ones are compressed.
        """,
        roles=("verify",),
    ),
    Option(
        "vm",
        "str",
        """
        A VirtualMachine, as V(namespace/name). It need not run.

        Exactly one of O(vm), O(vmi) and O(manifest) is needed.
        """,
        roles=("explain",),
        modules=("explanation_info",),
        question=Question("VirtualMachine (namespace/name)", ("explain",)),
    ),
    Option(
        "vmi",
        "str",
        "A VirtualMachineInstance, as V(namespace/name), with or without a VirtualMachine.",
        roles=("explain",),
        modules=("explanation_info",),
        question=Question("VirtualMachineInstance (namespace/name)", ("explain",)),
    ),
    Option(
        "manifest",
        "path",
        """
        A YAML or JSON file with one VirtualMachine, VirtualMachineInstance, or template of one, which is not in the
        cluster yet. Its instancetype and preference are looked for in the file, then in the cluster (or in O(dump)).
        """,
        roles=("explain",),
        modules=("explanation_info",),
    ),
)
