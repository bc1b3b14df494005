"""Find where a model that is called in a loop gets its name, so that the port can take its place there.

A name may be a local of the loop's function, a parameter that callers fill, a global, or an attribute of `self`. The
port takes its place before the first statement that uses it, behind all that assign it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Iterator, List, Optional, Sequence, Set, Tuple, Union

from porting.convert.program import Program
from porting.convert.sites import Role
from porting.convert.trees import (
    FUNCTIONS,
    ProgramFile,
    find_argument,
    find_default,
    is_main_guard,
    list_bases,
    list_parameters,
    list_targets,
    write_node,
)
from porting.source.facts import Call

__all__ = ["Binding", "Undecided", "is_looked_at", "is_moved", "list_bindings"]

_DEEPEST = 8
_COPIES = ("copy.copy", "copy.deepcopy", "pickle.dump", "pickle.dumps", "torch.save")
_MOVES = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16")
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
    def anchor(self) -> ast.stmt:
        """The statement that the port stands beside."""
        found = self.before or self.after
        assert found is not None
        return found

    @property
    def key(self) -> Tuple[str, str, int]:
        """What tells bindings apart: the file, the name, and the function."""
        function = self.file.find_function(self.anchor)
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


Traced = Union[Binding, Undecided]


def list_bindings(
    program: Program, file: ProgramFile, call: ast.Call, value: Optional[ast.expr] = None
) -> List[Traced]:
    """Find the bindings of what a call calls, or of another expression as its place understands it."""
    return list(_Tracer(program).trace(file, call.func if value is None else value, call, _DEEPEST))


@dataclass(frozen=True)
class _Tracer:
    """Follows an expression to the names that hold its object, in the functions and classes of a program."""

    program: Program

    def trace(self, file: ProgramFile, value: ast.expr, use: ast.AST, depth: int) -> Iterator[Traced]:
        text = write_node(value)
        if not depth:
            yield _leave(file, use, f"`{text}` is handed on through too many functions")
        elif isinstance(value, ast.Name):
            yield from self._trace_name(file, value.id, use, depth)
        elif isinstance(value, ast.Attribute):
            yield self._bind_attribute(file, value, use)
        else:
            yield _leave(file, use, f"the model is called as `{text}`, which has no name to port")

    def _trace_name(self, file: ProgramFile, name: str, use: ast.AST, depth: int) -> Iterator[Traced]:
        own = scope = file.find_scope(use)
        while True:
            if any(isinstance(one, ast.Global) and name in one.names for one in ast.walk(scope)):
                scope = file.tree
            assigned = list(file.iter_assignments(name, scope))
            aliases = [one for one in assigned if isinstance(one, ast.Assign) and _is_alias(_unwrap(one.value), name)]
            if aliases:
                yield from self.trace(file, _unwrap(aliases[-1].value), aliases[-1], depth - 1)
            elif assigned and scope is own:
                yield _bind_in_scope(file, name, assigned, use)
            elif assigned:
                yield self._bind_outside(file, name, assigned, use, scope)
            elif isinstance(scope, ast.Module):
                yield _leave(file, use, f"nothing in the file assigns `{name}`")
            elif name in list_parameters(scope):
                yield from self._trace_callers(file, scope, name, depth)
            else:
                scope = file.find_scope(scope)
                continue
            return

    def _bind_outside(
        self, file: ProgramFile, name: str, assigned: List[ast.stmt], use: ast.AST, scope: ast.AST
    ) -> Traced:
        """Bind a name that functions in its scope use: before the first call of one of them."""
        calls = [*self._iter_calls_in(file, use, scope, _DEEPEST)]
        if calls:
            return _bind_in_scope(file, name, assigned, min(calls, key=lambda call: call.lineno))
        return Binding(file, name, after=file.find_whole(self._choose_last(assigned, use)))

    def _iter_calls_in(self, file: ProgramFile, use: ast.AST, scope: ast.AST, depth: int) -> Iterator[ast.Call]:
        """Iterate over the calls in a scope that lead to what a function does."""
        function = file.find_function(use)
        for caller, call in self.program.iter_callers(file, function) if function is not None and depth else ():
            if caller is file and file.find_scope(call) is scope:
                yield call
            elif not any(function is one for one in caller.iter_above(call)):
                yield from self._iter_calls_in(caller, call, scope, depth - 1)

    def _choose_last(self, assigned: Sequence[ast.stmt], use: ast.AST) -> ast.stmt:
        """Choose the assignment that the program comes to last before it comes to a use."""
        limit = self.program.get_order(use)
        orders = [(self.program.get_order(one), number) for number, one in enumerate(assigned)]
        before = [pair for pair in orders if not limit or pair[0] < limit]
        return assigned[max(before or orders)[1]]

    def _trace_callers(self, file: ProgramFile, function: ast.AST, name: str, depth: int) -> Iterator[Traced]:
        assert isinstance(function, FUNCTIONS)
        callers = list(self.program.iter_callers(file, function))
        owner = file.find_class(function)
        if not callers and function.name == "__init__" and owner is not None:
            made = [call for call in self.program.facts.calls if call.name.rpartition(".")[2] == owner.name]
            files = [self.program.find_file(call.where.file) for call in made]
            callers = [(one, call.node) for one, call in zip(files, made) if one is not None]
        if not callers:
            yield _leave(file, function, f"`{name}` is a parameter of `{function.name}`, and no call of it was found")
        for caller, call in callers:
            if any(function is one for one in caller.iter_above(call)):  # the recursion of a function
                continue
            given = find_argument(function, call, name)
            if given is not None:
                yield from self.trace(caller, given, call, depth - 1)
            elif find_default(function, name) is None:
                yield _leave(caller, call, f"`{name}` of `{function.name}` is not given by name or place")

    def _bind_attribute(self, file: ProgramFile, value: ast.Attribute, use: ast.AST) -> Traced:
        text, whole = f"self.{value.attr}", write_node(value)
        owner = file.find_class(use) if whole == text else None
        own = [] if owner is None else list(self.program.iter_classes(owner.name))
        known = [*self.program.iter_nodes(ast.ClassDef)]
        names = {one.name for _file, one in own}
        heirs = [pair for pair in known if names & {*list_bases(pair[1])}]
        # those of heirs count where the class leaves it to them
        places = _list_places(own, text) or _list_places(heirs if own else known, text)
        if not places:
            return _leave(file, use, f"nothing assigns `{whole}`")
        if owner is None and len({one_file.find_class(one) for one_file, one in places}) > 1:
            return _leave(file, use, f"several classes have an attribute `{value.attr}`")
        last = self._choose_last([one for _file, one in places], use)
        holder_file = next(one_file for one_file, one in places if one is last)
        holder = holder_file.find_class(last)
        if holder is None or not {"Module", "LightningModule"} & {*list_bases(holder)}:
            return Binding(holder_file, text, after=holder_file.find_whole(last))
        return replace(
            _leave(file, use, f"`{whole}` is a part of the module `{holder.name}`, called by itself"),
            help=f"let `{holder.name}.forward` do what the loop calls, and call the model",
            part_of=holder.name,
        )


def _leave(file: ProgramFile, node: ast.AST, reason: str) -> Undecided:
    remedy = "assign `to_ipu(model, loop='host')` to what is called here"
    return Undecided(file.path, getattr(node, "lineno", 1), reason, remedy)


def _is_alias(value: ast.expr, name: str) -> bool:
    return isinstance(value, (ast.Name, ast.Attribute)) and write_node(value) != name


def _unwrap(value: ast.expr) -> ast.expr:
    """Return what `functools.partial` is given, and any other expression as it is."""
    is_partial = isinstance(value, ast.Call) and write_node(value.func) in ("partial", "functools.partial")
    return value.args[0] if isinstance(value, ast.Call) and is_partial and value.args else value


def _bind_in_scope(file: ProgramFile, name: str, assigned: Sequence[ast.stmt], use: ast.AST) -> Traced:
    statement = file.get_statement(use)
    if any(isinstance(one, (ast.For, ast.AsyncFor)) and name in list_targets(one) for one in assigned):
        return _leave(file, use, f"`{name}` is another model in each turn of a loop")
    early = [one for one in assigned if one.lineno < statement.lineno or one is statement]
    depth = max((file.measure_shared(statement, one) for one in early), default=0)
    if not depth:
        return _leave(file, use, f"`{name}` is assigned behind the place where it is called")
    blocks = file.list_blocks(statement)
    if depth < len(blocks) and is_main_guard(blocks[depth - 1][0][blocks[depth - 1][1]]):
        depth += 1  # where the command line is read
    block, number = blocks[depth - 1]
    return Binding(file, name, before=block[number])


def _list_places(classes: Sequence[Tuple[ProgramFile, ast.ClassDef]], text: str) -> List[Tuple[ProgramFile, ast.stmt]]:
    """List the statements of methods that assign an attribute."""
    methods = [(file, one) for file, owner in classes for one in owner.body if isinstance(one, FUNCTIONS)]
    return [(file, statement) for file, one in methods for statement in file.iter_assignments(text, one)]


def is_looked_at(program: Program, binding: Binding) -> bool:
    """Tell whether the program copies or saves a model as a whole behind its binding, or asks for its type."""
    anchor, name = binding.before or binding.after, binding.name.rpartition(".")[2]
    looks = [call for call in program.facts.calls if call.name in _WHOLE and call.node.args]
    looks = [call for call in looks if _collect_looked_at(program, call) & {name, binding.name}]
    if anchor is not None:
        scope = binding.file.find_function(anchor)
        own = [call for call in looks if binding.file is program.find_file(call.where.file)]
        own = [call for call in own if binding.file.find_function(call.node) is scope]
        looks = [call for call in looks if call not in own or call.node.lineno > anchor.lineno]
    return any("Parallel" not in write_node(call.node) for call in looks)


def is_moved(program: Program, binding: Binding) -> bool:
    """Tell whether the program moves or casts a model behind a binding, as it does to save or to evaluate it."""
    first = program.get_order(binding.anchor, min)
    calls = program.list_facts(*(found.call for found in program.list_sites(Role.FORWARD)))
    models = [one for call in calls for one in call.receiver]
    moves = [call for call in program.facts.list_methods(*_MOVES) if first and call.order > first]
    return any(one in models for call in moves for one in call.receiver)


def _collect_looked_at(program: Program, call: Call) -> Set[str]:
    """Collect what a call looks at: its first argument, or what that holds if it is a dictionary."""
    file, given = program.find_file(call.where.file), call.node.args[0]
    found = [given]
    if file is not None and isinstance(given, ast.Name):
        found += [getattr(one, "value", given) for one in file.iter_assignments(given.id, file.find_scope(call.node))]
    held = [value for one in found if isinstance(one, ast.Dict) for value in one.values]
    return {write_node(one) for one in (given, *held)}
