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
      - Exactly one of O(pools), O(pools_manifest), O(pools_from_cluster) and O(pools_from_history) is needed. No list is an error, and so is an empty one.
      - Every problem of the list is reported at once, before anything is changed.
    type: raw
  pools_dialect:
    description:
      - In which form O(pools) are written, or what O(pools_from_cluster) reads. A manifest says it by itself.
      - V(virtpools) is this collection's own form. The others are those that were designed for KubeVirt upstream, and the
        ConfigMap of kubevirt-aie-webhook; they keep their own fields, rules and order.
    type: str
    default: virtpools
    choices:
      - virtpools
      - additionalVirtHandlers
      - virtHandlerPools
      - workerPools
      - WorkerPool
      - kubevirt-aie-launcher-config
  pools_manifest:
    description:
      - A YAML file on the controller that holds the pools. A KubeVirt object with one of the upstream fields, C(WorkerPool) objects, the
        ConfigMap C(kubevirt-aie-launcher-config), or a mapping with C(virtpools_pools).
    type: path
  pools_from_cluster:
    description:
      - Read the pools from objects in the cluster, of the kind that O(pools_dialect) names.
    type: bool
    default: false
  pools_from_history:
    description:
      - Digest of an earlier pool list of this cluster, from M(virtpools.kubevirt.pool_history), which is taken as the list with the options
        O(overlap), O(launcher_backend), O(outdated), O(assign_new_nodes) and O(guard) that it had, and with O(prune=true).
    type: str
  overlap:
    description:
      - What to do with a node that two pools select.
      - V(error) refuses the list and names nodes and pools. V(first_wins) gives it to the pool that comes first.
    type: str
    default: error
    choices:
      - error
      - first_wins
  prune:
    description:
      - Whether a pool that exists but is gone from the list is taken down. By default it is kept, with the nodes it has, and reported.
    type: bool
    default: false
  max_unavailable:
    description:
      - How many nodes of one pool may be without a Ready virt-handler at once because of a run. A number from 1, or a percentage of the
        pool's nodes such as V(10%), rounded down but at least 1.
    type: raw
    default: 1
  allow_skew:
    description:
      - Accept a pool with an image that is tagged with another version than KubeVirt's. By default that is an error.
    type: bool
    default: false
  prepull:
    description:
      - Pull a pool's images to a node by a short-lived pod before the node's handler is taken away.
    type: bool
    default: true
  launcher_backend:
    description:
      - What gives launcher pods their pool's image and nodes.
      - V(admission_policy) is a MutatingAdmissionPolicy, which Kubernetes has on by default from 1.36. V(kyverno) is a MutatingPolicy of Kyverno.
        V(aie_webhook) is the ConfigMap of kubevirt-aie-webhook. V(none) leaves launcher pods alone.
      - V(auto) takes V(admission_policy) where the API server has it, else V(kyverno) where that is installed.
    type: str
    default: auto
    choices:
      - auto
      - admission_policy
      - kyverno
      - aie_webhook
      - none
  outdated:
    description:
      - KubeVirt calls every VM with a pool's launcher image outdated, and migrates or restarts it for ever when
        C(workloadUpdateMethods) of the KubeVirt object say so.
      - V(refuse) refuses pools with launcher images while they do.
      - V(correct) installs a second policy that keeps KubeVirt from calling VMs with a current pool image outdated. It changes
        a status field that virt-controller writes.
    type: str
    default: refuse
    choices:
      - refuse
      - correct
  assign_new_nodes:
    description:
      - Whether a node that joins gets its owner at once, by a policy on the creation of nodes, from the labels that it is created with. A label that
        is set later makes a node drift, which the next run repairs, as it does without this option.
      - Needs C(MutatingAdmissionPolicy), which Kubernetes has on by default from 1.36.
    type: bool
    default: false
  guard:
    description:
      - Whether others than runs are kept from changing the owner label of nodes, and KubeVirt from a virt-handler that runs on pool nodes, by two
        admission policies. A run is whoever may C(assign nodeowners.virtpools.io).
      - Needs C(ValidatingAdmissionPolicy), which Kubernetes has from 1.30.
    type: bool
    default: false
  waves:
    description:
      - Which nodes come first, as a list of entries. Each takes nodes that no earlier entry took, and what is left is the last wave.
      - An entry may have C(name), C(nodes) (a list of names), C(match) (labels) and C(matchExpressions), C(pools) (a list of names), C(per) (a
        label; one wave for every value it has) and C(count) or C(percent) (so many of the nodes, with C(per) of every value's). A node must
        fit all that is said.
      - The waves depend on the pools and on the nodes' labels, not on what is done already.
    type: raw
  removed:
    description:
      - Take pools away instead. Either V(all), or a list of their names. The pools that the cluster records count, so no list of pools is given,
        and those that are not named stay as they are.
      - When none stays, the exclusion and everything else that was made for pools goes, too.
    type: raw
  only:
    description:
      - Bring these nodes back to what an earlier list makes of them, O(pools_from_history), or (O(removed=all)) to the primary, and leave all other nodes
        as they are. For a wave of a rollout that failed.
      - A DaemonSet that the earlier list wants otherwise, and that some of these nodes need, is put back. A pool that loses its last node gets no VM any more.
    type: list
    elements: str
  accept_closed_gates:
    description:
      - Whether what is wrong now counts as known before the run. Waves that an earlier run began, and whose gates have not passed since, need not
        pass them any more.
    type: bool
    default: false
  vms_on_nodes:
    description:
      - What becomes of the VMs on a node before its virt-handler is taken away. The nodes of a batch are dealt with together, after their images
        were pulled.
      - V(leave) leaves them where they are. Guests go on without a virt-handler; they cannot be stopped or migrated until the next one is Ready.
      - V(migrate) live-migrates them. Nodes are then handed over one at a time, whatever O(max_unavailable) says, since VMs would move among those
        of a batch.
      - V(wait) waits for them to end.
      - VMs get the launcher image that the policy gives them at that moment. A pool that is new is not mapped before its first nodes are Ready,
        and one that goes is not any more.
    type: str
    default: leave
    choices:
      - leave
      - migrate
      - wait
  unmovable:
    description:
      - What becomes of VMs that cannot be migrated, with O(vms_on_nodes=migrate). KubeVirt says so, they are paused or do not run yet, or the
        virt-handler of their node is not Ready.
      - V(leave) leaves them where they are, V(wait) waits for them to end before any VM of the batch is migrated, and with V(fail) the module fails.
    type: str
    default: leave
    choices:
      - leave
      - wait
      - fail
"""
