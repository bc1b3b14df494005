"""Guesses of what a name stands for: by its uses, and as the last resort by what it is called."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Dict, Optional, Sequence, Set

from porting.source.facts import Kind
from porting.source.files import list_nodes
from porting.source.library import list_kinds

__all__ = ["Uses", "find_uses", "guess_kind", "guess_kind_by_name", "is_loss_name", "name_expression"]


@dataclass
class Uses:
    """What is done with each name and attribute of `self` in a scope."""

    methods: Dict[str, Set[str]] = field(default_factory=dict)
    called: Set[str] = field(default_factory=set)


def find_uses(scope: ast.AST, lines: Sequence[str]) -> Uses:
    """Find what is done with the names of a scope, in the functions in it, too; attributes as `self.model`.

    `lines` are those of its file: where none calls a method that tells something, nothing is looked for.
    """
    uses = Uses()
    text = "\n".join(lines[getattr(scope, "lineno", 1) - 1 : getattr(scope, "end_lineno", None)])
    for node in list_nodes(scope) if _TELLING.search(text) else ():
        if isinstance(node, ast.Call):
            uses.called.add(name_expression(node.func))
            if isinstance(node.func, ast.Attribute):
                uses.methods.setdefault(name_expression(node.func.value), set()).add(node.func.attr)
    # of what has no name
    uses.methods.pop("", None)
    return uses


def name_expression(node: ast.AST) -> str:
    """Name a variable or an attribute of one: `model`, `self.model`; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def guess_kind(uses: Uses, name: str) -> Optional[Kind]:
    """Guess what a name stands for by what is done with it; None where that does not tell."""
    methods = uses.methods.get(name, set())
    if methods & {"parameters", "named_parameters", "load_state_dict"} and methods & _MODULE_METHODS:
        return Kind.MODULE
    if methods & {"zero_grad", "add_param_group"} and "step" in methods:
        return Kind.OPTIMIZER
    if methods & {"unscale_"} or {"scale", "step", "update"} <= methods:
        return Kind.SCALER
    if methods & {"parameters", "named_parameters"} or (methods & _MODULE_METHODS and name in uses.called):
        return Kind.MODULE
    if "backward" in methods:
        return Kind.LOSS
    if methods & {"get_last_lr", "get_lr"}:
        return Kind.SCHEDULER
    if methods & {"add_scalar", "add_scalars", "add_image", "add_histogram"}:
        return Kind.WRITER
    return None


_MODULE_METHODS = {"train", "eval", "parameters", "named_parameters", "cuda", "half", "requires_grad_", "zero_grad"}
_TELLING = re.compile(
    rf"\.\s*({'|'.join(sorted(_MODULE_METHODS))}|add_(param_group|scalars?|image|histogram)|unscale_|scale|backward|get_(last_)?lr)\b"
)


def guess_kind_by_name(name: str) -> Optional[Kind]:
    """Guess what a parameter is by the name that people usually give it.

    >>> guess_kind_by_name("train_loader")
    <Kind.LOADER: 'loader'>
    """
    return next(iter(list_kinds("names", name)), None)


def is_loss_name(name: str) -> bool:
    """Tell whether a variable or function is called after a loss.

    >>> is_loss_name("dice_loss"), is_loss_name("lossless")
    (True, False)
    """
    return bool(_LOSS_NAME.search(name))


_LOSS_NAME = re.compile(
    r"(^|_|[a-z](?=L))(loss(es)?|Loss|criterion|objective)(_|\d|$|[A-Z])|(Loss|Criterion)(\d\w?)?$|^err[DG]|^nll$|^bce$|^elbo$"
)
