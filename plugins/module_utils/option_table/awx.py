# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What the role awx creates in AWX."""

from __future__ import annotations

from .option import Option

OPTIONS: tuple[Option, ...] = (
    Option(
        "awx_state",
        "str",
        """
        V(present) creates the role's objects in AWX, and corrects those that differ. V(absent) removes them.

        What others added stays, also on objects of this role. The role knows its objects by their names, and by the mark
        C((virtpools.kubevirt)) in their descriptions.
        """,
        roles=("awx",),
        default="present",
        choices=("present", "absent"),
    ),
    Option(
        "awx_host",
        "str",
        """
        Address of AWX, such as V(https://awx.example).

        Without it and the next four, the collection awx.awx takes its own environment variables (E(CONTROLLER_HOST),
        E(CONTROLLER_OAUTH_TOKEN), E(CONTROLLER_USERNAME), E(CONTROLLER_PASSWORD), E(CONTROLLER_VERIFY_SSL)) and
        configuration files. A job of AWX gets these from a credential for AWX.
        """,
        roles=("awx",),
    ),
    Option(
        "awx_token",
        "str",
        "OAuth token for AWX, of a user who may change the organization.",
        roles=("awx",),
        secret=True,
    ),
    Option(
        "awx_username",
        "str",
        "User name in AWX, instead of O(awx_token).",
        roles=("awx",),
    ),
    Option(
        "awx_password",
        "str",
        "Password of O(awx_username).",
        roles=("awx",),
        secret=True,
    ),
    Option(
        "awx_verify_ssl",
        "bool",
        "Whether to check the certificate of AWX. By default it is checked.",
        roles=("awx",),
    ),
    Option(
        "awx_prefix",
        "str",
        """
        What the names of all objects begin with. Names of execution environments and credential types are unique in a
        whole AWX, so give every organization that uses this role a prefix of its own.
        """,
        roles=("awx",),
        default="virtpools",
    ),
    Option(
        "awx_organization",
        "str",
        "The organization.",
        roles=("awx",),
        default="virtpools",
    ),
    Option(
        "awx_manage_organization",
        "bool",
        """
        Whether the role creates the organization, gives it O(awx_galaxy_credentials), and deletes it when nothing is left in
        it.

        V(false) for an organization that is not only for this collection. It must exist, and stays as it is. Its
        administrator can then run the role, except for the credential type that several clusters need: only an
        administrator of the whole AWX can create that.
        """,
        roles=("awx",),
        default=True,
    ),
    Option(
        "awx_galaxy_credentials",
        "list",
        """
        Names of the credentials with which projects of the organization install collections, in order. AWX itself has
        V(Ansible Galaxy).
        """,
        roles=("awx",),
        default=["Ansible Galaxy"],
        elements="str",
    ),
    Option(
        "awx_project_url",
        "str",
        """
        The git repository with your project, as C(examples/) is one. Needed unless O(awx_state=absent). It must not contain a
        password: use O(awx_project_credential).
        """,
        roles=("awx",),
    ),
    Option(
        "awx_project_branch",
        "str",
        "Branch, tag or commit of the project.",
        roles=("awx",),
    ),
    Option(
        "awx_project_credential",
        "str",
        "Name of the credential in AWX that reads the repository, if it is not public.",
        roles=("awx",),
    ),
    Option(
        "awx_image",
        "str",
        """
        The image of an execution environment for all jobs. Without it, they run in AWX's default one, which must have the
        Python packages in C(requirements.txt).
        """,
        roles=("awx",),
    ),
    Option(
        "awx_image_credential",
        "str",
        "Name of the credential in AWX that pulls O(awx_image).",
        roles=("awx",),
    ),
    Option(
        "awx_reader",
        "dict",
        """
        What read-only jobs authenticate with, to create a credential. For one cluster C(host), C(bearer_token),
        C(ssl_ca_cert) and C(verify_ssl), as the credential type C(OpenShift or Kubernetes API Bearer Token) has them. For
        several, C(kubeconfig) with the text of a kubeconfig file.

        Without it and O(awx_reader_credential), the job templates keep the credentials that they have.
        """,
        roles=("awx",),
        default={},
        secret=True,
    ),
    Option(
        "awx_writer",
        "dict",
        "The same as O(awx_reader), for jobs that change clusters.",
        roles=("awx",),
        default={},
        secret=True,
    ),
    Option(
        "awx_reader_credential",
        "str",
        "Name of a credential that AWX has, instead of O(awx_reader).",
        roles=("awx",),
    ),
    Option(
        "awx_writer_credential",
        "str",
        "Name of a credential that AWX has, instead of O(awx_writer).",
        roles=("awx",),
    ),
    Option(
        "awx_update_secrets",
        "bool",
        """
        Whether to write the secrets of O(awx_reader) and O(awx_writer) again. AWX does not show secrets, so the role
        cannot see that one has changed: use this for one run, with new tokens.
        """,
        roles=("awx",),
        default=False,
    ),
    Option(
        "awx_inventory_path",
        "str",
        "Path of the inventory in the project. Every host of it is a cluster.",
        roles=("awx",),
        default="inventory/clusters.yml",
    ),
    Option(
        "awx_hosts",
        "dict",
        """
        The clusters, if the inventory is not in the project: variables by the name of the host. A host that you take out
        is deleted in AWX; hosts that others added stay.
        """,
        roles=("awx",),
        default={},
    ),
    Option(
        "awx_pool_list",
        "str",
        """
        Where the pool list of the clusters comes from. With V(project) it is that of the inventory, such as C(pools.yml) of the
        project, for all jobs, and no survey asks for one.

        With V(survey) the surveys of C(plan), C(site), C(rollout), C(upgrade), C(upgrade_check) and of the workflows ask for
        the list, and no job reads that of the inventory. C(verify) and C(explain) use the list that the cluster records.
        """,
        roles=("awx",),
        default="project",
        choices=("project", "survey"),
    ),
    Option(
        "awx_variables",
        "dict",
        """
        Variables of this collection for all jobs, such as C(virtpools_waves). They override the inventory. Mark
        values that only the job may evaluate with C(!unsafe).
        """,
        roles=("awx",),
        default={},
    ),
    Option(
        "awx_extra_credentials",
        "list",
        """
        Names of credentials in AWX that all job templates get besides those for clusters, such as one for a vault. None
        may have the type of a credential for clusters.
        """,
        roles=("awx",),
        default=[],
        elements="str",
    ),
    Option(
        "awx_instance_groups",
        "list",
        "Names of the instance groups, or container groups, of AWX in which the jobs run, in order.",
        roles=("awx",),
        default=[],
        elements="str",
    ),
    Option(
        "awx_forks",
        "int",
        """
        In how many clusters a job works at the same time. By default AWX leaves that to Ansible: five.
        """,
        roles=("awx",),
    ),
    Option(
        "awx_job_timeout",
        "int",
        """
        Seconds after which AWX cancels a job; 0 for never. A rollout in many waves takes hours, with its gates and soak
        times.
        """,
        roles=("awx",),
    ),
    Option(
        "awx_verbosity",
        "int",
        "Verbosity of the jobs, from 0 to 5.",
        roles=("awx",),
    ),
    Option(
        "awx_approval_timeout",
        "int",
        """
        Seconds after which AWX denies an approval that is still pending; 0 for never. By default, an approval keeps the
        timeout that it has in AWX.
        """,
        roles=("awx",),
    ),
    Option(
        "awx_cache_timeout",
        "int",
        """
        Seconds for which an update of the project, or of its inventory, serves the next job as well. Without it, AWX
        updates the project twice for each job, and the inventory once. What you push to the repository may take as long to
        reach a job.
        """,
        roles=("awx",),
        default=60,
    ),
    Option(
        "awx_teams",
        "dict",
        """
        Teams of the organization that get the same roles as those that this role creates: lists of names under C(readers),
        C(operators) and C(approvers). A team that you take out keeps its roles in AWX.
        """,
        roles=("awx",),
        default={},
    ),
    Option(
        "awx_labels",
        "list",
        "Labels of all templates.",
        roles=("awx",),
        default=["virtpools"],
        elements="str",
    ),
    Option(
        "awx_verify_schedule",
        "str",
        """
        When AWX verifies the clusters by itself, as an iCalendar rule with C(DTSTART) and C(INTERVAL). V(none) for never.
        """,
        roles=("awx",),
        default="DTSTART:20260101T030000Z RRULE:FREQ=DAILY;INTERVAL=1",
    ),
    Option(
        "awx_webhook",
        "dict",
        """
        Webhook to notify about failed jobs, approvals, and some jobs that succeed, see C(docs/awx.md): C(url), and optionally
        C(headers), C(http_method), C(username), C(password) and C(disable_ssl_verification).

        With a password, awx.awx writes the notification again in every run.
        """,
        roles=("awx",),
        default={},
        secret=True,
    ),
    Option(
        "awx_email",
        "dict",
        """
        The same by e-mail: C(host), C(sender), C(recipients) (a list), and optionally C(port), C(username),
        C(password), C(use_tls), C(use_ssl) and C(timeout).
        """,
        roles=("awx",),
        default={},
        secret=True,
    ),
)
