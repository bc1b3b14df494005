"""Names of what is called and of what stands in the source, as rules compare them."""

from __future__ import annotations

import ast
import re

from porting.source.facts import Call

__all__ = ["is_in_place", "joins_processes", "name_last", "write_dotted"]


def is_in_place(call: Call) -> bool:
    """Tell whether a call changes what it is called on: `.add_`, but not `.requires_grad_`."""
    is_method = call.name.startswith(".") and call.name.endswith("_") and not call.name.endswith("__")
    return is_method and call.name not in (".requires_grad_", ".unscale_", ".retain_grad_")


_JOINING = re.compile(
    r"torch\.distributed\.(\w+\.)*init_process_group|popdist\.(get\w+|isPopdistEnvSet|init)|horovod\.\w+\.init"
    r"|mpi4py\..*|\.Get_rank|porting\.(\w+\.)*this_instance"
)


def joins_processes(call: Call) -> bool:
    """Tell whether a call asks which of several processes this is, or joins them."""
    return any(_JOINING.fullmatch(name) for name in (call.name, *call.other_names))


def name_last(name: str) -> str:
    """Take the last part of a qualified name, or a method's name.

    >>> name_last("torch.optim.SGD"), name_last(".step")
    ('SGD', 'step')
    """
    return name.rpartition(".")[2]


def write_dotted(node: ast.AST) -> str:
    """Write a name or a chain of attributes as it stands in the source; empty for what is neither.

    >>> write_dotted(ast.parse("self.opt.step", mode="eval").body)
    'self.opt.step'
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{write_dotted(node.value)}.{node.attr}"
    if isinstance(node, (ast.Subscript, ast.Call)):
        return write_dotted(node.value if isinstance(node, ast.Subscript) else node.func)
    return ""
