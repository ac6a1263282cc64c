# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Variables that choose a cluster, in a play that does not pass them on to modules."""

from __future__ import annotations

import typing as t

FOR_ALL = "group/virtpools.kubevirt.all"

_CLUSTER = {"virtpools_kubeconfig": "kubeconfig", "virtpools_context": "context"}
"""The variables that choose a cluster, with the options of modules that they are for."""


def lost(variables: t.Mapping[str, t.Any], passed: t.Container[str], render: t.Callable[[t.Any], t.Any]) -> list[str]:
    """A sentence for each variable that is set and not passed on.

    :param passed: the options that modules get.
    :param render: renders a variable, which may be an expression whose value is empty.
    """
    return [
        f"{variable} is set, but this play does not pass it on, so another cluster would be used; add to it "
        f'module_defaults: {{{FOR_ALL}: {{{option}: "{{{{ {variable} }}}}"}}}}.'
        for variable, option in _CLUSTER.items()
        if option not in passed and variables.get(variable) and render(variables[variable])
    ]
