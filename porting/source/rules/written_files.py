"""Files that a training writes: checkpoints of what cannot be kept, and files that every process writes."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List

from porting.diagnostics import Finding
from porting.source.facts import Call, Kind
from porting.source.rules.guards import is_of_one_rank
from porting.source.rules.names import joins_processes, name_last
from porting.source.rules.reading import Reading

__all__ = ["find_pickled_models", "find_shared_files"]


def find_pickled_models(reading: Reading) -> Iterator[Finding]:
    """K005 and K006: a checkpoint holds the model itself, or the port."""
    for call in reading.facts.calls:
        if name_last(call.name) == "save" and call.name.startswith("torch.") and call.arguments:
            kinds = {thing.kind for thing in call.arguments[0]}
            if Kind.PORT in kinds:
                yield reading.report("K006", call.place)
            elif Kind.MODULE in kinds:
                yield reading.report("K005", call.place)


_OF_ENVIRONMENT = re.compile(r"[\"'](\w*_)?(RANK|WORLD_SIZE|PROCID|LOCAL_RANK)[\"']")
_LOG_FILES = re.compile(
    r"logging\.(\w+\.)?\w*FileHandler|(torch\.utils\.tensorboard|tensorboardX)\.(\w+\.)*SummaryWriter"
    r"|numpy\.save(z|txt)?|loguru\.logger\.add|\.(write_text|write_bytes|to_csv)"
)
_OWN_NAME = r"rank|instance|process|worker|node|host|pid|replica"


def find_shared_files(reading: Reading) -> Iterator[Finding]:
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
        is_of_all = not all(is_of_one_rank(guards) for guards, _ in ways)
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
    words = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(call.node)}
    named = sorted(word for word in words if isinstance(word, str) and word)
    if any(re.search(_OWN_NAME, word, re.IGNORECASE) for word in named):
        return True
    assigned = re.compile(rf"\s*(self\.)?({'|'.join(map(re.escape, named))})\s*=(?!=).*({_OWN_NAME})", re.IGNORECASE)
    return any(assigned.match(line) for line in reading.read_lines(call.place.file))
