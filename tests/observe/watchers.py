"""A watcher that writes down what it is told."""

from __future__ import annotations

from typing import Any, List, Tuple

from porting.observe.watcher import BackwardPass, ForwardResults, OperatorCall, StepState


class Notes:
    """Writes down the operators and the events of a step, in their order."""

    def __init__(self) -> None:
        self.events: List[str] = []
        self.calls: List[OperatorCall] = []
        self.inputs: List[List[Tuple[str, str]]] = []
        self.results: List[ForwardResults] = []
        self.backwards: List[BackwardPass] = []
        self.states: List[StepState] = []

    def run_operator(self, call: OperatorCall) -> Any:
        self.events.append(call.operator.name.rpartition(".")[2])
        self.calls.append(call)
        named = call.operands.name_inputs(call.args, call.kwargs)
        self.inputs.append([(value.name, value.kind) for value in named])
        return call.run()

    def end_forward(self, results: ForwardResults) -> None:
        self.events.append("END OF FORWARD")
        self.results.append(results)

    def run_backward(self, backward: BackwardPass) -> None:
        self.events.append("BACKWARD")
        self.backwards.append(backward)
        backward.run()

    def end_update(self, state: StepState) -> None:
        self.events.append("UPDATE")
        self.states.append(state)
