"""Bind compiled programs to a device's tensors, run them, and gather their results.

The compiling engines return such an executable.
"""

from __future__ import annotations

import copy
import dataclasses
from contextlib import nullcontext
from typing import Callable, Dict, List, Mapping, Optional, Sequence

import torch

from ...capture import StepGraph
from ...diagnostics import Finding, log_finding
from ...torch_insides.modes import DisableTorchFunction
from ..calls.call_plan import CallPlan, MicroBatch, OutputCollector, make_synthetic_inputs
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, Executable
from ..calls.group_settings import GroupSettings
from ..calls.guards import draw_from_stream_of, shut_out_host_modes
from ..update.traced_updates import compute_group_hyper_parameters, compute_step_hyper_parameters, describe_update
from ..update.updates import apply_update
from .bound_state import Arguments, BoundState, Mismatch
from .call_layout import CallLayout, ResultsOfRuns, describe_plan, find_num_blocks
from .index_bounds import has_bad_index
from .programs import Runner
from .why_replay import why_plan_is_replayed

__all__ = ["CompiledExecutable"]


Inputs = Sequence[torch.Tensor]
Results = List[torch.Tensor]


class CompiledExecutable:
    """Programs compiled for the calls that `layout` describes, by their roles in `runners`.

    A call that differs is done by the executable that `fallback` makes, and the `report` of the request gets a finding
    E008 of why, once; it goes to the log without one. What a program cannot do with the values that it gets raises the
    error of replay, which names the operator.
    """

    def __init__(
        self,
        graph: Optional[StepGraph],
        request: BuildRequest,
        layout: CallLayout,
        runners: Mapping[str, Runner],
        fallback: Callable[[], Executable],
        *,
        name: str = "compiled",
    ) -> None:
        """Take loaded programs; the graph is kept for who asks, and may be None."""
        self.name = name
        self.graph = graph
        self.layout = layout
        self.request = request
        self._runners = runners
        self._make_fallback = fallback
        self._fallback: Optional[Executable] = None
        self._report = request.report or log_finding
        self._is_reported = False
        self._bound: Optional[BoundState] = None
        self._plan: Optional[CallPlan] = None
        self._groups: List[GroupSettings] = []
        self._group_names: Optional[List[List[str]]] = None
        self._hyper_parameters: Optional[torch.Tensor] = None
        self._synthetic: Optional[Inputs] = None
        self._num_done = 0  # how many runs of a call have ended
        self._updated_groups = () if layout.fused_update else layout.groups
        # Without bias corrections the hyper-parameters of a call stay the same until somebody sets them.
        self._counts_matter = any(group.structure["bias_correction"] for group in self._updated_groups)
        self._role = layout.role_of_runs

    @property
    def is_replaying(self) -> bool:
        """Whether a call has been replayed, because it did not fit the programs."""
        return self._fallback is not None

    def run(
        self,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        plan: CallPlan,
        *,
        groups: Sequence[GroupSettings] = (),
        group_names: Sequence[Sequence[str]] = (),
    ) -> List[torch.Tensor]:
        """Run one device call on a full batch and update `state`, as `ReplayExecutable.run` does."""
        stream = draw_from_stream_of(state) if self.layout.is_random else _NOTHING
        # nothing here requires a gradient, but some operators prepare for their backward pass only if it may come
        guards = shut_out_host_modes(self.request.choice.num_threads)
        with guards, torch.set_grad_enabled(self.layout.trains), DisableTorchFunction():
            try:
                bound = self._bind_state(state, plan, groups, group_names)
                given = self._fit_inputs(inputs, plan)
                hyper_parameters = self._compute_hyper_parameters(bound, plan, groups)
            except Mismatch as mismatch:
                self._report_mismatch(str(mismatch))
            else:
                # Programs write weights while they run. What would fail in the middle is replayed, which fails before
                # it updates.
                if has_bad_index(given, self.layout.bounds):
                    return self._get_replay().run(state, inputs, plan, groups=groups, group_names=group_names)
                run = self._run_steps if self.layout.kind == "steps" else self._run_micro_batches
                self._num_done = 0
                with stream:
                    try:
                        collected = run(bound, given, plan, hyper_parameters)
                    except BaseException as error:
                        bound.empty_accumulators()
                        bound.advance(self._num_done * self.layout.steps_per_run)
                        # A KeyboardInterrupt was caused by no operator, and a replay would not show it again.
                        if isinstance(error, Exception):
                            self._raise_as_replay(bound.state, given, plan)
                        raise
                bound.advance(plan.iterations)
                results = collected.combine()
                # after the run: a call that failed leaves the scaling of the last good one
                state.final_loss_scale = groups[0].loss_scaling if self.layout.trains else state.final_loss_scale
                return results
        return self._get_replay().run(state, inputs, plan, groups=groups, group_names=group_names)

    # -- does the call fit? --------------------------------------------------------------------------------------------

    def _bind_state(
        self, state: DeviceState, plan: CallPlan, groups: Sequence[GroupSettings], group_names: Sequence[Sequence[str]]
    ) -> BoundState:
        """Return the tensors of `state` as arguments; raise Mismatch if the call is not what was compiled."""
        # By identity: a call passes the plan that the last one did, and comparing plans would take longer than small
        # steps.
        if plan is not self._plan:
            self._adopt_plan(plan)
        if self.layout.trains and list(groups) != self._groups:
            self._adopt_groups(groups)
        if self.layout.trains and list(group_names) != self._group_names:
            self._group_names = None
            if [tuple(names) for names in group_names] != [group.names for group in self.layout.groups]:
                raise Mismatch("the optimizer's groups have other parameters")
            self._group_names = [list(names) for names in group_names]
        if state.loss_scale_factor is not None:
            raise Mismatch("the loss scaling adapts itself")
        if self._bound is None or not self._bound.is_current(state):
            self._bound = None
            self._bound = BoundState(state, self.layout, groups)
        return self._bound

    def _adopt_plan(self, plan: CallPlan) -> None:
        # Forgotten first: after a mismatch the next call has to be looked at again.
        self._hyper_parameters = self._plan = None
        reason = why_plan_is_replayed(plan)
        if reason:
            raise Mismatch(reason)
        if describe_plan(plan) != self.layout.plan:
            raise Mismatch("a call consists of other micro-batches, or returns others")
        self._plan = plan

    def _adopt_groups(self, groups: Sequence[GroupSettings]) -> None:
        self._hyper_parameters, self._groups = None, []
        structures = [describe_update(settings) for settings in groups]
        if structures != [dict(group.structure) for group in self.layout.groups]:
            raise Mismatch("the optimizer's arithmetic has changed: its kind, a type, or a setting that was zero")
        self._groups = list(groups)

    def _fit_inputs(self, inputs: Inputs, plan: CallPlan) -> Inputs:
        """Return the inputs as the programs take them, copied only where their memory is in another order."""
        if plan.synthetic:
            self._synthetic = inputs = self._synthetic or make_synthetic_inputs(inputs, plan.synthetic)
        fitting = list(inputs)
        if len(fitting) != len(self.layout.inputs):
            raise Mismatch("the call has another number of inputs")
        for index, (tensor, spec) in enumerate(zip(inputs, self.layout.inputs)):
            if tensor.shape != spec.shape or tensor.dtype != spec.dtype:
                raise Mismatch("an input has another shape or type")
            if tensor.requires_grad:
                fitting[index] = tensor = tensor.detach()
            # A lazy negation is a flag of the tensor that compiled code does not know of.
            if not tensor.is_contiguous() or tensor.is_neg():
                fitting[index] = tensor.resolve_neg().contiguous()
        return fitting

    def _compute_hyper_parameters(
        self, bound: BoundState, plan: CallPlan, groups: Sequence[GroupSettings]
    ) -> Optional[torch.Tensor]:
        """Return the hyper-parameters of all steps of a call, [step, field]."""
        if not self.layout.trains:
            return None
        counts = bound.read_counts() if self._updated_groups else []
        if self._hyper_parameters is None or self._counts_matter:
            common = compute_step_hyper_parameters(
                groups, backward_scale=plan.backward_scale, update_scale=plan.update_scale
            )
            steps = []
            for step in range(1, plan.iterations + 1):
                fields = list(common)
                for settings, layout, count in zip(groups, self._updated_groups, counts):
                    fields += compute_group_hyper_parameters(settings, layout.structure, count=count + step)
                steps.append(fields)
            self._hyper_parameters = torch.tensor(steps, dtype=torch.float32)
        return self._hyper_parameters

    def _report_mismatch(self, reason: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._report(
                Finding(
                    "E008",
                    f"the compiled step does not fit a call: {reason}",
                    notes="such calls are replayed, which gives the same results more slowly",
                    help="compile the model anew with the optimizer and options as they are now",
                )
            )

    def _get_replay(self) -> Executable:
        if self._fallback is None:
            self._fallback = self._make_fallback()
        return self._fallback

    # -- programs of whole steps ---------------------------------------------------------------------------------------

    def _run_steps(
        self, bound: BoundState, inputs: Inputs, plan: CallPlan, hyper_parameters: Optional[torch.Tensor]
    ) -> ResultsOfRuns:
        layout = self.layout
        arguments, runner = bound.find_arguments(self._role), self._runners[self._role]
        num_runs = plan.iterations // layout.steps_per_run
        windows = [(index, self._cut_windows(inputs[which], plan, num_runs)) for index, which in arguments.inputs]
        rows: Sequence[Optional[torch.Tensor]] = (hyper_parameters,)
        if hyper_parameters is not None and num_runs > 1:
            rows = hyper_parameters.split(layout.steps_per_run)
        tensors, results = arguments.tensors, ResultsOfRuns(layout)
        for number in range(num_runs):
            for index, of_runs in windows:
                tensors[index] = of_runs[number]
            if arguments.hyper_parameters is not None:
                tensors[arguments.hyper_parameters] = rows[number]
            found = runner(tensors)
            if layout.fused_update:
                num_results = len(found) - len(layout.trained)
                self._update_weights(bound, plan, bound.match_gradients(found[num_results:]))
                found = found[:num_results]
            self._num_done += 1
            results.add(found)
        return results

    def _raise_as_replay(self, state: DeviceState, inputs: Inputs, plan: CallPlan) -> None:
        """Replay a run that failed, on a copy of the device: its error knows the operator and the user's line."""
        num_runs, window_of = plan.iterations // self.layout.steps_per_run, []
        for tensor in inputs:
            window = self._cut_windows(tensor, plan, num_runs)[self._num_done]
            window_of.append(window if tensor.dim() == 0 else window.reshape(-1, *tensor.shape[1:]))
        of_run = dataclasses.replace(plan, iterations=self.layout.steps_per_run, synthetic="")
        tensors = {
            name: copy.deepcopy(getattr(state, name), {}) for name in ("parameters", "buffers", "slots", "rng_state")
        }
        # A copy, because the failed run may have written a part of the weights.
        copied = dataclasses.replace(state, **tensors)
        self._get_replay().run(copied, window_of, of_run, groups=self._groups, group_names=self._group_names or ())

    def _cut_windows(self, tensor: torch.Tensor, plan: CallPlan, num_runs: int) -> Sequence[torch.Tensor]:
        """Return what each run takes of an input."""
        if tensor.dim() == 0:
            return [tensor] * num_runs
        num_blocks = find_num_blocks(plan)
        if num_blocks:
            by_group = tensor.view(num_blocks, -1, *tensor.shape[1:])
            return by_group.split(by_group.shape[1] // num_runs, dim=1)
        return (tensor,) if num_runs == 1 else tensor.split(tensor.shape[0] // num_runs)

    def _update_weights(self, bound: BoundState, plan: CallPlan, gradients: Dict[str, torch.Tensor]) -> None:
        """End a step whose programs do not update."""
        apply_update(
            self._groups,
            self._group_names or (),
            bound.state.parameters,
            bound.state.slots,
            accumulated=gradients,
            scale=plan.update_scale,
            is_fused=True,
        )

    # -- programs of single runs ---------------------------------------------------------------------------------------

    def _run_micro_batches(
        self, bound: BoundState, inputs: Inputs, plan: CallPlan, hyper_parameters: Optional[torch.Tensor]
    ) -> OutputCollector:
        layout = self.layout
        collector = OutputCollector(plan, constant=layout.constant_outputs)
        for number, micro_batches in enumerate(plan.steps):
            row = None if hyper_parameters is None else hyper_parameters[number : number + 1]
            for first in range(0, len(micro_batches), layout.micro_batches_at_once):
                at_once = micro_batches[first : first + layout.micro_batches_at_once]
                arguments = bound.find_arguments(self._role, at_once[0].replica)
                for index, which in arguments.inputs:
                    arguments.tensors[index] = _cut_rows(inputs[which], at_once, plan)
                results = self._run_program(self._role, arguments, row)
                for index, micro_batch in enumerate(at_once):
                    if collector.wants(micro_batch):
                        of_one = results[index * layout.num_results : (index + 1) * layout.num_results]
                        collector.add(micro_batch, of_one)
            if layout.fused_update:
                self._update_weights(bound, plan, dict(bound.accumulators))
                bound.empty_accumulators()
            elif layout.trains:
                self._run_program("update", bound.find_arguments("update"), row)
            self._num_done += 1
        return collector

    def _run_program(self, role: str, arguments: Arguments, row: Optional[torch.Tensor]) -> Results:
        if arguments.hyper_parameters is not None:
            arguments.tensors[arguments.hyper_parameters] = row
        return self._runners[role](arguments.tensors)


_NOTHING = nullcontext()


def _cut_rows(tensor: torch.Tensor, micro_batches: Sequence[MicroBatch], plan: CallPlan) -> torch.Tensor:
    """Return the rows of micro-batches, one after the other."""
    if tensor.dim() == 0:
        return tensor
    num_rows = tensor.shape[0] // plan.num_slices
    positions = [micro_batch.position for micro_batch in micro_batches]
    if positions == list(range(positions[0], positions[0] + len(positions))):
        return tensor.narrow(0, positions[0] * num_rows, len(positions) * num_rows)
    return torch.cat([tensor.narrow(0, position * num_rows, num_rows) for position in positions])
