"""Plan the smallest port: each model that is trained runs on the device, and the loop, its loss and optimizer stay.

Three lines for a model: the import, the choice of the device, and `to_ipu(model, loop="host")` where its name is bound.
"""

from __future__ import annotations

import ast
from typing import Dict, Iterable, List, Optional, Set, Tuple

from porting.convert.bindings import Binding, Undecided, is_looked_at, is_moved, list_bindings
from porting.convert.changing_values import list_changes
from porting.convert.device_option import WHY_ENVIRONMENT, DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.names import collect_reads
from porting.convert.program import Found, Program
from porting.convert.sites import Role
from porting.convert.trees import ProgramFile, list_targets, write_node

__all__ = ["MOST_SHAPES", "import_guarded", "port_models"]

MOST_SHAPES = 8
"""How many shapes of batches a port is compiled for; the last batch of an epoch may be a shorter one."""

_GUARDED_IMPORT = """
try:
    from {module} import {names}
except ImportError:  # without ipu-porting the program trains as before
    {nothing}
"""
_WHY_IMPORT = "without ipu-porting the program trains as before"
_WHY_MODEL = "forward and backward pass run on the device; loss and optimizer stay in the loop"
_WHY_CALLS = "calls of the model, and of its parts, run on the device; loss and optimizer stay in the loop"


_ON_HOST = "call the plain model for it, `port.model`, or under `porting.integrations.calls_on_host()`"


def import_guarded(file: FileEdits, names: Iterable[str], module: str = "porting") -> None:
    """Plan the import of names of this package, without which the program is as before: one of each module."""
    known = file.imported.setdefault(module, set())
    before = _write_import(module, known) if known else ""
    known.update(names)
    file.add_import(_write_import(module, known), why=_WHY_IMPORT, instead=before)


def _write_import(module: str, names: Set[str]) -> str:
    ordered = sorted(names)
    nothing = " = ".join([*ordered, "None"])
    if "PortedModel" in ordered:  # of which nothing is an instance then
        values = ["()" if name == "PortedModel" else "None" for name in ordered]
        nothing = f"{', '.join(ordered)} = {', '.join(values)}"
    return _GUARDED_IMPORT.format(module=module, names=", ".join(ordered), nothing=nothing)


def port_models(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits that let each model of the program's training run on the device; return what is left.

    A model that has no name of its own in the loop, or whose parts are called one by one, stays the object that it is,
    and its calls go to the device from where it is made.
    """
    left = list_changes(program)
    bindings, unnamed = _choose_bindings(program)
    made: Set[Tuple[str, str, int]] = set()
    for found, undecided in unnamed:
        places = [_bind_making(file, call) for file, call in program.iter_makings(found.call)]
        named = [one for one in places if one is not None]
        left += [] if named and len(named) == len(places) else [undecided]
        for binding in named:
            if binding.key not in made:
                made.add(binding.key)
                _insert_calls(edits, binding, option, _name_each(binding))
    kept = [binding for binding in bindings if is_looked_at(program, binding) or is_moved(program, binding)]
    for binding in bindings:
        if binding.key in made:
            continue  # its calls go to the device already
        if binding in kept:
            _insert_calls(edits, binding, option, binding.name)
            continue
        settings = f'loop="host", options=PortOptions(max_executables={MOST_SHAPES}), device={option.device}'
        code = f"if {option.test}:\n    {binding.name} = to_ipu({binding.name}, {settings})"
        _insert(edits[binding.file.path], binding, code, _WHY_MODEL)
        import_guarded(edits[binding.file.path], ["PortOptions", "to_ipu"])
    left += _put_penalties_on_host(program, option, edits, is_ported=bool(bindings) and not made and not kept)
    if not bindings and not made and not left:
        reason = "no call of a model with gradients was found"
        left.append(Undecided(program.main.path, 1, reason, "name the script that trains"))
    return left


def _insert(file: FileEdits, binding: Binding, code: str, why: str) -> None:
    insert = file.insert_after if binding.before is None else file.insert_before
    insert(binding.anchor, code, "port", why)
    file.add_import("import os", why=WHY_ENVIRONMENT)


def _insert_calls(edits: Dict[str, FileEdits], binding: Binding, option: DeviceOption, model: str) -> None:
    """Send the calls of a model, or of each of a collection, to the device."""
    loop = "" if model == binding.name else f"    for each_model in {model}:\n    "
    call = f"    DeviceCalls({'each_model' if loop else model}, device={option.device}).install()"
    _insert(edits[binding.file.path], binding, f"if {option.test}:\n{loop}{call}", _WHY_CALLS)
    import_guarded(edits[binding.file.path], ["DeviceCalls"], "porting.integrations")


def _name_each(binding: Binding) -> str:
    """Name what a statement has made: a model, or the models of a list or dictionary."""
    value = getattr(binding.after, "value", None)
    if binding.after is None or list_targets(binding.after) != [binding.name]:
        return binding.name
    if isinstance(value, (ast.Dict, ast.DictComp)):
        return f"{binding.name}.values()"
    return f"list({binding.name})" if isinstance(value, (ast.List, ast.ListComp, ast.Tuple)) else binding.name


def _put_penalties_on_host(
    program: Program, option: DeviceOption, edits: Dict[str, FileEdits], *, is_ported: bool
) -> List[Undecided]:
    """Let the plain model compute what gradients of gradients are asked of, as no device does; return what is left."""
    left: List[Undecided] = []
    for call in program.facts.calls:
        words = {one.arg: one.value for one in call.node.keywords}
        file = program.find_file(call.where.file)
        is_higher = "create_graph" in words and write_node(words["create_graph"]) != "False"
        if call.name != "torch.autograd.grad" or file is None or not is_higher or not call.where.programs:
            continue
        outputs = words.get("outputs", call.node.args[0] if call.node.args else call.node)
        scope = file.find_function(call.node) or file.tree
        made = [one for name in collect_reads(outputs) for one in file.iter_assignments(name, scope)]
        inside = {id(node) for one in (outputs, *made) for node in ast.walk(one)}
        models = [found for found in program.list_sites(Role.FORWARD) if id(found.call) in inside]
        for found in models if is_ported else ():
            why = "gradients of gradients are computed by the plain model, which has the same weights"
            edits[file.path].replace(found.call.func, f"(WHOLE.model if {option.test} else WHOLE)", "port", why)
            edits[file.path].add_import("import os", why=WHY_ENVIRONMENT)
        if not models or not is_ported:
            reason = "a gradient of a gradient is asked for, which no device computes"
            left.append(Undecided(file.path, call.node.lineno, reason, _ON_HOST))
    return left


def _bind_making(file: ProgramFile, call: ast.Call) -> Optional[Binding]:
    """Bind what a call makes, where its statement gives it one name: `a, b = Net(), Net()` gives each its own."""
    statement = file.get_statement(call)
    targets = list_targets(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else []
    parts = getattr(getattr(statement, "value", None), "elts", [])
    if len(targets) == len(parts) > 1:
        targets = [name for name, part in zip(targets, parts) if part is call]
    return Binding(file, targets[0], after=_find_choice(file, statement, targets[0])) if len(targets) == 1 else None


def _find_choice(file: ProgramFile, statement: ast.stmt, name: str) -> ast.stmt:
    """Find the outermost `if` around what makes a model whose other branches make one of the same name."""
    chosen, makings = statement, [*file.iter_assignments(name, file.find_scope(statement))]
    for above in file.iter_above(statement) if isinstance(getattr(statement, "value", None), ast.Call) else ():
        if not isinstance(above, ast.If):
            break
        inside = {*ast.walk(above)} - {*ast.walk(chosen)}
        chosen = above if any(one in inside for one in makings) else chosen
    return chosen


def _choose_bindings(program: Program) -> Tuple[List[Binding], List[Tuple[Found, Undecided]]]:
    """Choose the earliest binding of each name that holds a trained model, in each branch; list the sites without."""
    chosen: List[Binding] = []
    undecided: List[Tuple[Found, Undecided]] = []
    whole: Set[str] = set()
    for found in program.list_sites(Role.FORWARD):
        for one in list_bindings(program, found.file, found.call):
            if isinstance(one, Undecided):
                undecided.append((found, one))
            else:
                whole.add(found.site.name.rpartition(".")[2])
                same = [other for other in chosen if other.key == one.key and not _excludes(one, other)]
                if all(one.anchor.lineno < other.anchor.lineno for other in same):
                    chosen = [other for other in chosen if other not in same] + [one]
    # a part that is called beside the whole model, as a decoder that draws samples, is none of its training
    return chosen, [pair for pair in undecided if pair[1].part_of not in whole]


def _excludes(one: Binding, other: Binding) -> bool:
    """Tell whether two bindings stand in branches of an `if` of which a run takes only one."""
    for above in one.file.iter_above(one.anchor):
        if isinstance(above, ast.If):
            sides = [{id(node) for part in side for node in ast.walk(part)} for side in (above.body, above.orelse)]
            first, second = ([id(each.anchor) in side for side in sides] for each in (one, other))
            if any(second) and first != second:
                return True
    return False
