# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that say which pools there are to be, and how they are rolled out."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  pools:
    description:
      - The pools, in order, as a list of dictionaries. The documentation of the collection (C(docs/pools.md)) describes every field.
      - Exactly one of O(pools), O(pools_manifest), O(pools_from_cluster) and O(pools_from_history) is needed. A missing or empty list
        is an error.
      - All problems of the list are reported together, before anything is changed.
    type: raw
  pools_dialect:
    description:
      - The form in which O(pools) are written, or which O(pools_from_cluster) reads. A manifest shows its form by itself.
      - V(virtpools) is this collection's own form. The others were designed for KubeVirt upstream, or are the ConfigMap of kubevirt-aie-webhook.
        They keep their own fields, rules and order.
    type: str
    choices:
      - virtpools
      - additionalVirtHandlers
      - virtHandlerPools
      - workerPools
      - WorkerPool
      - kubevirt-aie-launcher-config
    default: virtpools
  pools_manifest:
    description: A YAML file on the controller that holds the pools. This is a KubeVirt object with one of the upstream fields, C(WorkerPool)
      objects, the ConfigMap C(kubevirt-aie-launcher-config), or a mapping with C(virtpools_pools).
    type: path
  pools_from_cluster:
    description: Read the pools from objects in the cluster, of the kind that O(pools_dialect) names.
    type: bool
    default: false
  pools_from_history:
    description: Digest of an earlier pool list of this cluster, from M(virtpools.kubevirt.pool_history). The run brings that list back,
      with the values that O(overlap), O(launcher_backend), O(outdated), O(assign_new_nodes), O(guard) and the options of alerts had,
      and with O(prune=true).
    type: str
  overlap:
    description:
      - What to do with a node that two pools select.
      - V(error) refuses the list and names nodes and pools. V(first_wins) gives the node to the pool that comes first.
    type: str
    choices:
      - error
      - first_wins
    default: error
  prune:
    description: Whether to take down a pool that exists but is no longer in the list. By default it stays, with the nodes it has, and
      the plan reports it.
    type: bool
    default: false
  max_unavailable:
    description: How many nodes of one pool may be without a Ready virt-handler at the same time because of a run. A number from 1,
      or a percentage of the pool's nodes such as V(10%), rounded down but at least 1.
    type: raw
    default: 1
  max_nodes_lost:
    description:
      - How many of its nodes a pool of the list may lose by one run. A number, or a percentage of the pool's nodes, rounded down but
        at least 1. Only V(100%) lets a pool lose all its nodes.
      - A run with a pool that would lose more is refused, since a label may be misspelt in its selector, or missing for some minutes.
        To confirm the loss, set V(100%) for that run. A pool that is removed, pruned or rolled back to another selector needs no such
        confirmation.
    type: raw
    default: 50%
  prepull:
    description: Pull the images that a node needs with a short-lived pod, before the node's handler is removed, and look whether a
      pool's images have all that KubeVirt needs.
    type: bool
    default: true
  launcher_backend:
    description:
      - What gives launcher pods their pool's image and nodes. C(docs/launcher-images.md) describes the choice.
      - V(admission_policy) is a MutatingAdmissionPolicy, which Kubernetes has on by default from 1.36. V(kyverno) is a MutatingPolicy
        of Kyverno. V(aie_webhook) is the ConfigMap of kubevirt-aie-webhook. V(none) leaves launcher pods alone.
      - V(auto) takes V(admission_policy) where the API server has it, else V(kyverno) where that is installed.
    type: str
    choices:
      - auto
      - admission_policy
      - kyverno
      - aie_webhook
      - none
    default: auto
  outdated:
    description:
      - KubeVirt calls every VM with a pool's launcher image outdated. It migrates or restarts such a VM again and again when C(workloadUpdateMethods)
        of the KubeVirt object has C(LiveMigrate) or C(Evict).
      - V(refuse) then refuses pools with launcher images.
      - V(correct) installs a second policy that keeps KubeVirt from calling VMs with a current pool image outdated. It changes a status
        field that virt-controller writes.
    type: str
    choices:
      - refuse
      - correct
    default: refuse
  assign_new_nodes:
    description:
      - Whether a node that joins gets its owner at once. A policy sets the owner while the node is created, from the labels that it
        is created with. A label that is set later makes the node drift, which the next run repairs.
      - Needs C(MutatingAdmissionPolicy), which Kubernetes has on by default from 1.36.
    type: bool
    default: false
  guard:
    description:
      - Whether two admission policies protect the pools. One lets only runs change the owner label of nodes, where a run is any user
        with the right to C(assign nodeowners.virtpools.io). The other keeps KubeVirt from a virt-handler that runs on pool nodes. They
        are on unless this is false, which deletes them.
      - They need C(ValidatingAdmissionPolicy), which Kubernetes has from 1.30. Without that, or without the right to write them, the
        plan has a note and the run does everything else; where this is true, it is refused. C(docs/security.md) describes the policies.
    type: bool
  alerts:
    description:
      - Whether a run writes alerts for Prometheus, as a C(PrometheusRule) named C(virtpools-alerts). They watch the handlers of all
        pools, nodes in transit, the launcher policy, and what the last verification found. Without this option the run deletes it.
      - Needs the Prometheus operator. Where it is not installed, the plan reports this and the run writes no alerts. C(docs/alerts.md)
        describes every alert and the metrics that it needs.
    type: bool
    default: false
  alerts_namespace:
    description: Namespace of the C(PrometheusRule), which must exist. Without it, KubeVirt's namespace.
    type: str
  alerts_labels:
    description: 'Labels of the C(PrometheusRule) by which your Prometheus selects rules, as a mapping such as C({release: monitoring}).
      It always has the labels of KubeVirt''s own C(PrometheusRule).'
    type: raw
  runbook_url:
    description: Address of the page that describes the alerts, without an anchor. Each alert links to its section there. By default
      the page in the collection's repository; give your own copy of it where that cannot be reached.
    type: str
    default: https://github.com/virtpools/virtpools.kubevirt/blob/main/docs/alerts.md
  drain:
    description:
      - What to do with VMs on a node before its virt-handler is removed. The nodes of a batch are drained together, after their images
        were pulled.
      - V(leave) leaves the VMs where they are. Guests go on without a virt-handler, but cannot be stopped or migrated until the next
        one is Ready.
      - V(migrate) live-migrates them. Nodes are then handed over one at a time, regardless of O(max_unavailable), since VMs would move
        between the nodes of a batch.
      - V(wait) waits until they have ended.
      - VMs get the launcher image that the policy gives them at that moment. A new pool is not mapped before its first nodes are Ready,
        and a pool that is being removed is no longer mapped.
    type: str
    choices:
      - leave
      - migrate
      - wait
    default: leave
  on_non_migratable:
    description:
      - What happens, with O(drain=migrate), to VMs that cannot be migrated. Such a VM is not migratable according to KubeVirt, is paused
        because of an error, does not run yet, or is on a node whose virt-handler is not Ready.
      - V(leave) leaves them where they are. V(wait) waits until they have ended, before any VM of the batch is migrated. V(fail) stops
        the run before the batch.
    type: str
    choices:
      - leave
      - wait
      - fail
    default: leave
  waves:
    description:
      - Which nodes come first, as a list of entries. Each entry takes nodes that no earlier entry took. The nodes that are left are
        the last wave.
      - An entry may have C(name), C(nodes) (a list of names), C(match) (labels), C(matchExpressions), C(pools) (a list of names), C(per)
        (a label; one wave for every value of it) and C(count) or C(percent) (how many of the nodes; with C(per), of every wave). A
        node must meet everything that the entry asks for.
      - The waves depend on the pools and on the nodes' labels, never on what is done already.
    type: raw
    default: []
  skip_pending_gates:
    description:
      - A wave that an earlier run began, and whose gates have not passed since, must pass them before the run goes on.
      - V(true) accepts what is wrong now as known before the run, so that these gates need not pass. Use it for one run, after you
        have looked at the problems.
    type: bool
    default: false
  remove_pools:
    description:
      - Remove pools instead. Either V(all), or a list of their names. The pools are those recorded in the cluster, so no pool list
        is given. Pools that are not named stay as they are.
      - When no pool stays, the exclusion and everything else that was created for pools is removed, too.
    type: raw
  keep_history:
    description: Keep the history of pool lists when O(remove_pools) leaves no pool, since pools of the other mode come next.
    type: bool
    default: false
  restore_nodes:
    description:
      - Bring only these nodes back, and leave all others as they are. They go to the owner that an earlier list (O(pools_from_history))
        gives them, or with O(remove_pools=all) to the primary. For a wave of a rollout that failed.
      - When some of these nodes need a DaemonSet as the earlier list has it, it is put back. A pool that loses its last node no longer
        gets VMs.
    type: list
    elements: str
  remove_vms:
    description:
      - What happens to VMs that run on nodes that leave a pool, or with the launcher image of a pool that goes.
      - V(refuse) makes them an error of the plan, unless O(drain) says what happens to VMs on these nodes. V(leave) lets them keep
        running where they are, since a guest lives in its launcher pod. With V(migrate) they are live-migrated first, with V(wait)
        their nodes leave the pool when they have ended.
    type: str
    choices:
      - refuse
      - leave
      - migrate
      - wait
    default: refuse
"""
