# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What every other room uses: names and kinds of Kubernetes objects, comparing objects, label selectors, CEL text,
findings, and the API rights of each kind of run. It knows the names that pools give to objects, but not what a pool is.
"""
