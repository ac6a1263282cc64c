// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Stands in for the module of this name, which module proxies do not serve.
module kubevirt.io/virt-template-client-go

go 1.24.0

require k8s.io/client-go v0.34.2
