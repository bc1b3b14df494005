"""Find by a second capture what Python decides in `forward`, and word the finding C020 for what changes later.

Runners and preflights use it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from torch import nn

from ..adapters.backend_protocol import CompiledStep, Executor
from ..diagnostics import Finding, Place, caller_place, find_assignment
from ..reached_values import ReachedValue, is_plain
from .port import Port, PortFindings, list_modules_by_prefix

if TYPE_CHECKING:
    from ..capture import StepGraph
    from ..capture.frozen_values import FrozenValue

__all__ = ["collect_last_readers", "describe_change", "iter_frozen_findings", "say_frozen_values"]

_IF_MEANT = "if it is meant to stay as it is: `PortOptions(frozen=['{}'])`"
_MOST_FINDINGS = 5
# a second run that does the same takes so much of the time of the first
_SHARE_OF_CAPTURE = 0.3


def say_frozen_values(
    port: Port, findings: PortFindings, executor: Executor, *, compile_seconds: float, is_new: bool = True
) -> None:
    """Run the `forward` that `executor` has compiled once more, and warn (C020) of what Python decides otherwise then.

    Nothing is done for a step that is not new, where it would take more than a second and a tenth of the compilation,
    or where no line of the user's runs that could decide anything, and nothing changes.
    """
    compiled = port.backend.compiled_step(executor)
    if compiled is None or compiled.capture_again is None:
        return
    try:
        is_quick = _SHARE_OF_CAPTURE * compiled.capture_seconds <= max(1.0, compile_seconds / 10)
        if is_new and is_quick and port.options.frozen != "allow":
            _find_frozen_values(port, findings, compiled)
    finally:
        if compiled.first_run is not None:
            compiled.first_run.drop()


def describe_change(reached: ReachedValue, now: object, renewal: str) -> Finding:
    """Return C020 for a value that is `now` another than the step has read; `renewal` is how it is compiled anew."""
    name, before = reached.name, reached.value
    message = f"`{name}` is {now!r:.60} now, and {before!r:.60} in the compiled step"
    if not is_plain(before):
        message = f"`{name}` has changed since the step was compiled, which goes on with what it was"
    return Finding(
        "C020",
        message=message,
        place=caller_place(),
        notes="`forward` read it when it was compiled, and is not run again",
        help=(
            f"to compile the step with the new value: {renewal or '`ported.destroy()`, then call again'}",
            "what changes in training is an argument, a tensor, or a buffer that is written to in `forward`",
            f"if it is meant to stay as it is: `PortOptions(frozen=[{name!r}])`",
        ),
    )


def _find_frozen_values(port: Port, findings: PortFindings, compiled: CompiledStep) -> None:
    modules = list_modules_by_prefix(port)
    # on a machine with IPUs there is no capture, nor the torch that it wants
    users_code = importlib.import_module("porting.capture.users_code")
    if not users_code.may_run_users_code([module for _name, module in modules], port.wrapped.functions):
        return
    found, changes, failure = _run_again(compiled, modules)
    allowed = () if isinstance(port.options.frozen, str) else port.options.frozen
    new = list(iter_frozen_findings(found, dict(changes), allowed, modules))
    if failure is not None and not new:
        new = [
            Finding(
                "C020",
                message=f"`forward` fails when it runs again: {type(failure).__name__}: {failure!s:.200}",
                notes="it ran well once, so that it depends on something which that run has changed",
                help=(
                    "let `forward` depend on its arguments, parameters and buffers alone",
                    "if it is meant to run once: `PortOptions(frozen='allow')`",
                ),
            )
        ]
    for finding in new[:_MOST_FINDINGS]:
        findings.say(finding)


def _run_again(
    compiled: CompiledStep, modules: Sequence[Tuple[str, nn.Module]]
) -> Tuple[List[Any], Dict[str, Any], Any]:
    """Run `forward` again; return the frozen values, what it has changed on Python's side, and how it failed, or None.

    Where it does the same as in the capture that is all; else another capture tells what is different.
    """
    second_run = importlib.import_module("porting.capture.second_run")
    list_frozen_values = importlib.import_module("porting.capture.frozen_values").list_frozen_values
    first_run, difference = compiled.first_run, None
    if first_run is not None:
        with second_run.without_trace(modules) as changes:
            try:
                is_same, difference = first_run.follow()
            except Exception:  # the capture below tells whether it fails in a run of its own, too
                is_same = False
        if is_same:
            return [], changes, None
    found: List[Any] = []
    failure: Optional[Exception] = None
    with second_run.without_trace(modules) as changes:
        try:
            found = list_frozen_values(compiled.graph, compiled.capture_again())
        except Exception as error:  # said by the caller: `forward` ran well once, so it depends on that run
            failure = error
    if not (found or failure or difference is None):
        # by chance the third run went the way of the first
        found = [difference]
    return found, changes, failure


def collect_last_readers(graph: StepGraph) -> Set[str]:
    """Name the settings `inplace` that change no result: of activations whose input nobody reads after them."""
    # what nobody reads afterwards may be written to; with IPUs there is no capture, nor the torch that it wants
    paths = importlib.import_module("porting.analysis.last_readers").collect_last_readers(graph)
    return {f"{path}.inplace" for path in paths}


def iter_frozen_findings(
    found: Sequence[Any],
    changes: Dict[str, Tuple[Any, Any]],
    allowed: Sequence[str],
    modules: Sequence[Tuple[str, nn.Module]],
) -> Iterator[Finding]:
    """Yield C020 for values that two captures `found` different, and for attributes with their `changes` by a run.

    `allowed` names attributes and modules that are meant to stay as they are; `modules` are those that ran, with their
    prefix. `changes` is emptied of what is told.
    """
    lines = set()
    for value in found:
        name = next((name for name, pair in changes.items() if value.before in pair or value.after in pair), None)
        if name is not None:
            # what becomes of the counter is told once, with the line that uses it
            before, after = changes.pop(name)
            lines.add(_find_line(value.place))
            if name not in allowed:
                told = f"compiled in: {value.before!r:.60}; next: {value.after!r:.60}"
                yield _describe_counter(name, value.place, "this goes on with the value of that run", told)
        elif _find_line(value.place) not in lines:
            lines.add(_find_line(value.place))
            if (value.module_path or "forward") not in allowed:
                yield _describe_value(value)
    for name, (before, after) in changes.items():
        if name not in allowed:
            place = next(_iter_changes(name, modules), None)
            told = f"before and after a run: {before!r:.60}, {after!r:.60}"
            yield _describe_counter(name, place, "changed here", told)


def _iter_changes(name: str, modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[Place]:
    """Yield lines that change `name`: an attribute of a module, its class or an object that it holds, or a global."""
    owner, _, attribute = name.rpartition(".")
    for prefix, module in modules:
        names = ("", prefix.rstrip("."), *(kind.__name__ for kind in type(module).__mro__))
        held = vars(module).get(owner[len(prefix) :]) if owner.startswith(prefix) else None
        kinds = [type(module)] if owner in names else []
        for kind in kinds if held is None else [*kinds, type(held)]:
            place = find_assignment(kind, attribute)
            if place is not None:
                yield place


def _find_line(place: Optional[Place]) -> Any:
    return None if place is None else (place.file, place.line)


def _describe_counter(name: str, place: Optional[Place], label: str, note: str) -> Finding:
    attribute = name.rpartition(".")[2]
    return Finding(
        "C020",
        message=f"`forward` changes `{name}` each time it runs, which is once: when it is compiled",
        place=place,
        label=label if place else "",
        notes=note,
        help=(
            f"count on the device: `self.register_buffer('{attribute}', torch.zeros(()))`, a buffer of floats",
            "or count where the model is called, and pass the number as an argument, a tensor",
            _IF_MEANT.format(name),
        ),
    )


def _describe_value(value: FrozenValue) -> Finding:
    module = value.module_path or "forward"
    before, after = f"{value.before!r:.60}", f"{value.after!r:.60}"
    if value.changes_operators:
        message = "`forward` computes something else when it runs again, and only the first run is compiled"
        notes = (f"the operator here: {value.before}; next time: {value.after}",)
        cure = "decide on the device: `torch.where`, or `poptorch.cond`, with a condition that is a tensor"
    else:
        message = f"Python computes a value in `forward` that is another one each time; {before} is compiled in"
        notes = (f"the next time it is {after}",)
        cure = (
            "draw random numbers on the device, `torch.rand((), device=x.device)`; pass others, as the time, as tensors"
        )
    return Finding(
        "C020",
        message=message,
        place=value.place,
        label="every step gets the same",
        notes=(*notes, *((f"the module is `{module}`",) if value.module_path else ())),
        help=(cure, _IF_MEANT.format(module)),
    )
