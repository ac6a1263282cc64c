#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

# Writes what virt-handler reads about the node's CPU. On a machine without the extensions for KVM, that is what QEMU emulates.
set -eu
virtqemud -d
type=qemu
if [ -e /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then type=kvm; fi
cd /var/lib/kubevirt-node-labeller
virsh domcapabilities --machine q35 --arch x86_64 --virttype $type > virsh_domcapabilities.xml
virsh hypervisor-cpu-baseline --machine q35 --arch x86_64 --virttype $type \
    --features virsh_domcapabilities.xml > supported_features.xml
virsh capabilities > capabilities.xml
