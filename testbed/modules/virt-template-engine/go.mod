// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Stands in for the module of this name, which module proxies do not serve. Our programs import nothing of it.
module kubevirt.io/virt-template-engine

go 1.24.0
