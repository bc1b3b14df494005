"""Find where `forward` makes tensors without saying where: rules report it, and `porting convert` names a device there.

Both have to mean the same calls.
"""

from __future__ import annotations

import ast
from typing import List

from porting.source.facts import Call, Facts
from porting.source.files import list_nodes
from porting.source.library import NAMES

__all__ = ["list_homeless_calls"]


def list_homeless_calls(facts: Facts) -> List[Call]:
    """List the calls in `forward` that make a tensor and name no device; those whose tensor is moved are left out."""
    calls = [call for call in facts.calls if call.where.in_forward]
    moved = {
        part
        for call in calls
        if isinstance(call.node.func, ast.Attribute) and call.is_method("to", "cuda", "type_as")
        for part in list_nodes(call.node.func.value)
    }
    found = []
    for call in calls:
        module, _, last = call.name.rpartition(".")
        named = {word.arg for word in call.node.keywords}
        if module == "torch" and last in NAMES["factories"] and "device" not in named and None not in named:
            if call.node not in moved and not call.where.function.endswith(".__init__"):
                found.append(call)
    return found
