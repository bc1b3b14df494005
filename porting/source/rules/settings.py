"""Judge imports, options and settings that are asked for and not there, or there and not applied."""

from __future__ import annotations

import ast
import re
from typing import Iterable, Iterator, List, Optional, Set

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Import, Kind
from porting.source.files import list_nodes
from porting.source.library import TENSOR_KINDS
from porting.source.rules.guards import mentions, requires_port
from porting.source.rules.names import joins_processes, name_last, write_dotted
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, rule

__all__ = [
    "iter_lonely_options",
    "iter_swallowed_imports",
    "iter_unapplied_precision",
    "iter_unguarded_imports",
    "iter_unknown_settings",
]

_VENDORS = ("poptorch", "popdist")


def _list_vendor_imports(reading: Reading) -> List[Import]:
    return [one for one in reading.facts.imports if one.name.partition(".")[0] in _VENDORS]


@rule(Programs.PORTED)
def iter_unguarded_imports(reading: Reading) -> Iterator[Finding]:
    """D010: PopTorch is imported always, in a program that also runs without it."""
    ports = [port for port in reading.ports if port.call is not None]
    if not ports or not all(port.call is not None and requires_port(port.call.where.guards) for port in ports):
        return
    certain = [one for one in _list_vendor_imports(reading) if not one.is_guarded and not one.where.function]
    files = {one.place.file for one in certain}
    if not any(call.place.file in files and _is_written_for_ports(call) for call in reading.facts.calls):
        for place in dict.fromkeys(one.place for one in certain):
            yield reading.report("D010", place)


def _is_written_for_ports(call: Call) -> bool:
    """Tell whether a model calls PopTorch however it is called, and not only where it is given a loss or labels."""
    may_lack = any(isinstance(part, ast.Constant) and part.value is None for part in _walk_all(call.where.guards))
    return call.where.in_forward and call.name.startswith("poptorch.") and not may_lack


def _walk_all(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (part for node in nodes for part in list_nodes(node))


def iter_swallowed_imports(reading: Reading) -> Iterator[Finding]:
    """D011: the handler of a failed import does nothing, and the name is used."""
    seen: Set[Place] = set()
    for one in _list_vendor_imports(reading):
        tree = reading.parse(one.where.file) if one.is_guarded else None
        for node in list_nodes(tree) if tree is not None else ():
            if not isinstance(node, ast.Try) or not _imports_at(node, one.place.line):
                continue
            for handler in node.handlers:
                place = Place(one.where.file, handler.lineno, handler.col_offset + 1)
                if _does_nothing(handler) and _is_used(tree, node, one) and place not in seen:
                    seen.add(place)
                    yield reading.report("D011", place)


def _imports_at(node: ast.Try, line: int) -> bool:
    imports = (ast.Import, ast.ImportFrom)
    return any(isinstance(part, imports) and part.lineno == line for part in node.body)


def _does_nothing(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler leaves no trace in the program: it passes, or only says something."""
    return all(isinstance(part, (ast.Pass, ast.Expr)) and not _leaves(part) for part in handler.body)


def _leaves(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Call) and name_last(write_dotted(value.func)) in ("exit", "_exit", "skip")


def _is_used(tree: Optional[ast.AST], within: ast.AST, one: Import) -> bool:
    root = one.name.partition(".")[0]
    inside = {id(part) for part in list_nodes(within)}
    names = (part for part in list_nodes(tree) if isinstance(part, ast.Name)) if tree is not None else ()
    return any(name.id == root and id(name) not in inside for name in names)


# -------------------------------------------------------------------------------- instances

_CONFIGURED = re.compile(r"popdist\.poptorch\.Options|\.configureProcessId|\.disable|\.setExecutionStrategyX")


def iter_lonely_options(reading: Reading) -> Iterator[Finding]:
    """D017: several instances train, each with options of its own."""
    joins = [call for call in reading.facts.calls if joins_processes(call)]
    joined = {call.place.file for call in joins}
    if not joined or any(_CONFIGURED.fullmatch(call.name) for call in reading.facts.calls):
        return
    options = [
        call for call in reading.facts.calls if re.fullmatch(r"(poptorch|porting\.simulator)\.Options", call.name)
    ]
    beside = [call for call in options if call.place.file in joined]
    for call in beside or options:
        if not mentions(call.where.guards, r"popdist") and any(
            reading.may_meet(one.where, call.where) for one in joins
        ):
            yield reading.report("D017", call.place, guess=reading.tell_uncalled(call, joins))


# -------------------------------------------------------------------------------- precision

_PRECISION = r"^(--)?(precision|amp|fp16|half|bf16|use_amp|mixed_precision|dtype)$"


@rule(Programs.PORTED, in_host_loops=False)
def iter_unapplied_precision(reading: Reading) -> Iterator[Finding]:
    """P012: the program has a setting for the precision that its port does not know."""
    if _applies_precision(reading) or not _asks_for_precision(reading):
        return
    port = next((port for port in reading.training_ports if port.place is not None), None)
    if port is not None and port.place is not None:
        yield reading.report("P012", port.place)


def _asks_for_precision(reading: Reading) -> bool:
    """Tell whether the program has a setting for the precision: an option, a field, an entry, or what it compares."""
    options = reading.facts.list_methods("add_argument", "option")
    if any(mentions((node,), _PRECISION) for call in options for node in call.node.args):
        return True
    trees = (reading.parse(file) for file in reading.files)
    return any(_is_setting(node) for tree in trees if tree is not None for node in list_nodes(tree))


def _is_setting(node: ast.AST) -> bool:
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and bool(re.match(_PRECISION, node.target.id))
    if isinstance(node, ast.Dict):
        return any(isinstance(key, ast.Constant) and re.match(_PRECISION, str(key.value)) for key in node.keys)
    tests = [node.test] if isinstance(node, (ast.If, ast.IfExp)) else [node] if isinstance(node, ast.Compare) else []
    parts = (part for test in tests for part in list_nodes(test))
    return any(map(_names_setting, parts))


def _names_setting(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return bool(re.match(_PRECISION, node.attr) and _SETTINGS.search(write_dotted(node.value)))
    return isinstance(node, ast.Constant) and bool(re.match(_PRECISION, str(node.value)))


_SETS_PRECISION = re.compile(r"(setPartialsType|enableFloat16|set_default_dtype)$|^poptorch\.autocast|\.Precision\.")


def _applies_precision(reading: Reading) -> bool:
    calls = (call for call in reading.facts.calls if not call.is_on(Kind.PORT) and _sets_precision(call))
    return any(not reading.is_excluded(call.where) for call in calls)


def _sets_precision(call: Call) -> bool:
    of_port = call.is_on(Kind.OPTIONS) or name_last(call.name) in ("PortOptions", "to_ipu")
    if of_port and {"precision", "*"} & {word.arg or "*" for word in call.node.keywords}:
        return True
    if call.is_method("half", "bfloat16") and not call.is_on(*TENSOR_KINDS):
        return True
    given = _list_given(call.node) if call.is_method("to") and call.is_on(Kind.MODULE) else ()
    if any(mentions((node,), r"dtype|half|float16|precision") for node in given):
        return True
    return any(_SETS_PRECISION.search(name) for name in (call.name, f"{write_dotted(call.node.func)}."))


def _list_given(node: ast.Call) -> List[ast.AST]:
    return [*node.args, *node.keywords]


# -------------------------------------------------------------------------------- settings

_OF_PORTS = re.compile(r"replica|(^|_)ipus?($|_)|instance|device_iter|accum|pipeline|popdist", re.IGNORECASE)


@rule(Programs.PORTED)
def iter_unknown_settings(reading: Reading) -> Iterator[Finding]:
    """P014: what only a port needs is read from a setting that nothing in the program defines."""
    if not reading.ports or _has_settings_elsewhere(reading):
        return
    text = [line for file in reading.files for line in reading.read_lines(file)]
    known = {"parse_args", *(match[1] for line in text for match in [_DEFINED.match(line)] if match)}
    files = dict.fromkeys(one.where.file for one in _list_vendor_imports(reading))
    for file in files:
        tree = reading.parse(file)
        for node in _iter_settings(tree) if tree is not None else ():
            if not any(_defines(line, node.attr) or _reads_elsewhere(line, node, known) for line in text):
                place = Place(file, node.lineno, node.col_offset + 1)
                yield reading.report("P014", place, note=f"nothing in the program defines `{node.attr}`")


def _has_settings_elsewhere(reading: Reading) -> bool:
    names = {one.name.partition(".")[0] for one in reading.facts.imports}
    readers = {"yaml", "omegaconf", "hydra", "toml", "tomllib", "ml_collections", "gin", "fire", "json", "configparser"}
    return bool(names & readers) and "dataclasses" not in names


_DEFINED = re.compile(r"\s*(?:def|class)\s+(\w+)")


def _reads_elsewhere(line: str, node: ast.Attribute, known: Set[str]) -> bool:
    """Tell whether a line makes the settings by something that the program does not define."""
    for name in write_dotted(node.value).split("."):
        made = re.search(rf"(?<!\w){name}\s*=\s*([\w.]+)\(", line)
        if made and name_last(made[1]) not in known:
            return True
    return False


_SETTINGS = re.compile(r"(^|\.)_?(args?|opt|config|cfg|conf|flags|settings|hparams|params)($|\.)", re.IGNORECASE)


def _iter_settings(tree: ast.AST) -> Iterator[ast.Attribute]:
    called = {part.func for part in list_nodes(tree) if isinstance(part, ast.Call)}
    for part in list_nodes(tree):
        is_read = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load) and part not in called
        if is_read and isinstance(part, ast.Attribute) and _OF_PORTS.search(part.attr):
            if _SETTINGS.search(write_dotted(part.value)):
                yield part


def _defines(line: str, name: str) -> bool:
    written = re.escape(name)
    flag = rf"--({re.escape(name.replace('_', '-'))}|{written})\b"
    return bool(re.search(rf"(?<!\w){written}\s*(:|=(?!=))|{flag}|['\"]{written}['\"]", line))
