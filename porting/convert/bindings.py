"""Find where a model that is called in a loop gets its name, so that the port can take its place there.

A name may be a local of the loop's function, a parameter that callers fill, a global, or an attribute of `self`. The
port takes its place before the first statement that uses it, behind all that assign it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Iterator, List, Optional, Sequence, Tuple, Union

from porting.convert.program import Program
from porting.convert.trees import Function, ProgramFile, list_targets

__all__ = ["Binding", "Undecided", "find_argument", "find_bindings", "is_looked_at"]

_DEEPEST = 8
_COPIES = ("copy.copy", "copy.deepcopy", "pickle.dump", "pickle.dumps", "torch.save")
_WHOLE = ("builtins.isinstance", "builtins.type", *_COPIES)


@dataclass(frozen=True, eq=False)
class Binding:
    """A name that holds a model, and the statement of its scope before which it may become a port.

    `follows` is the statement that assigns it last; the port may also stand right behind it.
    """

    file: ProgramFile
    name: str
    before: Optional[ast.stmt] = None
    after: Optional[ast.stmt] = None

    @property
    def key(self) -> Tuple[str, str, int]:
        """What tells bindings apart: the file, the name, and the function."""
        anchor = self.before or self.after
        function = None if anchor is None else self.file.find_function(anchor)
        return self.file.path, self.name, 0 if function is None else function.lineno


@dataclass(frozen=True)
class Undecided:
    """A place that is left as it is: why, and what a person must do.

    `part_of` names the module's class where only a part of a module is called, which may be none of the training.
    """

    path: str
    line: int
    reason: str
    help: str
    part_of: str = ""


def find_bindings(
    program: Program, file: ProgramFile, call: ast.Call, value: Optional[ast.expr] = None
) -> List[Union[Binding, Undecided]]:
    """Find the bindings of what a call calls, or of another expression as its place understands it."""
    return list(_trace(program, file, call.func if value is None else value, call, _DEEPEST))


def _trace(
    program: Program, file: ProgramFile, value: ast.expr, use: ast.AST, depth: int
) -> Iterator[Union[Binding, Undecided]]:
    if not depth:
        yield _leave(file, use, f"`{ast.unparse(value)}` is handed on through too many functions")
    elif isinstance(value, ast.Name):
        yield from _trace_name(program, file, value.id, use, depth)
    elif isinstance(value, ast.Attribute):
        yield from _trace_attribute(program, file, value, use, depth)
    else:
        yield _leave(file, use, f"the model is called as `{ast.unparse(value)}`, which has no name to port")


def _leave(file: ProgramFile, node: ast.AST, reason: str) -> Undecided:
    return Undecided(
        file.path, getattr(node, "lineno", 1), reason, "assign `to_ipu(model, loop='host')` to what is called here"
    )


def _trace_name(
    program: Program, file: ProgramFile, name: str, use: ast.AST, depth: int
) -> Iterator[Union[Binding, Undecided]]:
    scope: ast.AST = file.find_function(use) or file.tree
    is_own = True
    while True:
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in _list_globals(scope):
            scope, is_own = file.tree, False
        assigned = list(file.iter_assignments(name, scope))
        aliases = [one for one in assigned if isinstance(one, ast.Assign) and _is_alias(_unwrap(one.value), name)]
        if aliases and depth:
            last = aliases[-1]
            assert isinstance(last, ast.Assign)
            yield from _trace(program, file, _unwrap(last.value), last, depth - 1)
            return
        if assigned:
            yield (
                _bind_in_scope(file, name, assigned, use)
                if is_own
                else _bind_outside(program, file, name, assigned, use, scope)
            )
            return
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        if name in _list_parameters(scope):
            yield from _trace_callers(program, file, scope, name, depth)
            return
        scope, is_own = file.find_function(scope) or file.tree, False
    yield _leave(file, use, f"nothing in the file assigns `{name}`")


def _is_alias(value: ast.expr, name: str) -> bool:
    return isinstance(value, (ast.Name, ast.Attribute)) and ast.unparse(value) != name


def _unwrap(value: ast.expr) -> ast.expr:
    """Return what `functools.partial` is given, and any other expression as it is."""
    is_partial = isinstance(value, ast.Call) and ast.unparse(value.func) in ("partial", "functools.partial")
    return value.args[0] if isinstance(value, ast.Call) and is_partial and value.args else value


def _list_globals(function: Function) -> List[str]:
    return [name for one in ast.walk(function) if isinstance(one, ast.Global) for name in one.names]


def _list_parameters(function: Function) -> List[str]:
    arguments = function.args
    listed = [*getattr(arguments, "posonlyargs", []), *arguments.args, *arguments.kwonlyargs]
    return [one.arg for one in listed]


def _bind_in_scope(file: ProgramFile, name: str, assigned: List[ast.stmt], use: ast.AST) -> Union[Binding, Undecided]:
    statement = file.get_statement(use)
    if any(isinstance(one, (ast.For, ast.AsyncFor)) and name in list_targets(one) for one in assigned):
        return _leave(file, use, f"`{name}` is another model in each turn of a loop")
    around = file.list_blocks(statement)
    best: Optional[Tuple[int, ast.stmt]] = None
    for one in assigned:
        if one.lineno >= statement.lineno and one is not statement:
            continue
        common = [
            place
            for place, ((block, number), (other, _)) in enumerate(zip(around, file.list_blocks(one)))
            if block is other
        ]
        if common:
            deepest = common[-1]
            block, number = around[deepest]
            if best is None or deepest >= best[0]:
                best = deepest, block[number]
    if best is None:
        return _leave(file, use, f"`{name}` is assigned behind the place where it is called")
    return Binding(file, name, before=best[1])


def _bind_outside(
    program: Program, file: ProgramFile, name: str, assigned: List[ast.stmt], use: ast.AST, scope: ast.AST
) -> Union[Binding, Undecided]:
    """Bind a name that functions in its scope use: before the first call of one of them."""
    calls = [call for call in _iter_calls_in(program, file, use, scope, _DEEPEST)]
    if calls:
        first = min(calls, key=lambda call: call.lineno)
        return _bind_in_scope(file, name, assigned, first)
    return Binding(file, name, after=file.find_whole(_choose_last(program, assigned, use)))


def _iter_calls_in(program: Program, file: ProgramFile, use: ast.AST, scope: ast.AST, depth: int) -> Iterator[ast.Call]:
    """Iterate over the calls in a scope that lead to what a function does."""
    function = file.find_function(use)
    if function is None or not depth:
        return
    for caller, call in program.iter_callers(file, function):
        if caller is file and (file.find_function(call) or file.tree) is scope:
            yield call
        elif not any(function is one for one in caller.iter_above(call)):
            yield from _iter_calls_in(program, caller, call, scope, depth - 1)


def _choose_last(program: Program, assigned: List[ast.stmt], use: ast.AST) -> ast.stmt:
    """Choose the assignment that the program comes to last before it comes to a use."""
    limit = program.get_order(use)
    orders = [(program.get_order(one), number) for number, one in enumerate(assigned)]
    before = [pair for pair in orders if not limit or pair[0] < limit]
    return assigned[max(before or orders)[1]]


def _trace_callers(
    program: Program, file: ProgramFile, function: Function, name: str, depth: int
) -> Iterator[Union[Binding, Undecided]]:
    callers = list(program.iter_callers(file, function))
    if not callers and function.name == "__init__":
        owner = file.find_class(function)
        callers = [] if owner is None else list(_iter_makers(program, owner.name))
    if not callers:
        yield _leave(file, function, f"`{name}` is a parameter of `{function.name}`, and no call of it was found")
    for caller, call in callers:
        if not any(function is one for one in caller.iter_above(call)):  # not the recursion of a function
            given = find_argument(function, call, name)
            if given is None and _has_default(function, name):
                continue
            if given is None:
                yield _leave(caller, call, f"`{name}` of `{function.name}` is not given by name or place")
            else:
                yield from _trace(program, caller, given, call, depth - 1)


def _has_default(function: Function, name: str) -> bool:
    arguments = function.args
    names = [one.arg for one in (*getattr(arguments, "posonlyargs", []), *arguments.args)]
    filled = [one.arg for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value is not None]
    return name in [*names[len(names) - len(arguments.defaults) :], *filled]


def _iter_makers(program: Program, name: str) -> Iterator[Tuple[ProgramFile, ast.Call]]:
    for call in program.facts.calls:
        file = program.find_file(call.where.file)
        if file is not None and call.name.rpartition(".")[2] == name:
            yield file, call.node


def find_argument(function: Function, call: ast.Call, name: str) -> Optional[ast.expr]:
    """Find what a call gives for a parameter of a function; None where that is not said by name or place."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [one.arg for one in (*getattr(function.args, "posonlyargs", []), *function.args.args)]
    is_method = bool(names) and names[0] in ("self", "cls")
    place = names.index(name) - is_method if name in names else -1
    given = call.args[: place + 1]
    if place < 0 or len(given) <= place or any(isinstance(one, ast.Starred) for one in given):
        return None
    return given[place]


def _trace_attribute(
    program: Program, file: ProgramFile, value: ast.Attribute, use: ast.AST, depth: int
) -> Iterator[Union[Binding, Undecided]]:
    text = f"self.{value.attr}"
    owner = file.find_class(use) if isinstance(value.value, ast.Name) and value.value.id == "self" else None
    own = [] if owner is None else list(program.iter_classes(owner.name))
    heirs = [pair for pair in _iter_all_classes(program) if any(_is_base(one, pair[1]) for _file, one in own)]
    # those of heirs count where the class leaves it to them
    places = _list_places(own, text) or _list_places(heirs if own else list(_iter_all_classes(program)), text)
    if not places:
        yield _leave(file, use, f"nothing assigns `{ast.unparse(value)}`")
        return
    if owner is None and len({one_file.find_class(one) for one_file, one in places}) > 1:
        yield _leave(file, use, f"several classes have an attribute `{value.attr}`")
        return
    last = _choose_last(program, [one for _file, one in places], use)
    holder_file = next(one_file for one_file, one in places if one is last)
    holder = holder_file.find_class(last)
    if holder is not None and _is_module(holder):
        yield replace(
            _leave(file, use, f"`{ast.unparse(value)}` is a part of the module `{holder.name}`, called by itself"),
            help=f"let `{holder.name}.forward` do what the loop calls, and call the model",
            part_of=holder.name,
        )
        return
    yield Binding(holder_file, text, after=holder_file.find_whole(last))


def _list_places(classes: Sequence[Tuple[ProgramFile, ast.ClassDef]], text: str) -> List[Tuple[ProgramFile, ast.stmt]]:
    """List the statements of methods that assign an attribute."""
    return [
        (file, statement)
        for file, one in classes
        for function in one.body
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in file.iter_assignments(text, function)
    ]


def _iter_all_classes(program: Program) -> Iterator[Tuple[ProgramFile, ast.ClassDef]]:
    for file in program.files.values():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                yield file, node


def _is_base(base: ast.ClassDef, heir: ast.ClassDef) -> bool:
    return any(ast.unparse(one).rpartition(".")[2] == base.name for one in heir.bases)


def is_looked_at(program: Program, binding: Binding) -> bool:
    """Tell whether the program copies or saves a model as a whole behind its binding, or asks for its type."""
    anchor, name = binding.before or binding.after, binding.name.rpartition(".")[2]
    looks = [call for call in program.facts.calls if call.name in _WHOLE and call.node.args]
    looks = [call for call in looks if ast.unparse(call.node.args[0]) in (name, binding.name)]
    if anchor is not None:
        scope = binding.file.find_function(anchor)
        own = [call for call in looks if binding.file is program.find_file(call.where.file)]
        own = [call for call in own if binding.file.find_function(call.node) is scope]
        looks = [call for call in looks if call not in own or call.node.lineno > anchor.lineno]
    return any("Parallel" not in ast.unparse(call.node) for call in looks)


def _is_module(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] in ("Module", "LightningModule") for base in node.bases)
