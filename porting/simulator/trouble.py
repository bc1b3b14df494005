"""Simulate hardware failures at a chosen moment, so that programs can be tested for them: the failure lab.

`porting run --inject` uses it, and programs use `inject`.
"""

from __future__ import annotations

import atexit
import enum
import multiprocessing
import os
import random
import sys
import time
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

import torch

from ..diagnostics import OptionError
from ..machines import DEFAULT, find_chip
from ..support.process import this_instance
from ._device.device_target import waits_for_ipus, write_refusal
from ._logging import cpp_log, logger
from .errors import memory_error, native_error

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "KINDS",
    "Injection",
    "Moment",
    "describe_kinds",
    "fetch_batch",
    "inject",
    "injections",
    "parse",
    "strike",
]

ENVIRONMENT_VARIABLE = "PORTING_INJECT"

_CHIP = find_chip(DEFAULT)
# Defaults; a tuple lists all values that a setting may have, the default first.
_COMMON_SETTINGS: Dict[str, Any] = {
    "at_call": 1,
    "times": None,
    "probability": None,
    "seed": 0,
    "executor": ("any", "training", "inference"),
    "process": None,
}

injections: List[Injection] = []
"""What is injected now; while it is empty the simulator does not look any further."""


@contextmanager
def inject(kind: str, **settings: Any) -> Iterator[Injection]:
    """Cause trouble of this `kind` inside a ``with`` block, also in processes that are started there.

    Settings of all kinds: ``at_call``, the first moment at which it strikes, counted from 1 (1); ``times``, how often
    it strikes, 0 for every time (1, with a probability 0); ``probability`` and ``seed``, to strike at random;
    ``executor``, ``"training"`` or ``"inference"`` (``"any"``); ``process``, the number of one of several processes
    that train together (all of them). `describe_kinds` lists the kinds, their moments, and their own settings. Raises
    `ValueError` for an unknown kind or setting.

    >>> with inject("out-of-memory", at_call=2) as trouble:
    ...     trouble.text
    'out-of-memory:at_call=2'
    """
    injection = Injection(kind, settings)
    before = os.environ.get(ENVIRONMENT_VARIABLE)
    # processes that are started inside the block read it when they import this module
    os.environ[ENVIRONMENT_VARIABLE] = ";".join(filter(None, [before, injection.text]))
    injections.append(injection)
    try:
        yield injection
    finally:
        injections.remove(injection)
        if before is None:
            os.environ.pop(ENVIRONMENT_VARIABLE, None)
        else:
            os.environ[ENVIRONMENT_VARIABLE] = before


def parse(text: str) -> Injection:
    """Read ``KIND[:key=value,...]``, the form of the command line and of the environment variable.

    >>> parse("lost-device:at_call=7,recovery=FULL_RESET").settings["recovery"]
    'FULL_RESET'
    """
    kind, _, rest = text.partition(":")
    settings: Dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"`{part}` is not of the form key=value")
        settings[name.strip()] = value.strip()
    return Injection(kind.strip(), settings)


_EXPLANATION = (
    "at_call=N      strikes at the Nth of these moments, counted from 1",
    "times=N        strikes N times from there on (once), 0 for every time",
    "probability=P  strikes at random, by seed=, without a limit",
    "process=I      strikes in instance I only, counted from 0",
    "",
    "for example: porting run --inject lost-device:at_call=7,recovery=FULL_RESET train.py",
    "the page about it: docs/failure-lab.md",
)


def describe_kinds() -> str:
    """Return a table of the kinds of trouble: the moment and the effect of each, and its own settings."""
    lines = []
    for name, kind in KINDS.items():
        lines.append(f"{name:<17} {kind.moment.value}: {kind.summary}")
        for key, values in kind.settings.items():
            value, *others = values if isinstance(values, tuple) else (values,)
            lines.append(f"{'':<17}   {key}={value}" + (f" or {', '.join(others)}" if others else ""))
    common = ", ".join(
        f"{key}={'' if value is None else value}" for key, value in _read_defaults(_COMMON_SETTINGS).items()
    )
    return "\n".join([*lines, f"{'all kinds':<17} {common}", "", *_EXPLANATION])


class Injection:
    """One kind of trouble with its settings; `num_struck` counts how often it struck."""

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        """Check the settings and convert texts to values."""
        if kind not in KINDS:
            raise ValueError(f"unknown kind of trouble `{kind}`: there are {', '.join(KINDS)}")
        self.kind: Kind = KINDS[kind]
        given = ",".join(f"{name}={value}" for name, value in settings.items())
        self.text = f"{kind}:{given}" if given else kind
        self.settings = _read_defaults({**_COMMON_SETTINGS, **self.kind.settings})
        for name, value in settings.items():
            self.settings[name] = self._convert_setting(kind, name, value)
        self.num_moments = 0
        self.num_struck = 0
        self.is_permanent = False
        self._random = random.Random(self.settings["seed"])

    def _convert_setting(self, kind: str, name: str, value: Any) -> Any:
        if name not in self.settings:
            raise ValueError(f"`{kind}` has no setting `{name}`: it has {', '.join(self.settings)}")
        allowed = {**_COMMON_SETTINGS, **self.kind.settings}[name]
        if isinstance(allowed, tuple):
            if value not in allowed:
                raise ValueError(f"`{name}` of `{kind}` is one of {', '.join(allowed)}, not `{value}`")
            return value
        numeric = float if name in ("probability", "seconds") else int
        try:
            number: Union[int, float] = numeric(value)
        except ValueError:
            raise ValueError(f"`{name}` of `{kind}` is a number, not `{value}`") from None
        lowest = 1 if name in ("at_call", "percent_over", "tile_bytes") else 0
        if number < lowest:
            raise ValueError(f"`{name}` of `{kind}` cannot be {value}, it is at least {lowest}")
        if name == "probability" and number > 1:
            raise ValueError(f"`{name}` of `{kind}` cannot be {value}")
        return number

    def is_for_this_process(self) -> bool:
        """Tell whether the trouble is for this process, where there are several."""
        return self.settings["process"] in (None, this_instance().index)

    def is_due(self, training: Optional[bool]) -> bool:
        """Count a moment of the kind and tell whether the trouble strikes at it; `training` is None for loaders."""
        others = {"training": False, "inference": True}.get(self.settings["executor"])
        if (training is not None and training is others) or not self.is_for_this_process():
            return False
        # whether it strikes or not: `at_call` is a number of these moments
        self.num_moments += 1
        probability, times = self.settings["probability"], self.settings["times"]
        if times is None:
            times = 1 if probability is None else 0
        if self.num_moments < self.settings["at_call"] or 0 < times <= self.num_struck:
            return False
        # drawn at every moment from there on, so that a seed gives the same ones in each run
        is_due = probability is None or self._random.random() < probability
        self.num_struck += is_due
        return is_due


def _read_defaults(settings: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value[0] if isinstance(value, tuple) else value for name, value in settings.items()}


def strike(
    moment: Moment, *, training: Optional[bool] = None, subject: object = None, results: Sequence[torch.Tensor] = ()
) -> None:
    """Cause the trouble that is due at this `moment` to `subject`, a device session.

    `results` are the tensors of its call. Callers ask whether there are any `injections` before.
    """
    for injection in list(injections):
        # a device that is lost for ever fails at each attempt to attach it, without being due again
        if injection.is_permanent and moment is Moment.ATTACH:
            injection.kind.effect(injection.settings, subject, results)
        # again where the effect asks for it: a device that is waited for is tried once more
        while injection.kind.moment is moment and injection.is_due(training):
            whose = "" if training is None else f" of {'a training' if training else 'an inference'} executor"
            logger.warning("failure lab: %s at %s %d%s", injection.text, moment.value, injection.num_moments, whose)
            injection.is_permanent = injection.settings.get("recovery") == "none"
            if not injection.kind.effect(injection.settings, subject, results):
                break


def fetch_batch(batches: Iterator[Any]) -> Any:
    """Return the next of a DataLoader's `batches`, unless trouble is due; a later batch can still be fetched."""
    strike(Moment.BATCH)
    return next(batches)


class Moment(enum.Enum):
    """The moments at which trouble can strike."""

    COMPILE = "compilation"
    ATTACH = "attaching"
    CALL = "call"
    RESULT = "finished call"
    BATCH = "batch"


class Kind(NamedTuple):
    """A kind of trouble: its moment, what happens, and its own settings as those in `_COMMON_SETTINGS`."""

    moment: Moment
    summary: str
    # gets the settings, the device session and its call's results; True asks for the same moment to be tried once more
    effect: Callable[[Mapping[str, Any], Any, Sequence[torch.Tensor]], Optional[bool]]
    settings: Mapping[str, Any] = MappingProxyType({})


def _run_out_of_memory(settings: Mapping[str, Any], _subject: object, _results: object) -> None:
    tile_bytes = settings["tile_bytes"]
    used = tile_bytes * (100 + settings["percent_over"]) // 100
    raise memory_error(used, tile_bytes=tile_bytes, num_tiles=_CHIP.num_tiles)


def _lose_device(settings: Mapping[str, Any], session: Any, _results: object) -> None:
    action = settings["recovery"]
    session.lose_device()
    is_lost_for_ever = action == "none"
    raise native_error(
        _LOSSES[action],
        kind=f"poplar_{'un' if is_lost_for_ever else ''}recoverable_runtime_error",
        context=["popart::Session::run", "PoplarExecutable::run"],
        recovery_action="" if is_lost_for_ever else action,
    )


# The loss, by the action that PopTorch recommends for it.
_LOSSES = {
    "IPU_RESET": "IPU 0 stopped: a tile raised an exception (TEXCPT) and did not reach the next sync",
    "LINK_RESET": "Timed out waiting for a sync over the IPU-Links: link 3 of IPU 0 is down",
    "PARTITION_RESET": "The partition of the device lost its connection to the IPU-Machine",
    "FULL_RESET": "The device stopped responding: host exchange failed on all IPUs",
    "none": "The device stopped responding and cannot be reset: IPU 0 reported an uncorrectable memory error",
}


def _break_host_stream(settings: Mapping[str, Any], session: Any, _results: object) -> None:
    num_streams = len(session.signature.arguments.list_tensors())
    if settings["stream"] >= num_streams:
        raise ValueError(
            f"failure lab: there is no stream {settings['stream']}: the model has {num_streams} inputs, counted from 0"
        )
    raise native_error(
        f"Host stream copy failed: stream 'h2d_{settings['stream']}' got no data within the time limit",
        kind="poplar_unknown_runtime_error",
        context=["poplar::Engine::run", "PoplarExecutable::run"],
    )


def _overflow_float16(settings: Mapping[str, Any], session: Any, results: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        if settings["where"] == "activations":
            for tensor in results:
                _fill_floats(tensor, float("inf"))
        # an update with infinite gradients has made the weights, and all that the optimizer remembers, NaN
        state = session.compiled.state
        for name, parameter in state.parameters.items():
            if session.is_training and parameter.requires_grad:
                _fill_floats(parameter, float("nan"))
                for slot, tensor in state.slots.get(name, {}).items():
                    if slot != "Step":  # which only counts
                        _fill_floats(tensor, float("nan"))


def _fill_floats(tensor: torch.Tensor, value: float) -> None:
    if tensor.is_floating_point():
        tensor.fill_(value)


def _refuse_device(_settings: Mapping[str, Any], _session: object, _results: object) -> bool:
    if waits_for_ipus():
        cpp_log("info", "No IPU available, sleeping...")
        time.sleep(0.05)
        return True
    raise native_error(
        write_refusal("1 IPU(s)", "all devices are in use. Set POPTORCH_WAIT_FOR_IPU=1 to wait for one"),
        context=["PoplarExecutable::attachToDevice"],
    )


def _fail_to_read_data(_settings: Mapping[str, Any], _subject: object, _results: object) -> None:
    raise OSError(5, "Input/output error while reading the dataset (failure lab)")


KINDS: Mapping[str, Kind] = {
    "out-of-memory": Kind(
        Moment.COMPILE,
        "the program needs more memory than a tile has",
        _run_out_of_memory,
        {"percent_over": 6, "tile_bytes": _CHIP.tile_bytes},
    ),
    "busy-device": Kind(Moment.ATTACH, "all IPUs are in use, or one is free later", _refuse_device),
    "lost-device": Kind(
        Moment.CALL,
        "the device is lost with all that was not copied to the host; recovery=none for ever",
        _lose_device,
        {"recovery": tuple(_LOSSES)},
    ),
    "host-stream": Kind(Moment.CALL, "an input does not reach the device", _break_host_stream, {"stream": 0}),
    "float16-overflow": Kind(
        Moment.RESULT,
        "outputs become infinite, and in training the weights NaN; where=gradients spares the outputs",
        _overflow_float16,
        {"where": ("activations", "gradients")},
    ),
    "slow-data": Kind(
        Moment.BATCH,
        "a batch of a DataLoader comes late",
        lambda settings, _session, _results: time.sleep(settings["seconds"]),
        {"seconds": 1.0},
    ),
    "failing-data": Kind(Moment.BATCH, "a batch of a DataLoader cannot be read", _fail_to_read_data),
}
"""Every kind of trouble, by the name that `inject` and the command line take."""
_COUNTED = {Moment.COMPILE: "compilations", Moment.ATTACH: "times attached", Moment.BATCH: "batches"}


def _read_environment() -> None:
    texts = os.environ.get(ENVIRONMENT_VARIABLE, "").split(";")
    try:
        injections[:] = [parse(text) for text in texts if text.strip()]
    except ValueError as error:
        raise OptionError.of(
            "P005",
            message=f"the environment variable {ENVIRONMENT_VARIABLE} is {os.environ[ENVIRONMENT_VARIABLE]!r}: {error}",
            help=(
                f"write KIND[:key=value,...], several with semicolons between, where KIND is one of {', '.join(KINDS)}",
                "`porting run --inject list` shows them with their settings",
            ),
        ) from None
    # a process that loads data sees batches only, and does not know of the calls that its program makes
    if injections and multiprocessing.parent_process() is None:
        atexit.register(_report_what_did_not_strike, list(injections))


def _report_what_did_not_strike(asked_for: Sequence[Injection]) -> None:
    """Report at the end of a program which trouble never struck: a test that saw none has shown nothing."""
    for injection in asked_for:
        if not injection.num_struck and injection.is_for_this_process():
            moment = injection.kind.moment
            fate = f"did not strike ({injection.num_moments} {_COUNTED.get(moment, 'calls')})"
            if moment is Moment.BATCH and not injection.num_moments:
                fate = "had no batch to strike in this process; an asynchronous loader reads in one of its own"
            sys.stderr.write(f"failure lab: {injection.text} {fate}\n")


_read_environment()
