"""Imports: modules of the program are walked when they are first imported, others are names of libraries."""

from __future__ import annotations

import ast
import functools
from typing import Optional

from porting.source.project import Module
from porting.source.walk.values import UNKNOWN, External, Object, Value
from porting.source.walk.walk import Flow, Frame, Walk

__all__ = ["execute_import", "execute_import_from", "walk_module"]


def execute_import(walk: Walk, node: ast.Import) -> None:
    """Walk `import a.b as c`."""
    for alias in node.names:
        _record_import(walk, node, alias.name)
        module = walk.project.find_module(alias.name, walk.frame.module)
        root = alias.name.partition(".")[0]
        if module is None:
            value: Value = (External(alias.name if alias.asname else root),)
        else:
            value = _give_module(walk, module)
        name = alias.asname or root
        if alias.asname is None and root != alias.name and module is not None:
            _bind_dotted(walk, alias.name, value)
        else:
            walk.store.write(_get_scope(walk, name), name, value)


def _bind_dotted(walk: Walk, name: str, value: Value) -> None:
    """Bind the first part of `import a.b` so that `a.b` leads to the module."""
    root, *parts = name.split(".")
    scope = _get_scope(walk, root)
    package = walk.project.find_module(root, walk.frame.module)
    holder: Value = scope.get(root, UNKNOWN)
    if not any(isinstance(item, Object) for item in holder):
        holder = _give_module(walk, package) if package is not None else (Object(),)
    walk.store.write(scope, root, holder)
    for number, part in enumerate(parts):
        owner = next(item for item in holder if isinstance(item, Object))
        is_last = number == len(parts) - 1
        known = owner.cells.get(part, UNKNOWN)
        inner = value if is_last else tuple(item for item in known if isinstance(item, Object)) or (Object(),)
        walk.store.write(owner.cells, part, inner)
        holder = inner


def execute_import_from(walk: Walk, node: ast.ImportFrom) -> None:
    """Walk `from a import b as c`, `from . import b` and `from a import *`."""
    name = node.module or ""
    importer = walk.frame.module
    if node.level:
        module = walk.project.find_relative(name, level=node.level, importer=importer)
    else:
        module = walk.project.find_module(name, importer)
    _record_import(walk, node, "." * node.level + name)
    if module is not None:
        _give_module(walk, module)
    for alias in node.names:
        if alias.name == "*":
            _import_all(walk, module, name)
            continue
        bound = alias.asname or alias.name
        value = _find_name(walk, module, alias.name)
        if value is None and module is None and not node.level:
            value = (External(f"{name}.{alias.name}"),)
        walk.store.write(_get_scope(walk, bound), bound, value or UNKNOWN)


def _find_name(walk: Walk, module: Optional[Module], name: str) -> Optional[Value]:
    if module is None:
        return None
    value = walk.store.read(walk.globals[module], name)
    if value is None and module.is_package:
        inner = walk.project.find_relative(name, level=1, importer=module)
        value = _give_module(walk, inner) if inner is not None else None
    return value


def _import_all(walk: Walk, module: Optional[Module], name: str) -> None:
    if module is None:
        for known in _STARRED.get(name, ()):
            walk.store.write(walk.frame.cells, known, (External(f"{name}.{known}"),))
        return
    for key, value in list(walk.globals[module].items()):
        if not str(key).startswith("_"):
            walk.store.write(walk.frame.cells, key, value)


# what `from a import *` of the libraries brings that programs use
_STARRED = {
    "torch": ("nn", "optim", "utils", "Tensor", "no_grad", "device", "cuda", "tensor", "zeros", "ones", "randn"),
    "torch.nn": ("Module", "Linear", "Conv2d", "Sequential", "ModuleList", "CrossEntropyLoss", "MSELoss", "functional"),
    "torch.optim": ("SGD", "Adam", "AdamW", "RMSprop", "lr_scheduler"),
    "torch.utils.data": ("DataLoader", "Dataset", "Subset", "TensorDataset", "random_split"),
}


def _get_scope(walk: Walk, name: str) -> dict:
    return walk.frame.outer_names.get(name, walk.frame.cells)


def _record_import(walk: Walk, node: ast.stmt, name: str) -> None:
    is_guarded = walk.in_try or bool(walk.guards)
    walk.recorder.record_import(node, place=walk.place_of(node), name=name, is_guarded=is_guarded, where=walk.where)


def _give_module(walk: Walk, module: Module) -> Value:
    if module not in walk.modules:
        walk_module(walk, module, is_main=False)
    return (walk.modules[module],)


def walk_module(walk: Walk, module: Module, *, is_main: bool) -> None:
    """Walk the top level of a module, once; what stands under its main guard comes later where it is imported."""
    cells = walk.globals.setdefault(module, {})
    walk.modules[module] = Object(cells=cells)
    context = {"guards": (), "loops": (), "in_forward": False, "loop_exits": [], "is_main": is_main, "flow": Flow.ON}
    for unit in module.units:
        walk.frames.append(Frame(unit=unit, module=module, cells=cells))
        try:
            with walk.standing(**context):
                walk.attempt(functools.partial(walk.run, unit.tree.body))
        finally:
            walk.frames.pop()
