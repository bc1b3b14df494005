"""Walk the modules of a program when they are first imported, and name libraries.

Nothing of a library is walked.
"""

from __future__ import annotations

import ast
import functools
from typing import List, Optional, Sequence

from porting.source.library import read_name_rows
from porting.source.project import Module
from porting.source.walk.values import UNKNOWN, External, Object, Value, join
from porting.source.walk.walk import Flow, Frame, Walk

__all__ = ["execute_import", "execute_import_from", "import_by_name", "import_computed", "walk_module"]


def execute_import(walk: Walk, node: ast.Import) -> None:
    """Walk `import a.b as c`."""
    for alias in node.names:
        _record_import(walk, node, alias.name)
        modules = walk.project.resolve_import(alias.name, walk.frame.module)
        root = alias.name.partition(".")[0]
        value: Value = (External(alias.name if alias.asname else root),)
        if modules:
            values = _give_chain(walk, modules)
            value = values[-1 if alias.asname else 0]
        name = alias.asname or root
        walk.store.write(_get_scope(walk, name), name, value)


def execute_import_from(walk: Walk, node: ast.ImportFrom) -> None:
    """Walk `from a import b as c`, `from . import b` and `from a import *`."""
    name = node.module or ""
    modules = walk.project.resolve_import(name, walk.frame.module, node.level)
    module = modules[-1] if modules else None
    _record_import(walk, node, "." * node.level + name)
    _give_chain(walk, modules)
    for alias in node.names:
        if alias.name == "*":
            _import_all(walk, module, name)
            continue
        bound = alias.asname or alias.name
        value = _find_name(walk, module, alias.name)
        if value is None and module is None and not node.level:
            value = (External(f"{name}.{alias.name}"),)
        walk.store.write(_get_scope(walk, bound), bound, value or UNKNOWN)


def import_by_name(walk: Walk, name: str) -> Value:
    """Give the module that `importlib.import_module(name)` returns; a name that starts with dots is relative."""
    stem = name.lstrip(".")
    modules = walk.project.resolve_import(stem, walk.frame.module, len(name) - len(stem))
    if modules:
        return _give_chain(walk, modules)[-1]
    return (External(stem),) if stem == name else UNKNOWN


def import_computed(walk: Walk) -> Value:
    """Give the modules that an import of a computed name may mean: those of its pattern, else of the tables."""
    own = walk.project.follow_imports(walk.frame.module).computed
    modules = own or [
        module
        for importer in list(walk.project.modules.values())
        for module in walk.project.follow_imports(importer).computed
    ]
    return join(*[_give_module(walk, module) for module in dict.fromkeys(modules)])


def _give_chain(walk: Walk, modules: Sequence[Module]) -> List[Value]:
    """Give `a`, `a.b` and `a.b.c`, each an attribute of the one before as soon as it is imported."""
    values = [_give_module(walk, module) for module in modules]
    for package, module, value in zip(modules, modules[1:], values[1:]):
        walk.store.write(walk.globals[package], module.name.rpartition(".")[2], value)
    return values


def _find_name(walk: Walk, module: Optional[Module], name: str) -> Optional[Value]:
    if module is None:
        return None
    value = walk.store.read(walk.globals[module], name)
    if value is None and module.folders:
        inner = walk.project.resolve_import(name, module, 1)
        value = _give_chain(walk, [module, *inner])[-1] if inner else None
    return value


def _import_all(walk: Walk, module: Optional[Module], name: str) -> None:
    if module is None:
        for known in _STARRED.get(name, ()):
            walk.store.write(walk.frame.variables, known, (External(f"{name}.{known}"),))
        return
    for key, value in list(walk.globals[module].items()):
        if not str(key).startswith("_"):
            walk.store.write(walk.frame.variables, key, value)


# what `from a import *` of the libraries brings that programs use
_STARRED = {library: names for library, *names in read_name_rows("starred")}


def _get_scope(walk: Walk, name: str) -> dict:
    return walk.frame.outer_names.get(name, walk.frame.variables)


def _record_import(walk: Walk, node: ast.stmt, name: str) -> None:
    is_guarded = walk.in_try or bool(walk.guards)
    walk.collector.record_import(node, place=walk.place_of(node), name=name, is_guarded=is_guarded, where=walk.where)


def _give_module(walk: Walk, module: Module) -> Value:
    if module not in walk.modules:
        walk_module(walk, module, is_main=False)
    return (walk.modules[module],)


def walk_module(walk: Walk, module: Module, *, is_main: bool) -> None:
    """Walk the top level of a module, once; what stands under its main guard comes later where it is imported."""
    variables = walk.globals.setdefault(module, {})
    walk.modules[module] = Object(variables=variables)
    context = {"guards": (), "loops": (), "in_forward": False, "loop_exits": [], "is_main": is_main, "flow": Flow.ON}
    for unit in module.units:
        with walk.inside(Frame(unit=unit, module=module, variables=variables), **context):
            walk.attempt(functools.partial(walk.run, unit.tree.body))
