"""Define `PortOptions`, which says how a model runs on its device, and check each of its values.

Programs make them; ports, plans and proofs read them.
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from porting.diagnostics import OptionError, join_names
from porting.options.computation_order import POLICIES, is_computation_order

__all__ = ["PortOptions", "is_count", "read_recomputation"]

_QUOTE = "'"
_ORDER_NAMES = join_names((name for name in POLICIES if name != "custom_"), quote=_QUOTE)
_ALLOWED = ("custom-autograd-function",)
_ORDERS = (
    f"one of {_ORDER_NAMES}; of these chen, gttime and gtmem with a budget in megabytes, as in 'chen:64'; "
    "or 'custom_' with commands, as in 'custom_CF0_CF1_FFo0'"
)


def is_count(value: object) -> bool:
    """Tell whether `value` is an integer of at least 1; True and False are none.

    >>> is_count(2), is_count(0), is_count(True)
    (True, False, False)
    """
    return isinstance(value, int) and value is not True and value >= 1


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_stages(value: object) -> bool:
    """Tell whether `value` is None or names modules with IPUs of which none up to the last is left out."""
    if not isinstance(value, Mapping) or not all(map(_is_name, value)):
        return value is None
    are_numbers = all(_is_integer(ipu) and ipu >= 0 for ipu in value.values())
    return are_numbers and {0, *value.values()} == set(range(max([0, *value.values()]) + 1))


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_name, value)) and len(set(value)) == len(value)


def read_recomputation(text: str) -> Optional[int]:
    """Return the budget of a text as "200 MB" in bytes, and None for "sqrt"; ValueError for any other.

    >>> read_recomputation("1.5 MB"), read_recomputation("sqrt")
    (1500000, None)
    """
    if text == "sqrt":
        return None
    number, _space, unit = text.strip().partition(" ")
    budget = float(number) if unit.strip() == "MB" else 0.0
    if not 0 < budget < math.inf:
        raise ValueError(text)
    return int(1_000_000 * budget)


def _is_recomputation(value: object) -> bool:
    if not isinstance(value, str):
        return _are_names(value)
    try:
        return value == "none" or read_recomputation(value) != 0
    except ValueError:
        return False


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _are_shares(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_share, value))
    return value is None or _is_share(value)


def _are_parts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return value is None
    return all(_is_name(name) and is_count(parts) and parts > 1 for name, parts in value.items())


def _make_option(default: object, accepted: str, check: Callable[[Any], bool], **settings: Any) -> Any:
    """Make a field of `PortOptions` that takes the values which pass `check`; `accepted` says it in words."""
    return field(default=default, metadata={"accepted": accepted, "check": check}, **settings)


def _make_count() -> Any:
    return _make_option(1, "an integer of at least 1", is_count)


def _make_switch(*, default: bool) -> Any:
    return _make_option(default, "True or False", lambda value: isinstance(value, bool))


def _make_choice(*names: str) -> Any:
    """Make a field that takes one of `names`, by default the first."""
    accepted = f"one of {join_names(names, quote=_QUOTE)}"
    return _make_option(names[0], accepted, lambda value: isinstance(value, str) and value in names)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


@dataclass(frozen=True)
class PortOptions:
    """How a model runs on its device; every value is checked when the options are made (OptionError P002).

    A call takes `micro_batch` x `accumulation` x `replicas` x `device_iterations` samples and makes `device_iterations`
    optimizer steps. `output_mode` says what a training call returns: the last micro-batch of each replica ("default",
    "final"), all of them, their sum, or every `output_every`-th; inference always returns every row.
    `reduction` joins the gradients of accumulation and replicas. `broadcast_buffers=False` says that replicas may have
    buffers of their own: it is needed where `forward` itself writes into one. `precision="bfloat16"` is for the
    simulator alone. `seed` fixes the device's random stream and leaves the host's alone. `cache_dir` keeps compiled
    executables. `keep_gradients` brings the gradients of each call to the host, for `ported.gradients()`; it compiles
    twice, and with several micro-batches a call it needs `output_mode="all"`.

    `engine` chooses how the simulator runs a graph: "ready" takes a compiled executable that is on disk already, or
    else replays the graph at once; "auto" measures which way is the fastest, and keeps the result on disk; or the name
    of an engine. With "auto" a call starts as with "ready". A training that has lasted for some seconds is measured by
    a process of low priority, and goes on with what that found between two calls; `ported.compile` waits for it, up to
    `tuning_seconds`. The default, None, is "auto" for which nothing waits, or what the environment variable
    PORTING_ENGINE says.

    `stages` cuts the model into a pipeline: {"decoder": 1, "head": 0} begins a stage on IPU 1 where the module
    `decoder` is called, and another on IPU 0 where `head` is; what comes before the first is on IPU 0. The names are
    those of `model.named_modules()`, in the order in which the model runs. "cell#2" is the second call of `cell` alone,
    and stages that use the same weight are on the same IPU. A pipeline of N stages trains with an accumulation of at
    least 2 N - 1. Inference is pipelined where `device_iterations` fill it, and else runs stage
    after stage. Losses and gradients are those without stages.
    `recompute` names modules whose output an IPU keeps for the backward pass, which computes what lies between again;
    with stages it also keeps what enters a stage, and nothing else. The device's compiler is told so, and no result
    changes. With "sqrt", or a budget for what waits on an IPU, as "200 MB", `to_ipu` chooses the names by a plan for
    its `example`. `computation_order` does the same for the memory of the simulator's own machine. It chooses by itself
    what to keep, and a device is not told.

    `pipeline` takes the stages of a plan, `PortOptions(pipeline=porting.plan(...))`; with "auto", `to_ipu` plans them
    for its `example`. `optimizer_state="off_chip"` keeps the optimizer's state in streaming memory, and
    `shard_optimizer_state` divides it among replicas (replicated tensor sharding). `available_memory` is the share of
    an IPU's memory that one product may take for itself, of each IPU or of all (PopTorch's default is 0.6).
    `half_partials` sums products in half precision, and `serialize` computes the products of the Linear modules, and
    the lookups of the Embedding modules, that it names in so many parts, one after the other. They change where data
    lie on an IPU; the simulator's results stay.

    `allow` names errors that shall be none: "custom-autograd-function" (C005) says that the device may
    differentiate what the `forward` of a `torch.autograd.Function` does, because its `backward` is the same derivative.

    `frozen` concerns values that Python decides in `forward`, and that are compiled in: "check" warns of
    them (C020), "allow" does not, and a list names those that are meant. `memory` says what becomes of a step on
    the simulator that would not fit into an IPU (M001): "warn", "error" as on a device, or "ignore".

    `max_executables` is the number of shapes of batches that may be trained with, and inferred with: each gets an
    executable, and the least recently used one goes where there is no room for another (B001). All share the weights,
    the optimizer's state and the random stream.

    `without_remedies` names changes of libraries' code that are not made while a model is traced (C022); with "all"
    there are none, nor is an operator computed by others (C025). `strict` makes an error of each operator that would
    run on the host (C024).

    `debug_nan` looks behind every call if the loss, a weight or the optimizer's state is still finite, and else raises
    L009 with the module, the operator and the line where it began. It copies the device's state before each call.

    >>> options = PortOptions(micro_batch=4, accumulation=8, replicas=2, device_iterations=3)
    >>> options.samples_per_step, options.samples_per_call, options.micro_batches_per_call
    (64, 192, 48)
    """

    micro_batch: int = _make_count()
    accumulation: int = _make_count()
    replicas: int = _make_count()
    device_iterations: int = _make_count()
    output_mode: str = _make_choice("default", "final", "all", "sum", "every_n")
    output_every: int = _make_count()
    reduction: str = _make_choice("mean", "sum")
    precision: str = _make_choice("float32", "float16", "bfloat16", "mixed")
    broadcast_buffers: bool = _make_switch(default=True)
    keep_gradients: bool = _make_switch(default=False)
    seed: Optional[int] = _make_option(
        None,
        "None, or an integer from 0 to 2**64 - 1",
        lambda value: value is None or (_is_integer(value) and 0 <= value < 2**64),
    )
    cache_dir: Optional[Union[str, os.PathLike[str]]] = _make_option(
        None,
        "None, or the path of a folder",
        lambda value: value is None or (isinstance(value, (str, os.PathLike)) and bool(os.fspath(value))),
    )
    engine: Optional[str] = field(
        default_factory=lambda: os.environ.get("PORTING_ENGINE") or None,
        metadata={
            "accepted": "None, 'ready', 'auto', or the name of an engine",
            "check": lambda value: value is None or _is_name(value),
        },
    )
    tuning_seconds: float = _make_option(
        180.0,
        "a number above 0",
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf,
    )
    computation_order: str = _make_option("none", _ORDERS, is_computation_order)
    pipeline: object = _make_option(
        None,
        "None, 'auto', or a plan, whose `stages` it takes",
        lambda value: value in (None, "auto") or isinstance(getattr(value, "stages", None), Mapping),
        hash=False,
        compare=False,
    )
    stages: Optional[Mapping[str, int]] = _make_option(
        None,
        "None, or names of modules, or of their calls, with their IPU: 0, 1, ... without a gap",
        _are_stages,
        hash=False,
    )
    recompute: Union[str, Sequence[str]] = _make_option(
        (), "a list of names of modules, each once, 'none', 'sqrt', or a budget as '200 MB'", _is_recomputation
    )
    optimizer_state: str = _make_choice("on_chip", "off_chip")
    shard_optimizer_state: bool = _make_switch(default=False)
    available_memory: Optional[Union[float, Sequence[float]]] = _make_option(
        None, "None, a share from 0 to 1, or a list of shares, one for each IPU", _are_shares
    )
    half_partials: bool = _make_switch(default=False)
    serialize: Optional[Mapping[str, int]] = _make_option(
        None,
        "None, or names of Linear and Embedding modules with the number of parts, from 2 on",
        _are_parts,
        hash=False,
    )
    allow: Sequence[str] = _make_option(
        (),
        f"a list of {join_names(_ALLOWED, quote=_QUOTE)}, each once",
        lambda value: _are_names(value) and set(value) <= set(_ALLOWED),
    )
    frozen: Union[str, Sequence[str]] = _make_option(
        "check",
        "'check', 'allow', or a list of names, each once",
        lambda value: value in ("check", "allow") or _are_names(value),
    )
    memory: str = _make_choice("warn", "error", "ignore")
    max_executables: int = _make_count()
    without_remedies: Sequence[str] = _make_option(
        (), "a list of names of remedies, or of 'all', each once", _are_names
    )
    strict: bool = _make_switch(default=False)
    debug_nan: bool = _make_switch(default=False)

    def __post_init__(self) -> None:
        """Check every value and name all that are wrong at once."""
        problems = [
            (f"`{option.name}` is {getattr(self, option.name)!r}", f"{option.name}: {option.metadata['accepted']}")
            for option in dataclasses.fields(self)
            if not option.metadata["check"](getattr(self, option.name))
        ]
        problems = problems or _list_contradictions(self)
        if problems:
            faults = tuple(fault for fault, _accepted in problems)
            is_single = len(problems) == 1
            raise OptionError.at_caller(
                "P002",
                message=faults[0] if is_single else f"{len(problems)} options have values they cannot have",
                notes=() if is_single else faults,
                help=tuple(f"accepted values of {accepted}" for _fault, accepted in problems),
            )
        # copies, so that nobody can change them after the check
        if self.pipeline is not None and self.pipeline != "auto":
            object.__setattr__(self, "stages", getattr(self.pipeline, "stages"))  # noqa: B009 - of any plan
            object.__setattr__(self, "pipeline", None)
        for name in ("stages", "serialize"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}) or None)
        if self.recompute == "none":
            object.__setattr__(self, "recompute", ())
        for name in ("available_memory", "recompute", "allow", "frozen", "without_remedies"):
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(value) if isinstance(value, list) else value)

    @property
    def samples_per_step(self) -> int:
        """Samples between two optimizer steps: the batch size that a learning rate was tuned for."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def samples_per_call(self) -> int:
        """Samples that one training call takes: the combined batch."""
        return self.samples_per_step * self.device_iterations

    @property
    def samples_per_inference_call(self) -> int:
        """Samples that one inference call takes; nothing is accumulated there."""
        return self.micro_batch * self.replicas * self.device_iterations

    @property
    def micro_batches_per_call(self) -> int:
        """Micro-batches that one training call is cut into."""
        return self.accumulation * self.replicas * self.device_iterations

    @property
    def stage_ipus(self) -> Tuple[int, ...]:
        """The IPU of each stage of the pipeline, in order; modules that follow each other on one IPU are one stage.

        >>> PortOptions(stages={"blocks.2": 1, "blocks.3": 1, "head": 0}).stage_ipus
        (0, 1, 0)
        """
        return tuple(ipu for ipu, _stages in groupby([0, *(self.stages or {}).values()]))

    @property
    def least_accumulation(self) -> int:
        """The micro-batches that fill the pipeline of a training step: N stages forward and N - 1 more backward.

        >>> PortOptions(stages={"decoder": 1, "head": 0}).least_accumulation
        5
        """
        return 2 * len(self.stage_ipus) - 1

    @property
    def num_ipus(self) -> int:
        """IPUs that a replica is spread over."""
        return max(self.stage_ipus) + 1

    def replace(self, **changes: Any) -> PortOptions:
        """Return a copy with some values changed, checked like any other.

        >>> PortOptions(micro_batch=4).replace(replicas=2).samples_per_step
        8
        """
        return dataclasses.replace(self, **changes)


def _list_contradictions(options: PortOptions) -> List[Tuple[str, str]]:
    """Check the options that depend on each other, once each is valid: a fault, and which values are accepted."""
    if options.keep_gradients and options.output_mode != "all" and options.micro_batches_per_call > 1:
        fault = f"`keep_gradients` with `output_mode` {options.output_mode!r}, which returns some of them only"
        return [(fault, "output_mode: 'all'")]
    if options.pipeline is not None and options.stages:
        return [("`pipeline` and `stages` both say where stages begin", "pipeline: None, beside `stages`")]
    if isinstance(options.available_memory, (list, tuple)) and not options.pipeline:
        if len(options.available_memory) != options.num_ipus:
            fault = f"`available_memory` has {len(options.available_memory)} shares for {options.num_ipus} IPUs"
            return [(fault, "available_memory: one share for each IPU, or one for all")]
    every, per_replica = options.output_every, options.accumulation * options.device_iterations
    if options.output_mode != "every_n" and every != 1:
        fault = f"`output_every` is {every} with `output_mode` {options.output_mode!r}"
        return [(fault, "output_mode: 'every_n'")]
    if per_replica % every:
        fault = f"`output_every` is {every}, which does not divide a replica's micro-batches per call, {per_replica}"
        return [(fault, "output_every: a divisor of accumulation x device_iterations")]
    return []
