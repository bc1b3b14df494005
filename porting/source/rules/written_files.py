"""Judge the files that a training writes.

A checkpoint may hold what cannot be kept, and several processes may write the same file.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Optional, Sequence, Set

from porting.diagnostics import Finding
from porting.source.facts import Call, Kind
from porting.source.files import list_nodes, list_statements
from porting.source.rules.guards import is_of_one_rank, iter_words, mentions
from porting.source.rules.names import joins_processes, name_last, write_dotted
from porting.source.rules.reading import Reading

__all__ = ["iter_pickled_models", "iter_shared_files"]


def iter_pickled_models(reading: Reading) -> Iterator[Finding]:
    """K005 and K006: a checkpoint holds the model itself, which device calls leave as it is, or the port."""
    for call in reading.facts.calls:
        if name_last(call.name) == "save" and call.name.startswith("torch.") and call.arguments:
            kinds = {one.kind for one in call.arguments[0]}
            if Kind.PORT in kinds:
                yield reading.report("K006", call.place)
            elif Kind.MODULE in kinds and not reading.has_device_calls:
                yield reading.report("K005", call.place)


_OF_ENVIRONMENT = re.compile(r"[\"'](\w*_)?(RANK|WORLD_SIZE|PROCID|LOCAL_RANK)[\"']")
_LOG_FILES = re.compile(
    r"logging\.(\w+\.)?\w*FileHandler|(torch\.utils\.tensorboard|tensorboardX)\.(\w+\.)*SummaryWriter"
    r"|numpy\.save(z|txt)?|loguru\.logger\.add|\.(write_text|write_bytes|to_csv)"
)
_OWN_NAME = r"rank|instance|process|worker|node|host|pid|replica"


def iter_shared_files(reading: Reading) -> Iterator[Finding]:
    """K007: each of several processes writes the same file."""
    calls = reading.facts.calls
    joins = [call for call in calls if joins_processes(call)]
    lines = (line for file in reading.files if reading.is_ported for line in reading.read_lines(file))
    if not joins and not any(map(_OF_ENVIRONMENT.search, lines)):
        return
    for call in filter(_writes, calls):
        is_joined = not joins or any(reading.may_meet(join.where, call.where) for join in joins)
        joined = {program for join in joins for program in join.where.programs}
        ways = [way for way in call.where.ways if not joined & call.where.programs or joined & way[1]]
        is_of_all = not all(is_of_one_rank(_list_certain(reading, call, guards)) for guards, _ in ways)
        if is_joined and is_of_all and not _is_own(reading, call):
            yield reading.report("K007", call.place, guess=reading.tell_uncalled(call, joins))


def _writes(call: Call) -> bool:
    if call.name == "torch.save" or _LOG_FILES.fullmatch(call.name):
        return True
    if call.name == "logging.basicConfig":
        return any(word.arg == "filename" for word in call.node.keywords)
    is_method = call.is_method("open") and any(_is_mode(node) for node in call.node.args[:1])
    return is_method or call.name in ("builtins.open", "io.open") and any(map(_is_mode, _list_modes(call)))


def _list_modes(call: Call) -> List[ast.expr]:
    return [*call.node.args[1:2], *(word.value for word in call.node.keywords if word.arg == "mode")]


def _is_mode(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value)[:1] in ("w", "a", "x")


def _is_own(reading: Reading, call: Call) -> bool:
    """Tell whether the file's name says which process writes it, by itself or by a variable that goes into it."""
    values = _list_values(reading.parse(call.place.file), set(iter_words(call.node)))
    return any(map(_names_process, (call.node, *values)))


def _names_process(value: ast.AST) -> bool:
    """Tell whether a variable in an expression says which process it is, or a text that something is put into."""
    formats = [part for part in list_nodes(value) if isinstance(part, ast.JoinedStr)]
    texts = [
        part for part in list_nodes(value) if isinstance(part, ast.Constant) and re.search(r"[%{]", str(part.value))
    ]
    names = [part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in list_nodes(value)]
    written = any(re.search(_OWN_NAME, name, re.IGNORECASE) for name in names)
    return written or mentions((*formats, *texts), _OWN_NAME)


def _list_values(tree: Optional[ast.AST], names: Set[str]) -> List[ast.AST]:
    """List what is assigned to names, and what a function of the file has put into what it returns to them."""
    values: List[ast.AST] = []
    assigned = [node for node in list_statements(tree) if isinstance(node, ast.Assign)] if tree is not None else []
    for node in assigned:
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        for number, target in enumerate(targets):
            if names & {getattr(target, "id", ""), getattr(target, "attr", "")} - {""}:
                values.append(node.value)
                returned = _list_returned(tree, node.value, number)
                read = {name for value in returned for name in iter_words(value)}
                values += [*returned, *(one.value for one in assigned if getattr(one.targets[0], "id", "") in read)]
    return values


def _list_returned(tree: Optional[ast.AST], value: ast.expr, number: int) -> List[ast.expr]:
    """List what the function of the file that an expression calls returns, of a tuple the part of this number."""
    name = name_last(write_dotted(value.func)) if isinstance(value, ast.Call) else ""
    nodes = list_statements(tree) if tree is not None else ()
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)
    body = (part for node in functions for part in list_statements(node))
    returned = [node.value for node in body if isinstance(node, ast.Return) and node.value is not None]
    return [one.elts[number] if isinstance(one, ast.Tuple) and number < len(one.elts) else one for one in returned]


def _list_certain(reading: Reading, call: Call, guards: Sequence[ast.expr]) -> List[ast.expr]:
    """List the conditions around a call, but not on a rank that each instance of a port may have.

    A function that returns 0 where a setting says that nothing is distributed does so in each instance of `poprun`.
    """
    tree = reading.parse(call.place.file) if reading.is_of_poptorch else None
    return [guard for guard in guards if not _is_of_setting(tree, guard)] if tree is not None else list(guards)


def _is_of_setting(tree: ast.AST, guard: ast.expr) -> bool:
    names = {part.id for part in list_nodes(guard) if isinstance(part, ast.Name)}
    returned = [value for value in _list_values(tree, names) if isinstance(value, ast.expr)]
    is_first = any(isinstance(value, ast.Constant) and value.value == 0 for value in returned)
    return is_first and mentions(returned, "Get_rank")
