"""A plain program is run as it is, and the places where it calls and makes what trains are written down.

`main` runs a script in the place of Python, with notes taken around functions of torch, and leaves a `DryRun`.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import pickle
import signal
import sys
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from porting.convert.sites import Role, Site
from porting.diagnostics import frame_place, is_user_file
from porting.observe.training_programs import Run, Tensors, watch_calls, watch_program
from porting.structure import flatten_tensors
from porting.support.process import signal_with_parent
from porting.verify.observed_process import enter_copy, name_original, run_script
from porting.verify.observed_program import EnoughStepsError

__all__ = ["DryRun", "main"]

_CALL = "__call__"
# a loop that makes one step of an optimizer for many of another's comes to both within these
_LONGER = 10


@dataclass(frozen=True)
class DryRun:
    """What was seen of a program; the numbers of models and optimizers are the owners of `sites`.

    `trained` are the models whose parameters an optimizer has. `methods` are those, other than `__call__`, by which a
    model was called for training. `num_backward` counts the backward passes of each step of an optimizer. `error` says
    what ended the program, if that was an error; `num_steps` are the most steps of an optimizer.
    """

    sites: Tuple[Site, ...] = ()
    trained: Mapping[int, Tuple[int, ...]] = field(default_factory=dict)
    methods: Mapping[int, Tuple[str, ...]] = field(default_factory=dict)
    num_backward: Mapping[int, Tuple[int, ...]] = field(default_factory=dict)
    error: str = ""
    num_steps: int = 0


@dataclass(frozen=True)
class _ModuleCall:
    """A call of a module outside of others, and what has called it, from the inside: methods of models that hold it.

    Each of `holders` has its code, and the place where it was called. The owners of places are identities of objects.
    """

    site: Site
    holders: Tuple[Tuple[CodeType, Site], ...]


class _Witness:
    """Takes notes in one process; `_depth` counts what is being run whose parts the program itself does not call."""

    def __init__(self, script: str, num_steps: int, name_file: Callable[[str], str]) -> None:
        self._script, self._num_steps, self._name_file = script, num_steps, name_file
        self._depth, self._is_stepping, self._is_shortened = 0, False, False
        self._sites: Dict[Site, None] = {}
        # with whether a gradient has come back to what it returned
        self._calls: Dict[_ModuleCall, bool] = {}
        # an identity is an object's own as long as the object is kept
        self._kept: Dict[int, Any] = {}
        self._trainers: Set[int] = set()
        self._loops: Set[CodeType] = set()
        self._num_backward: Dict[int, List[int]] = {}
        self._since_step, self._has_stepped = 0, False

    def install(self) -> None:
        """Take notes of all that trains in this process from now on."""
        watch_program(self)
        for module in (nn.utils, nn.utils.clip_grad):
            watch_calls(module, "clip_grad_value_", self.clip_gradients)
        watch_calls(torch.optim.Optimizer, "__init__", partial(self._note_and_run, Role.OPTIMIZER))
        watch_calls(DataLoader, "__init__", partial(self._note_and_run, Role.LOADER))
        watch_calls(DataLoader, "__iter__", self._shorten)
        for owner in (torch.optim.Optimizer, nn.Module):
            watch_calls(owner, "zero_grad", partial(self._note_and_run, Role.ZERO_GRAD))
        own = (one for one in vars(lr_scheduler).values() if isinstance(one, type))
        for kind in {one for one in own if one.__module__ == lr_scheduler.__name__ and hasattr(one, "step")}:
            # the first step of a schedule is made as it is made
            watch_calls(kind, "__init__", self._run_inside)
            watch_calls(kind, "step", partial(self._note_and_run, Role.SCHEDULE))

    # -- what the program calls ----------------------------------------------------------------------------------------

    def call_module(self, run: Run, module: nn.Module, *args: object, **kwargs: object) -> Any:
        """Run a model, and note who has called it, and whether a gradient comes back to what it returns."""
        if self._depth or next(module.parameters(), None) is None:
            return run(module, *args, **kwargs)
        call = self._describe_call(module)
        returned = self._run_inside(run, module, *args, **kwargs)
        if call is not None:
            tensors = flatten_tensors(returned)
            known = self._calls.get(call, False)
            self._calls[call] = known or not tensors
            for tensor in tensors:
                if tensor.requires_grad and not known:
                    tensor.register_hook(partial(self._note_gradient, call))
        return returned

    def _note_gradient(self, call: _ModuleCall, _gradient: torch.Tensor) -> None:
        self._calls[call] = True

    def run_backward(self, run: Run, tensors: Tensors, *args: object, **kwargs: object) -> Any:
        """Run a backward pass, and note it."""
        if not self._depth:
            if self._has_stepped:
                self._since_step, self._has_stepped = 0, False
            self._since_step += 1
            self._note_loop()
            self._note(Role.BACKWARD, run, name="torch.Tensor")
        return self._run_inside(run, tensors, *args, **kwargs)

    def clip_gradients(self, run: Run, parameters: Tensors, *args: object, **kwargs: object) -> Any:
        """Clip gradients, and note where."""
        self._note(Role.CLIP, run, name=f"torch.nn.utils.{run.__name__}")
        return run(parameters, *args, **kwargs)

    def make_step(self, run: Run, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object) -> Any:
        """Make a step, in whose closure there may be a model, and note it; end the script before one too many."""
        if self._is_stepping or self._depth:
            return run(optimizer, *args, **kwargs)
        counts = self._num_backward.setdefault(id(optimizer), [])
        if len(counts) >= self._num_steps and self._is_over():
            raise EnoughStepsError
        self._note_loop()
        self._note(Role.STEP, run, optimizer)
        self._is_stepping = True
        try:
            result = run(optimizer, *args, **kwargs)
        finally:
            self._is_stepping = False
        counts.append(self._since_step)
        self._has_stepped = True
        return result

    @property
    def _most_steps(self) -> int:
        return max(map(len, self._num_backward.values()), default=0)

    def _has_enough(self) -> bool:
        """Tell whether the optimizers have made their steps, also those that make one while another makes many."""
        made = [self._num_backward.get(site.owner) for site in self._sites if site.role is Role.OPTIMIZER]
        return self._most_steps >= self._num_steps * (1 if all(made) else _LONGER)

    def _is_over(self) -> bool:
        """Tell whether to end the script: short epochs go on for a while until a model is evaluated."""
        goes_on = self._is_shortened and not any(call.site.role is Role.EVALUATION for call in self._calls)
        return self._has_enough() and not (goes_on and self._most_steps < self._num_steps * _LONGER)

    def _shorten(self, run: Run, loader: Any) -> Iterator[Any]:
        """Iterate over a loader; once there are enough steps, end it after a batch, to see what follows an epoch."""
        batches = run(loader)

        def iterate() -> Iterator[Any]:
            for number, batch in enumerate(batches):
                if number and self._has_enough():
                    self._is_shortened = True
                    return
                yield batch

        return iterate()

    def _note_and_run(self, role: Role, run: Run, thing: object, *args: object, **kwargs: object) -> Any:
        if self._depth:
            return run(thing, *args, **kwargs)
        self._note(role, run, thing)
        return self._run_inside(run, thing, *args, **kwargs)

    def _run_inside(self, run: Run, *args: object, **kwargs: object) -> Any:
        self._depth += 1
        try:
            return run(*args, **kwargs)
        finally:
            self._depth -= 1

    # -- notes ---------------------------------------------------------------------------------------------------------

    def _note(self, role: Role, run: Run, thing: object = None, name: str = "") -> None:
        for frame in _iter_user_frames():
            # a method of the user's that calls the one of torch's that it stands for is what the program calls
            if thing is None or frame.f_code.co_name != run.__name__ or _find_self(frame) is not thing:
                self._sites[self._make_site(role, frame, thing, name)] = None
                return

    def _make_site(self, role: Role, frame: FrameType, thing: object, name: str = "") -> Site:
        path, line, column = _locate(frame)
        owner = 0 if thing is None else id(thing)
        self._kept[owner] = thing
        return Site(role, self._name_file(path), line, column, owner, name or self._name_type(type(thing)))

    def _name_type(self, kind: type) -> str:
        module = Path(self._script).stem if kind.__module__ == "__main__" else kind.__module__
        return f"{module}.{kind.__qualname__}"

    def _note_loop(self) -> None:
        """Keep what makes steps: it is no method of a model, though its class may be a module."""
        for frame in _iter_user_frames():
            self._loops.add(frame.f_code)
            owner = _find_self(frame)
            if isinstance(owner, nn.Module):
                self._kept[id(owner)] = owner
                self._trainers.add(id(owner))

    def _describe_call(self, module: nn.Module) -> Optional[_ModuleCall]:
        """Say where a module is called, and by which methods of models; None where no user's line or a maker does."""
        frames = [*_iter_user_frames()]
        role = Role.FORWARD if torch.is_grad_enabled() else Role.EVALUATION
        holders: List[Tuple[CodeType, Site]] = []
        for frame, caller in zip(frames, frames[1:]):
            owner = _find_self(frame)
            if isinstance(owner, nn.Module) and any(part is module for part in owner.modules()):
                # a model that is being made calls its parts to learn their shapes
                if frame.f_code.co_name == "__init__":
                    return None
                holders.append((frame.f_code, self._make_site(role, caller, owner)))
        return _ModuleCall(self._make_site(role, frames[0], module), tuple(holders)) if frames else None

    # -- what is left --------------------------------------------------------------------------------------------------

    def describe(self, error: str) -> DryRun:
        """Say what was seen: of each call the outermost model that was called, by whichever method."""
        resolved = [(call, *self._resolve(call)) for call in [*self._calls]]
        trained = {site for call, site, _method in resolved if self._calls[call]}
        is_told = any(self._num_backward.values())
        sites = dict(self._sites)
        methods: Dict[int, Set[str]] = {}
        for _call, site, method in resolved:
            is_evaluation = is_told and site not in trained
            sites[replace(site, role=Role.EVALUATION) if is_evaluation else site] = None
            if method != _CALL and not is_evaluation:
                methods.setdefault(site.owner, set()).add(method)
        ordered = sorted(sites, key=lambda site: (site.path, site.line, site.column, site.role.value))
        numbers: Dict[int, int] = {0: 0}
        for owner in (*(site.owner for site in ordered), *self._num_backward):
            numbers.setdefault(owner, len(numbers))
        models = {site.owner for site in ordered if site.role is Role.FORWARD}
        optimizers = {site.owner for site in ordered if site.role is Role.OPTIMIZER} | {*self._num_backward}
        return DryRun(
            tuple(replace(site, owner=numbers[site.owner]) for site in ordered),
            {
                numbers[one]: tuple(sorted(numbers[model] for model in models if self._trains(one, model)))
                for one in optimizers
            },
            {numbers[owner]: tuple(sorted(names)) for owner, names in methods.items()},
            {numbers[owner]: tuple(counts) for owner, counts in self._num_backward.items()},
            # what fails with short loaders is not the program's fault
            "" if self._is_shortened else error,
            self._most_steps,
        )

    def _resolve(self, call: _ModuleCall) -> Tuple[Site, str]:
        """Find the outermost model that was called, and the name of its method."""
        for code, site in reversed(call.holders):
            # what makes steps may evaluate as well, in a method that makes none
            is_trainer = site.role is Role.EVALUATION and site.owner in self._trainers
            if code not in self._loops and not is_trainer:
                return site, _CALL if code.co_name in (_CALL, "forward") else code.co_name
        return call.site, _CALL

    def _trains(self, optimizer: int, model: int) -> bool:
        own = {id(parameter) for group in self._kept[optimizer].param_groups for parameter in group["params"]}
        return any(id(parameter) in own for parameter in self._kept[model].parameters())


def _iter_user_frames() -> Iterator[FrameType]:
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if _is_own_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


@lru_cache(maxsize=4096)
def _is_own_file(file: str) -> bool:
    """Tell the user's files from libraries, whichever."""
    is_installed = any(part in ("site-packages", "dist-packages") for part in Path(file).parts)
    return not file.startswith("<") and is_user_file(file) and not is_installed


def _find_self(frame: FrameType) -> object:
    """Return the object whose method a frame runs, under whatever name; None for a function of no class."""
    code = frame.f_code
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    for kind in type(owner).__mro__:
        method = vars(kind).get(code.co_name)
        if callable(method) and getattr(inspect.unwrap(method), "__code__", None) is code:
            return owner
    return None


def _locate(frame: FrameType) -> Tuple[str, int, int]:
    """Return file, line and column of the call that a frame is making: Python tells those of its last attribute."""
    place = frame_place(frame)
    line, column = place.line, -1 if place.column is None else place.column - 1
    if place.end_line is not None and place.end_column is not None:
        line, column = _map_calls(place.file).get((place.end_line, place.end_column - 1), (line, column))
    return os.path.realpath(place.file), line, column


@lru_cache(maxsize=256)
def _map_calls(file: str) -> Mapping[Tuple[int, int], Tuple[int, int]]:
    """Return where each call of a file begins, in characters, by where it ends."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # the file has changed since it was loaded
        return {}

    def count(line: Optional[int], byte: Optional[int]) -> Tuple[int, int]:
        assert line is not None
        assert byte is not None
        return line, len(lines[line - 1].encode("utf-8")[:byte].decode("utf-8", "ignore"))

    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {count(one.end_lineno, one.end_col_offset): count(one.lineno, one.col_offset) for one in calls}


def main() -> None:
    """Run the task of the folder that the command names."""
    folder = Path(sys.argv[1]).resolve()
    script, arguments, num_steps, project = pickle.loads((folder / "task").read_bytes())
    signal_with_parent(signal.SIGKILL)
    name = partial(name_original, folder=folder / "0", root=project.roots[0])
    witness = _Witness(script, num_steps, name)

    def leave(error: str) -> None:
        (folder / "found.part").write_bytes(pickle.dumps(witness.describe(error)))
        (folder / "found.part").replace(folder / "found")
        # what the program has started may never end
        os._exit(0)

    late = f"it has not ended after {project.limit_seconds} seconds"
    timer = threading.Timer(project.limit_seconds, leave, [late])
    timer.daemon = True
    timer.start()
    own = enter_copy(script, project, folder / "0")
    witness.install()
    error, place = run_script(own, arguments, seed=0)
    leave(f"{error} (in {replace(place, file=name(place.file))})" if place else error)
