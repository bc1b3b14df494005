"""Find places in source files: the user's line that led to a call, or that assigns an attribute."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import os
import sys
import textwrap
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Collection, Iterator, Optional, Tuple

__all__ = ["Place", "caller_place", "find_assignment", "find_raising_frame", "frame_place", "is_user_file"]


@dataclass(frozen=True)
class Place:
    """A span of source: lines and columns count characters from 1, `end_column` is one past the last one.

    Without `column` the whole line is meant; without `end_line` the span ends on the line it starts on.

    >>> str(Place("train.py", 3, 8))
    'train.py:3:8'
    """

    file: str
    line: int
    column: Optional[int] = None
    end_line: Optional[int] = None
    end_column: Optional[int] = None

    def __str__(self) -> str:
        """`file:line:column`, the form editors and terminals can follow."""
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column is not None else "")


def caller_place(skip_internal: bool = True) -> Optional[Place]:
    """Find the innermost line on the stack that the user wrote; None when there is none.

    Frames of this package, of torch and the like, and of the standard library are skipped, save the reference models
    and the recipes, which are code that a user would write. Frames outside of the command only start it.
    `skip_internal=False` gives the caller's own line.

    >>> caller_place(skip_internal=False).line
    1
    """
    frame: Optional[FrameType] = sys._getframe(1)
    library_folders = _list_library_folders()
    while skip_internal and frame is not None and not _is_user_frame(frame, library_folders):
        # the caller of the command is the script that starts it
        frame = None if frame.f_code.co_filename == _COMMAND else frame.f_back
    return frame_place(frame) if frame is not None else None


def frame_place(frame: FrameType) -> Place:
    """Return the span of source that a frame is executing; columns need Python 3.11."""
    return _find_place(frame, instruction=frame.f_lasti, line=frame.f_lineno)


def find_raising_frame(error: BaseException) -> Optional[Tuple[FrameType, Place]]:
    """Find the innermost frame of the user's that `error` came through, and its place; None when there is none.

    >>> try:
    ...     sorted([1, None])
    ... except TypeError as error:
    ...     find_raising_frame(error)[1].line
    2
    """
    found, library_folders = None, _list_library_folders()
    step = error.__traceback__
    while step is not None:
        if _is_user_frame(step.tb_frame, library_folders):
            found = step
        step = step.tb_next
    if found is None:
        return None
    # a frame may have moved on since, to its `finally`
    return found.tb_frame, _find_place(found.tb_frame, instruction=found.tb_lasti, line=found.tb_lineno)


def find_assignment(kind: type, attribute: str) -> Optional[Place]:
    """Find the user's first line, outside of `__init__`, where a method of `kind` binds or changes `attribute`.

    A list, set or dictionary is changed by its methods, too. A `global` name is found as well. Base classes are
    searched. Returns None where the source does not show it.

    >>> class Counter:
    ...     def forward(self):
    ...         self.count = 1
    >>> find_assignment(Counter, "total") is None
    True
    """
    return next((place for cls in kind.__mro__ for place in _iter_assignments(cls, attribute)), None)


def is_user_file(file: str) -> bool:
    """Tell a file that a user may have written from this package's, torch's and the standard library's.

    >>> is_user_file(os.__file__), is_user_file("train.py")
    (False, True)
    """
    return _is_user_file(file, _list_library_folders())


# tqdm stands between a user's loop and a loader, numpy between a user's call and a tensor
_LIBRARIES = ("torch", "poptorch", "numpy", "tqdm")
_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_COMMAND = os.path.join(_PACKAGE_FOLDER, "cli", "main.py")
_STANDARD_FOLDER = os.path.dirname(os.path.abspath(os.__file__))
_USER_FOLDERS_INSIDE = tuple(os.path.join(_PACKAGE_FOLDER, name) for name in ("models", "recipes"))
_SITE_FOLDERS = tuple(os.path.join(_STANDARD_FOLDER, name) for name in ("site-packages", "dist-packages"))
# what `multiprocessing` gives `python -c` to start a process
_PROCESS_START = "spawn_main"
_GENERATED_PREFIXES = ("<frozen ", "<eval_with_key>", "<attrs generated", "<__array_function__")


def _list_library_folders() -> Tuple[Optional[str], ...]:
    """List the folders of the libraries that are loaded; one that is not has no frames."""
    modules = sys.modules
    # a list is faster than a generator, and this runs for each operator of a capture
    return tuple([_find_folder(getattr(modules.get(name), "__file__", None)) for name in _LIBRARIES])


@functools.lru_cache(maxsize=64)
def _find_folder(file: Optional[str]) -> Optional[str]:
    return os.path.dirname(os.path.abspath(file)) if file else None


def _is_user_frame(frame: FrameType, library_folders: Tuple[Optional[str], ...]) -> bool:
    file = frame.f_code.co_filename
    # by far the most usual case: a stack has dozens of frames, and this runs for each operator
    if not file.startswith("<"):
        return _is_user_file(file, library_folders)
    # methods that dataclasses and named tuples generate are code of "<string>"; so is `python -c`, which is the user's
    is_typed_in = frame.f_globals.get("__name__") == "__main__" and "__file__" not in frame.f_globals
    is_typed_in = is_typed_in and _PROCESS_START not in frame.f_code.co_names
    if file == "<string>" and not is_typed_in:
        return False
    return _is_user_file(file, library_folders)


@functools.lru_cache(maxsize=4096)
def _is_user_file(file: str, library_folders: Tuple[Optional[str], ...]) -> bool:
    if file.startswith("<"):
        return not file.startswith(_GENERATED_PREFIXES)
    path = os.path.abspath(file)
    if any(folder and _is_inside(path, folder) for folder in library_folders):
        return False
    if _is_inside(path, _PACKAGE_FOLDER):
        return any(_is_inside(path, folder) for folder in _USER_FOLDERS_INSIDE)
    if _is_inside(path, _STANDARD_FOLDER):
        return any(_is_inside(path, folder) for folder in _SITE_FOLDERS)
    return True


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)


def _find_place(frame: FrameType, *, instruction: int, line: int) -> Place:
    code = frame.f_code
    first_line, end_line, start_byte, end_byte = _read_span(code, instruction)
    if first_line is None or end_line is None or start_byte is None or end_byte is None:
        return Place(code.co_filename, line)
    column = _find_column(frame, line=first_line, byte=start_byte)
    return Place(code.co_filename, first_line, column, end_line, _find_column(frame, line=end_line, byte=end_byte))


# a forward passes the same lines again, in each layer of a kind and in each round of a loop
@functools.lru_cache(maxsize=4096)
def _read_span(code: CodeType, instruction: int) -> Tuple[Optional[int], ...]:
    """Return first line, last line, first byte and last byte of an instruction, as far as Python knows them."""
    if not hasattr(code, "co_positions"):
        return (None,) * 4
    return next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)


def _find_column(frame: FrameType, *, line: int, byte: int) -> int:
    """Turn Python's offset in UTF-8 bytes into a column in characters, counted from 1."""
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    if not source:
        return byte + 1
    return len(source.encode("utf-8")[:byte].decode("utf-8", "ignore")) + 1


def _iter_assignments(kind: type, attribute: str) -> Iterator[Place]:
    try:
        file = inspect.getsourcefile(kind)
        lines, first = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # typed in, or written in C
        return
    if file is None or not is_user_file(file):
        return
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:  # the file has changed since it was loaded
        return
    for method in ast.walk(tree):
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            shared = {name for node in ast.walk(method) if isinstance(node, ast.Global) for name in node.names}
            changed = [
                getattr(node, "lineno", 1) for node in ast.walk(method) if _name_changed(node, shared) == attribute
            ]
            yield from (Place(file, first + line - 1) for line in sorted(changed))


_CHANGING_METHODS = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove")
    + ("reverse", "setdefault", "sort", "update")
)


def _name_changed(node: ast.AST, shared: Collection[str]) -> str:
    """Name the attribute, or the name among `shared`, that a node binds, deletes, or changes the content of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_METHODS:
        holder: ast.AST = node.func.value
    elif isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
        holder = node.value if isinstance(node, ast.Subscript) else node
    else:
        return ""
    while isinstance(holder, ast.Subscript):
        holder = holder.value
    if isinstance(holder, ast.Name):
        return holder.id if holder.id in shared else ""
    return holder.attr if isinstance(holder, ast.Attribute) else ""
