"""Define operators of this package that torch knows by name, so that they can stand in a traced graph.

Compiled engines use it.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

__all__ = ["register_operator"]


def register_operator(
    namespace: str, schema: str, *, compute: Callable[..., Any], make_empty: Callable[..., Any]
) -> Any:
    """Register an operator for the CPU, and return it.

    `make_empty` returns results without values, for tensors that have none. An existing operator is kept.
    """
    operators: Any = getattr(torch.ops, namespace)
    name = schema.partition("(")[0]
    # It outlives the modules of this package, which may be imported anew: a library takes its operators with it.
    if not hasattr(operators, "_porting_library"):
        operators._porting_library = torch.library.Library(namespace, "FRAGMENT")
    if not hasattr(operators, name):
        operators._porting_library.define(schema)
        operators._porting_library.impl(name, compute, "CPU")
        operators._porting_library.impl(name, make_empty, "Meta")
    return getattr(operators, name).default
