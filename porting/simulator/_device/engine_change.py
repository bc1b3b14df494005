"""Exchange a training's executable between two calls: `EngineChange` takes a faster one, and returns if it is not.

The device session looks for one between two calls.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median
from typing import Callable, Deque, Optional, Sequence

import torch

from ...diagnostics import Finding
from ...engines.calls.device_state import DeviceState
from ...engines.contract.failures import failure_reason
from ...executables.background import BackgroundTuning
from ...executables.obtain import Obtained
from .._compile.program import CompiledModel
from .perf_counters import CallTimes

__all__ = ["EngineChange"]

# So many calls before and after a change are compared; a few after it are warm-up.
_NUM_COMPARED = 25
_NUM_WARM_UP = 5
# A change that was measured to gain goes back only if it clearly loses here.
_LOSS = 1.1


class EngineChange:
    """Waits for a faster executable of `compiled`, exchanges it, and watches whether it is faster in this training.

    `adopt` tells the session's other parts that the state on the device has moved to other tensors.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        tuning: BackgroundTuning[Obtained],
        *,
        adopt: Callable[[DeviceState], None],
        report: Callable[[Finding], None],
    ) -> None:
        """Begin with the executable of `compiled`."""
        self._is_over = False
        self._compiled = compiled
        self._tuning = tuning
        self._adopt = adopt
        self._report = report
        self._seconds: Deque[float] = deque(maxlen=_NUM_COMPARED)
        self._num_calls = self._num_calls_before = 0
        # the executable of before and the seconds of its calls, while they are compared
        self._before: Optional[Obtained] = None
        self._seconds_before = 0.0

    def look(self, inputs: Sequence[torch.Tensor], last_call: Optional[CallTimes]) -> bool:
        """Take a faster executable between two calls, or go back; tell whether to look again before the next call."""
        if last_call is not None:
            _entered, started, ended, _left = last_call
            self._num_calls += 1
            self._seconds.append(ended - started)
        if self._before is not None:
            self._judge_change(self._before)
        else:
            found = self._tuning.look(self._compiled.state, inputs)
            if found is not None:
                self._take_over(found)
            elif self._tuning.is_over:
                self._is_over = True
        return not self._is_over

    def stop(self) -> None:
        """End the search."""
        self._is_over = True
        self._tuning.stop()

    def _take_over(self, found: Obtained) -> None:
        before = self._compiled.obtained
        self._is_over = found.choice == before.choice
        if self._is_over:
            # only the knowledge of it changes
            self._compiled.obtained = replace(before, tuning=found.tuning)
            self._say_change(f"nothing was found that is faster than `{before.choice.label}`")
            return
        try:
            self._exchange_executable(found)
        except Exception as error:
            # too little memory for another layout of the weights, for instance
            self._is_over = True
            self._say_change(f"the executable `{found.choice.label}` cannot take over: {failure_reason(error)}")
            return
        self._before, self._seconds_before = before, median(self._seconds) if self._seconds else 0.0
        self._seconds.clear()
        self._num_calls_before = self._num_calls
        self._say_change(f"from call {self._num_calls + 1} on the step runs as {found.summary}")

    def _judge_change(self, before: Obtained) -> None:
        """Keep the new executable unless it is slower than the old one was, by the clock of this training."""
        if self._num_calls - self._num_calls_before == _NUM_WARM_UP:
            self._seconds.clear()
        if self._num_calls - self._num_calls_before < _NUM_WARM_UP + _NUM_COMPARED:
            return
        self._is_over = True
        seconds = median(self._seconds)
        if seconds > _LOSS * self._seconds_before > 0.0:
            slower = seconds / self._seconds_before
            label = self._compiled.obtained.choice.label
            self._exchange_executable(before)
            self._say_change(f"from call {self._num_calls + 1} on as before: `{label}` took {slower:.2f} times as long")
        self._before = None

    def _exchange_executable(self, obtained: Obtained) -> None:
        """Let `obtained` run the next call, with the present weights, optimizer's state and random stream."""
        compiled = self._compiled
        state = compiled.state
        if obtained.graph is not compiled.obtained.graph:
            state = state.copy_for(obtained.graph)
        compiled.obtained, compiled.state = obtained, state
        self._adopt(state)

    def _say_change(self, message: str) -> None:
        self._report(Finding("E011", message=message))
