"""Let the first of several instances alone write a program's files and logs, by the calls that write.

A statement that writes is guarded. What is opened or made and used later stays: in the other instances it writes
nowhere, or under a name with the number of the instance.
"""

from __future__ import annotations

import ast
import re
from typing import Optional

from porting.convert.names import get_root
from porting.convert.sharing import Sharing
from porting.convert.trees import ProgramFile, find_keyword, list_bases
from porting.source.facts import Call

__all__ = ["wait_for_files", "write_once"]

_STATEMENTS = re.compile(
    r"torch\.(save|jit\.save|onnx\.export)|torchvision\.utils\.save_image|torchaudio\.save|numpy\.save(z\w*|txt)?"
    r"|safetensors\.torch\.save_\w+|matplotlib\.(\w+\.)*(savefig|imsave)|joblib\.dump|cv2\.imwrite|scipy\.io\.savemat"
    r"|imageio\.(\w+\.)*(imwrite|imsave|mimsave|mimwrite)|shutil\.(copy\w*|move|rmtree)"
    r"|os\.(remove|unlink|rename|replace|removedirs|rmdir|symlink)"
    r"|\.(savefig|save_pretrained|write_text|write_bytes|to_(csv|json|pickle|excel|parquet|hdf))"
)
_FOLDERS = re.compile(r"os\.(mkdir|makedirs)|\.mkdir")
_OPENED = re.compile(r"(builtins|io|codecs|gzip|bz2|lzma)?\.open")
_MODE = re.compile(r"[rwax][bt+]*")
_LOGS = re.compile(r"logging\.(\w+\.)?\w*FileHandler|logging\.basicConfig")
_NUMBERED = re.compile(
    r"(torch\.utils\.tensorboard|tensorboardX)\.(\w+\.)*SummaryWriter|tensorboard_logger\.(configure|Logger)"
)
_RUNS = re.compile(r"wandb\.init")
_RECORDS = re.compile(
    r"loguru\.logger\.add|mlflow\.start_run|neptune\.init\w*|aim\.Run|comet_ml\.Experiment|h5py\.File"
)
_WHY_FOLDER = "each of the instances finds it, or makes it"
_BY_HAND = "write where `porting.this_instance().index` is 0"


def write_once(sharing: Sharing, call: Call) -> None:
    """Plan the edit of a call that writes; any other stays as it is."""
    for pattern, write in _WRITERS.items():
        if pattern.fullmatch(call.name):
            write(sharing, sharing.find_file(call), call)


def _guard(sharing: Sharing, file: ProgramFile, call: Call) -> None:
    statement = file.get_statement(call.node)
    if sharing.is_early(call):
        return
    if not isinstance(statement, ast.Expr) or statement.value is not call.node:
        sharing.leave(call, f"`{call.name}` writes in each instance, as a part of an expression", _BY_HAND)
    elif _shares_line(file, statement):
        sharing.choose(file, call.node, "None")
    else:
        sharing.guard(file, statement)


def _allow_folder(sharing: Sharing, file: ProgramFile, call: Call) -> None:
    """Let the folder be there already, as all instances make it, and look whether it is there."""
    if find_keyword(call.node, "exist_ok") is not None or sharing.is_early(call):
        return
    if call.name == "os.mkdir" and call.node.args:
        name = file.text_of(call.node.args[0])
        sharing.choose(file, call.node, f"os.makedirs({name}, exist_ok=True)", sharing.several, _WHY_FOLDER)
    else:
        sharing.unpack(file, call, '"exist_ok": True', sharing.several, _WHY_FOLDER)


def _open(sharing: Sharing, file: ProgramFile, call: Call) -> None:
    is_method = call.name == ".open"
    mode = find_keyword(call.node, "mode") or next(iter(call.node.args[0 if is_method else 1 :]), None)
    parts = [] if mode is None else [str(one.value) for one in ast.walk(mode) if isinstance(one, ast.Constant)]
    kinds = {one[0] for one in parts if _MODE.fullmatch(one)}
    if mode is None or kinds == {"r"} or is_method and not kinds or sharing.is_early(call):
        return
    if "r" in kinds or not kinds:
        sharing.leave(call, f"whether `{call.name}` opens a file to write it is not known", _BY_HAND)
        return
    # a file that has to be new cannot be the one that is always there
    text = file.text_of(mode).replace("x", "w") if isinstance(mode, ast.Constant) else file.text_of(mode)
    sharing.choose(file, call.node, f"open(os.devnull, {text})")


def _log(sharing: Sharing, file: ProgramFile, call: Call) -> None:
    is_handler = call.name != "logging.basicConfig"
    name = find_keyword(call.node, "filename") or next(iter(call.node.args if is_handler else ()), None)
    if name is None or sharing.is_early(call):
        return
    if is_handler and get_root(call.node.func) == "logging":
        sharing.choose(file, call.node, "logging.NullHandler()")
    else:
        sharing.choose(file, name, "os.devnull")


def _number(sharing: Sharing, file: ProgramFile, call: Call) -> None:
    words = (find_keyword(call.node, one) for one in ("log_dir", "logdir", "comment"))
    name = next(iter(call.node.args), None) or next((one for one in words if one is not None), None)
    number = 'f"-{this_instance().index}"'
    _set(sharing, file, call, name, f'str(WHOLE or "runs/instance") + {number}', f'"comment": {number}')


def _disable(sharing: Sharing, file: ProgramFile, call: Call) -> None:
    _set(sharing, file, call, find_keyword(call.node, "mode"), '"disabled"', '"mode": "disabled"')


def _set(sharing: Sharing, file: ProgramFile, call: Call, given: Optional[ast.expr], value: str, setting: str) -> None:
    """Put a value in the place of what a call is given, or give it a setting where it is given nothing."""
    if sharing.is_early(call):
        return
    if given is None:
        sharing.unpack(file, call, setting)
    else:
        sharing.choose(file, given, value)


def _refuse(sharing: Sharing, _file: ProgramFile, call: Call) -> None:
    sharing.leave(call, f"`{call.name}` begins a record of its own for each instance", _BY_HAND)


_WRITERS = {
    _STATEMENTS: _guard,
    _FOLDERS: _allow_folder,
    _OPENED: _open,
    _LOGS: _log,
    _NUMBERED: _number,
    _RUNS: _disable,
    _RECORDS: _refuse,
}


def _shares_line(file: ProgramFile, statement: ast.stmt) -> bool:
    """Tell whether a statement stands in one line with its `if`, or with another statement."""
    above = next(file.iter_above(statement))
    beside = [one for block, _place in file.list_blocks(statement)[-1:] for one in block if one is not statement]
    return any(getattr(one, "lineno", 0) == statement.lineno for one in (above, *beside))


def wait_for_files(sharing: Sharing) -> None:
    """Let all instances wait for the first one before they load what it may have saved."""
    orders = {call: sharing.program.get_order(call.node) for call in sharing.iter_calls()}
    first = min((order for call, order in orders.items() if call.name == "torch.save" and order), default=0)
    for call, order in orders.items():
        file = sharing.find_file(call)
        owner = file.find_class(call.node)
        # samples are loaded by processes that wait for nobody
        is_data = owner is not None and any("Dataset" in one for one in list_bases(owner))
        if call.name == "torch.load" and 0 < first < order and not is_data:
            code = f"if {sharing.option.test}:\n    sum_over_instances([0])  # the first instance has written it then"
            why = "an instance loads what the first one has written"
            sharing.edits[file.path].insert_before(file.get_statement(call.node), code, "instances", why)
            sharing.require(file, "sum_over_instances", module="porting.adapters")
