"""A second run of `forward` that follows the first: it gets what that capture got, until it does another thing.

Nothing is recorded and no shape is worked out: it takes a fraction of a capture. Handles are new, and what `forward`
has kept of the first run is of no more use to it than in a capture of its own.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NoReturn, Optional, Sequence, Tuple, Union

import torch

from ..structure import Structure, flatten_tensors
from ..support.function_modes import Args, Kwargs
from ..torch_insides.operators import OpOverload
from ..torch_insides.tensors import is_marked_as_parameter, mark_as_parameter
from .device_tensor import DeviceTensor
from .dtypes import device_dtype, is_device_dtype
from .forward_run import ONE_AT_A_TIME, ForwardRun
from .frozen_values import FrozenValue, are_same_tensors, are_same_values, name_operator, show_value
from .operator_schema import list_leaves, map_leaves
from .recording.bodies import Bodies
from .recording.call_log import CallLog, LoggedCall, read_modes
from .recording.recorder import Recorder

__all__ = ["Departure", "FirstRun"]


class Departure(BaseException):
    """Ends a second run that has left the way of the first; `forward` is not to catch it."""


class FirstRun:
    """The run of `forward` that a capture has made, to be followed by another one."""

    def __init__(self) -> None:
        """Begin before the capture."""
        self.log = CallLog()
        self._forward: Optional[ForwardRun] = None
        self._recorder: Any = None
        self._inputs: Sequence[DeviceTensor] = ()
        self._output: Any = None

    def keep(self, forward: ForwardRun, recorder: Recorder, inputs: Sequence[DeviceTensor], output: Structure) -> None:
        """Keep what a second run needs, if it can follow at all."""
        if self.log.is_complete:
            self._forward, self._recorder, self._inputs, self._output = forward, recorder, inputs, output

    def drop(self) -> None:
        """Let go of everything; there is nothing to follow then."""
        self.log, self._forward, self._recorder, self._inputs, self._output = CallLog(), None, None, (), None

    def follow(self) -> Tuple[bool, Optional[FrozenValue]]:
        """Run `forward` again; tell whether it did the same, and if not what was different first, if that is known.

        Exceptions of `forward` come through, also such as only a run that follows may meet.
        """
        if self._forward is None:
            return False, None
        first, forward = self._recorder, self._forward
        follower = _Follower(self.log.calls)
        recorder = _begin_again(first)
        for host, tensor in first.placed:
            recorder.place(host, follower.stand_in_for(tensor, recorder))
        inputs = [follower.stand_in_for(tensor, recorder) for tensor in self._inputs]
        with ONE_AT_A_TIME, torch.inference_mode(False), torch.set_grad_enabled(recorder.is_training):
            try:
                with forward.begin(recorder, lambda _finding: None, notes_paths=False):
                    recorder.calls = follower
                    output, _loss = forward.call(inputs)
                    follower.end(self._output, output)
            except (Departure, Exception):
                # `forward` may have turned it into an error of its own
                if not follower.has_departed:
                    raise
        return not follower.has_departed, follower.difference


def _begin_again(first: Recorder) -> Recorder:
    """Return a recorder for a second run of the same `forward`, with all that is known of the first one's tensors."""
    recorder = Recorder(
        reports=first.reports.without_listener(),
        prints=first.prints,
        is_training=first.is_training,
        node_facts=None,
        autocast=first.casts.autocast,
    )
    recorder.graph, recorder.fake_mode, recorder.facts = first.graph, first.fake_mode, first.facts.begin_again()
    recorder.bodies = Bodies(recorder)
    return recorder


def _make_stand_in(tensor: DeviceTensor, recorder: Recorder) -> DeviceTensor:
    """Return a handle of the run by `recorder` for what `tensor` was in the run before it."""
    stand_in = DeviceTensor(tensor.fake, tensor.node, recorder)
    if is_marked_as_parameter(tensor):
        mark_as_parameter(stand_in)
    recorder.facts.add_stand_in(stand_in, tensor)
    return stand_in


class _Follower:
    """Holds the calls of a run against those of the first, and answers with that one's results."""

    def __init__(self, calls: Sequence[LoggedCall]) -> None:
        self.has_departed = False
        self.difference: Optional[FrozenValue] = None
        self._calls = calls
        self._position = 0
        self._stand_ins: Dict[int, DeviceTensor] = {}

    def stand_in_for(self, tensor: DeviceTensor, recorder: Recorder) -> DeviceTensor:
        """Return the handle that this run has for `tensor` of the first, a new one where there is none yet."""
        known = self._stand_ins.get(id(tensor))
        if known is None:
            known = self._stand_ins[id(tensor)] = _make_stand_in(tensor, recorder)
        return known

    def take(
        self, recorder: Recorder, operator: Union[OpOverload, str], args: Args, kwargs: Kwargs, _run: Callable[[], Any]
    ) -> Any:
        """Return what the first run got for this call, or raise Departure."""
        if self.has_departed:
            raise Departure
        call = self._calls[self._position] if self._position < len(self._calls) else None
        if call is None or call.operator is not operator:
            self._end_run(call, self._name_next(), getattr(operator, "__name__", str(operator)), is_operator=True)
        assert call is not None
        if call.modes != read_modes():
            name = self._name_next()
            self._end_run(call, name, f"{name}, in another mode of torch", is_operator=True)
        self._compare_values(call, (call.args, call.kwargs), (args, kwargs))
        self._position += 1
        recorder.facts.advance()
        return map_leaves(
            lambda leaf: self.stand_in_for(leaf, recorder) if isinstance(leaf, DeviceTensor) else leaf, call.result
        )

    def note_other(self) -> None:
        """Refuse what no call asked for: the first run had nothing of the kind."""
        call = self._calls[self._position] if self._position < len(self._calls) else None
        self._end_run(call, self._name_next(), "another operator", is_operator=True)

    def end(self, before: object, after: object) -> None:
        """Compare what the runs have returned, and whether this one has done all that the first did."""
        if self.has_departed:
            raise Departure
        if self._position < len(self._calls):
            self._end_run(self._calls[self._position], self._name_next(), "nothing", is_operator=True)
        self._compare_values(None, before, after)
        # those inside of named tuples and the like
        self._compare_values(None, flatten_tensors(before), flatten_tensors(after))

    def _name_next(self) -> str:
        return name_operator(self._calls[self._position].node) if self._position < len(self._calls) else "nothing"

    def _compare_values(self, call: Optional[LoggedCall], before: object, after: object) -> None:
        ours, theirs = list_leaves(before), list_leaves(after)
        if len(ours) != len(theirs):
            self._end_run(call, f"{len(ours)} values", f"{len(theirs)} values")
        for one, other in zip(ours, theirs):
            if isinstance(one, DeviceTensor) and isinstance(other, DeviceTensor):
                if self._stand_ins.get(id(one)) is not other:
                    self._end_run(call, one.node, other.node)
            elif isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                if one is not other and not are_same_tensors(_narrow_type(one), _narrow_type(other)):
                    self._end_run(call, show_value(one), show_value(other))
            elif isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor) or not are_same_values(one, other):
                self._end_run(call, one, other)

    def _end_run(
        self, call: Optional[LoggedCall], before: object, after: object, *, is_operator: bool = False
    ) -> NoReturn:
        """End the run; what is different is told at the line of the first one, if it had got there."""
        self.has_departed = True
        node = None if call is None else call.node
        if node is not None and node.op == "placeholder":
            # a constant itself has no line: the operator that takes it does
            node = next(iter(node.users), node)
        meta = {} if node is None else node.meta
        self.difference = FrozenValue(
            before, after, meta.get("place"), str(meta.get("module_path", "")), changes_operators=is_operator
        )
        raise Departure


def _narrow_type(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the host as the device has it."""
    return tensor.detach().to(device_dtype(tensor.dtype)) if is_device_dtype(tensor.dtype) else tensor.detach()
