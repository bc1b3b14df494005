"""Plan the conversion of a program: which style it takes, the edits of each file, and what is left to a person.

The command shows the plan, proves it on a copy of the project, and writes it.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from porting.convert.bindings import Undecided
from porting.convert.cuda import free_of_cuda
from porting.convert.device_option import DeviceOption, add_device_option
from porting.convert.editing import Edit, EditError, FileEdits, make_diff
from porting.convert.forward_devices import follow_tensors
from porting.convert.idiomatic import choose_option, port_steps
from porting.convert.instances import refuse_instances, share_out
from porting.convert.minimal import port_models
from porting.convert.program import Program, read_program
from porting.convert.sites import Site
from porting.convert.sources.chainer import is_of_chainer, list_chainer_lines
from porting.convert.sources.poptorch import is_of_poptorch, port_executors
from porting.convert.sources.trainers import port_trainers
from porting.diagnostics import join_names

__all__ = ["INTEGRATION", "PLAIN", "POPTORCH", "STYLES", "Conversion", "plan_conversion"]

Planner = Callable[[Program, DeviceOption, Dict[str, FileEdits]], List[Undecided]]

STYLES: Mapping[str, Planner] = MappingProxyType({"idiomatic": port_steps, "minimal": port_models})
"""How a program may be converted, by the words of `--style`."""


INTEGRATION = "integration"
"""The style of a program whose loop is a library's."""

CHAINER = "chainer"
"""The style of a program that is for a person to write: every line of Chainer's is told with what takes its place."""

POPTORCH = "poptorch"
"""The style of a program that was a port before, by the vendor's own executors."""

PLAIN = "plain"
"""The style of a project whose port was taken out."""


_ON_HOST = "a loop on the host joins no gradients over instances"
_NOT_SHARED = "several instances need a port that makes the steps: `--style minimal` goes without `--instances`"
_OF_POPTORCH = "the program's own options say what several instances do"
_OF_LIBRARY = "the loop is a library's, and so are its samples and files"
_ONE_PROCESS = "a port trains in one process; its replicas, `PortOptions(replicas=)`, share each batch"


@dataclass
class Conversion:
    """What becomes of a project: new texts by path, the edits behind them, and what could not be decided."""

    root: str
    script: str
    arguments: Sequence[str]
    style: str
    option: DeviceOption
    edits: List[Edit] = field(default_factory=list)
    left: List[Undecided] = field(default_factory=list)
    changed: Dict[str, bytes] = field(default_factory=dict)
    """The new text of each file that changes, by its path below the root; `before` has the old ones."""
    notes: List[str] = field(default_factory=list)
    """What a reader has to know besides, such as why another style was not taken."""
    before: Dict[str, bytes] = field(default_factory=dict)
    diffs: List[str] = field(default_factory=list)
    is_shared: bool = False
    """Whether several instances may train it together."""

    @property
    def command(self) -> str:
        """The program's own command line."""
        return shlex.join([self.script, *self.arguments])

    @property
    def launches(self) -> Dict[str, str]:
        """How the converted program is started: on the simulator, on IPUs, and in several processes."""
        if self.style == PLAIN:
            return {"as plain PyTorch": f"python {self.command}"}
        if self.style == POPTORCH:
            return {"on a laptop": f"PORTING_DEVICE=sim python {self.command}", "on an IPU": f"python {self.command}"}
        on_ipus = shlex.join([self.script, *self.arguments, *self.option.make_arguments("ipu")])
        found = {
            "on a laptop": "python " + shlex.join([self.script, *self.arguments, *self.option.make_arguments("sim")]),
            "on an IPU": f"python {on_ipus}",
        }
        if self.is_shared and self.is_whole:
            found["two instances"] = f"poprun --num-instances 2 --num-replicas 2 python {on_ipus}"
        if any(b"torch.distributed" in text for text in self.before.values()):
            found["GPUs, as before"] = f"torchrun --nproc-per-node 2 {self.command}"
        return found

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to a person."""
        return not self.left


def plan_conversion(
    root: str,
    script: str,
    arguments: Sequence[str] = (),
    *,
    style: str,
    sites: Optional[Sequence[Site]] = None,
    program: Optional[Program] = None,
    instances: bool = False,
) -> Conversion:
    """Plan the conversion of a script and of what it imports of its project; nothing is run or written.

    `sites` are those that a dry run has shown. `program` is the script as `read_program` has read it, which several
    styles may be planned from. With `instances`, several of them may train the result together.
    """
    program = read_program(root, os.path.join(root, script)) if program is None else program
    if sites is not None:
        program.add_sites(sites)
    edits = {file.path: FileEdits(file, Path(file.path).read_bytes()) for file in program.files.values()}
    if any(one.name.partition(".")[0] == "porting" for one in program.facts.imports):
        made = Conversion(root, script, arguments, style, DeviceOption())
        made.notes.append("it is a port already: `porting check` says what it lacks, if anything")
        return made
    if is_of_chainer(program):
        return Conversion(root, script, arguments, CHAINER, DeviceOption(), left=list_chainer_lines(program))
    if is_of_poptorch(program):
        # it has no plain training that an option could choose
        made = Conversion(root, script, arguments, POPTORCH, DeviceOption(words={"sim": (), "ipu": ()}))
        made.left += port_executors(program, edits)
        made.left += [refuse_instances(program, _OF_POPTORCH)] if instances else []
        _finish_files(made, edits)
        return made
    # an enum's test holds in some places alone
    option = (choose_option if style == "idiomatic" and not instances else add_device_option)(program, edits)
    made = Conversion(root, script, arguments, style, option)
    outside = [path for path in edits if os.path.relpath(path, program.root).startswith(os.pardir)]
    if outside:
        names = join_names([os.path.basename(path) for path in outside], most=3)
        made.notes.append(f"it imports {names} from beside the folder: what --out writes has to find them, too")
    follow_tensors(program, edits)
    of_library = port_trainers(program, option, edits)
    made.style = style if of_library is None else INTEGRATION
    made.notes += [_ONE_PROCESS] if option.sets_process else []
    made.left += STYLES[style](program, option, edits) if of_library is None else of_library
    made.left += free_of_cuda(program, option, edits)
    if instances:
        _share(made, program, edits)
    if not any(edit.kind == "port" for file in edits.values() for edit in file.edits):
        return made
    _finish_files(made, edits)
    return made


def _share(made: Conversion, program: Program, edits: Dict[str, FileEdits]) -> None:
    """Plan what several instances need, of a port that is whole and makes the steps."""
    if made.style != "idiomatic":
        made.left.append(refuse_instances(program, _ON_HOST if made.style == "minimal" else _OF_LIBRARY))
    elif made.left:
        made.notes.append(_NOT_SHARED)
    else:
        sharing = share_out(program, made.option, edits)
        made.left += sharing.left
        made.notes += sharing.notes
        made.is_shared = not made.left


def _finish_files(made: Conversion, edits: Dict[str, FileEdits]) -> None:
    for path, file in edits.items():
        _finish_file(made, path, file)


def _finish_file(made: Conversion, path: str, file: FileEdits) -> None:
    try:
        after = file.apply()
    except EditError as error:
        made.left.append(Undecided(path, file.edits[0].line, str(error), "make this edit by hand"))
        return
    if after != file.text:
        name = os.path.relpath(os.path.realpath(path), os.path.realpath(made.root))
        if name.startswith(os.pardir + os.sep):
            reason = "the file lies outside of the folder that is converted"
            made.left.append(Undecided(path, file.edits[0].line, reason, "convert a folder that has all files"))
            return
        made.edits += file.edits
        made.changed[name], made.before[name] = after, file.text
        made.diffs.append(make_diff(file.text, after, name))
