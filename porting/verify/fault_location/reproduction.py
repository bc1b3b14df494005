"""Programs of about ten lines that show a difference alone: modules with their settings, random input, both sides."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.engines.calls.group_settings import GroupSettings
from porting.structure import flatten_tensors
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.program_text import (
    write_call,
    write_function,
    write_module,
    write_number,
    write_tensor,
)
from porting.verify.fault_location.setting_differences import name_groups, read_plain_settings
from porting.verify.fault_location.step_trace import MicroBatchTrace, TensorForm
from porting.verify.fault_location.trace_comparison import ValueFault
from porting.verify.fault_location.traced_steps import ROOT
from porting.verify.plain_training import PlainTraining

__all__ = [
    "reproduce_buffer",
    "reproduce_gradient",
    "reproduce_loss",
    "reproduce_schedule",
    "reproduce_start",
    "reproduce_update",
    "reproduce_value",
]

Tensors = Mapping[str, torch.Tensor]

_HEAD = ("import torch", "import torch.nn.functional as F", "from torch import nn", "", "torch.manual_seed(0)")
_PRINT = 'print("largest difference:", float((found - expected).abs().max()))'


def _join_lines(*lines: str, head: Sequence[str] = _HEAD) -> str:
    body = "\n".join(lines)
    used = [line for line in head if not line.endswith(" as F") or "F." in body]
    used = [line for line in used if line != "from torch import nn" or "nn." in body.replace("torch.nn.", "")]
    return "\n".join([*used, body, ""])


def _find_module(path: str, model: nn.Module) -> Optional[nn.Module]:
    return model if path == ROOT else dict(model.named_modules()).get(path)


def _write_pair(path: str, evidence: Evidence) -> Tuple[Optional[str], Optional[str]]:
    pair = [_find_module(path, model) for model in (evidence.plain.model, evidence.ported.model)]
    texts = [None if module is None else write_module(module) for module in pair]
    return texts[0], texts[1]


def _write_inputs(path: str, evidence: Evidence, trace: MicroBatchTrace) -> Optional[str]:
    forms = trace.module_inputs.get(path, ())
    module = _find_module(path, evidence.plain.model)
    classes = int(getattr(module, "num_embeddings", 1))
    if not forms or not all(isinstance(form, TensorForm) for form in forms):
        return None
    return ", ".join(write_tensor(form, classes=classes) for form in forms)


# -- forward and loss --------------------------------------------------------------------------------------------------


def reproduce_value(fault: ValueFault, path: str, evidence: Evidence, trace: MicroBatchTrace) -> str:
    """Show the modules at `path` with the same weights and input; where no module can be written, the operators."""
    plain, ported = _write_pair(path, evidence)
    inputs = _write_inputs(path, evidence, trace)
    if plain is None or ported is None or plain == ported or inputs is None:
        return _reproduce_operators(fault)
    return _join_lines(
        f"plain = {plain}",
        f"ported = {ported}  # as in the port",
        "ported.load_state_dict(plain.state_dict(), strict=False)",
        f"inputs = [{inputs}]",
        "torch.manual_seed(1)",
        "expected = plain(*inputs)",
        "torch.manual_seed(1)",
        "found = ported(*inputs)",
        "if isinstance(found, tuple):",
        "    found, expected = found[0], expected[0]",
        *_COMPARE,
    )


_COMPARE = (
    "if found.shape != expected.shape:",
    '    raise SystemExit(f"the shapes differ: {list(found.shape)} and {list(expected.shape)}")',
    'print("largest difference:", float((found.double() - expected.double()).abs().max()))',
)


def _reproduce_operators(fault: ValueFault) -> str:
    forms: List[TensorForm] = []
    calls = [None if record is None else write_call(record, forms) for record in (fault.plain, fault.ported)]
    if not forms or (calls[0] is None and calls[1] is None) or calls[0] == calls[1]:
        return ""
    lines = ["t[0]" if call is None else call for call in calls]
    tensors = ", ".join(write_tensor(form) for form in forms)
    return _join_lines(
        f"t = [{tensors}]",
        f"expected = {lines[0]}",
        f"found = {lines[1]}  # in the port",
        "if isinstance(found, tuple) or isinstance(expected, tuple):",
        "    found, expected = (value[0] if isinstance(value, tuple) else value for value in (found, expected))",
        *_COMPARE,
    )


def reproduce_loss(evidence: Evidence, trace: MicroBatchTrace, code: str = "") -> str:
    """Show the two losses with the same output and labels; `code` is what happens to `labels` in the port."""
    losses = evidence.plain.loss, evidence.ported.port.loss
    texts = [_write_loss(loss, f"{side}_loss") for loss, side in zip(losses, ("plain", "ported"))]
    forms = _find_loss_forms(evidence, trace)
    if texts[0] is None or texts[1] is None or forms is None:
        return ""
    if texts[0].replace("plain_loss", "") == texts[1].replace("ported_loss", "") and not code:
        return ""
    output, labels = forms
    classes = output.shape[1] if len(output.shape) > 1 else 2
    code = code.replace("labels + 1", f"(labels + 1) % {classes}").replace("labels - 1", f"(labels - 1) % {classes}")
    probabilities = ".sigmoid()" if isinstance(losses[0], nn.BCELoss) else ""
    return _join_lines(
        *texts[0].split("\n"),
        *texts[1].split("\n"),
        f"output, labels = {write_tensor(output)}{probabilities}, {write_tensor(labels, classes=classes)}",
        "expected = plain_loss(output, labels)",
        f"found = ported_loss(output, {code or 'labels'})  # in the port",
        "found, expected = found.sum(), expected.sum()",
        _PRINT,
    )


def _write_loss(loss: Any, name: str) -> Optional[str]:
    if isinstance(loss, nn.Module):
        text = write_module(loss, with_mode=False)
        return None if text is None else f"{name} = {text}"
    if getattr(loss, "__module__", "") == "torch.nn.functional" and callable(loss):
        return f"{name} = F.{loss.__name__}"
    source = write_function(loss)
    return None if source is None else f"{source}\n{name} = {loss.__name__}"


def _find_loss_forms(evidence: Evidence, trace: MicroBatchTrace) -> Optional[Tuple[TensorForm, TensorForm]]:
    labels = flatten_tensors(evidence.micro_batches[0])
    if trace.output is None or not labels:
        return None
    return trace.output, TensorForm(tuple(labels[-1].shape), labels[-1].dtype)


# -- backward ----------------------------------------------------------------------------------------------------------


def reproduce_gradient(
    evidence: Evidence, parameter: str, *, shares: Sequence[float] = (), is_cut: bool = False
) -> str:
    """Show the gradient of one parameter, or with `shares` how much each micro-batch counts in the port's."""
    if shares:
        return _reproduce_joined(evidence, shares)
    factor = _find_factor(parameter, evidence.step.gradients, evidence.gradients)
    if factor is None and not is_cut:
        return _reproduce_elements(parameter, evidence.step.gradients, evidence.gradients)
    path, _, name = parameter.rpartition(".")
    trace = evidence.step.micro_batches[0]
    module = _find_module(path or ROOT, evidence.plain.model)
    text = None if module is None else write_module(module)
    inputs = _write_inputs(path or ROOT, evidence, trace)
    if text is None or inputs is None:
        return _reproduce_elements(parameter, evidence.step.gradients, evidence.gradients)
    ratio = 0.0 if is_cut else factor
    return _join_lines(
        f"plain = {text}",
        f"inputs = [{inputs}]",
        "output = plain(*inputs)",
        "output = output[0] if isinstance(output, tuple) else output",
        f"expected, = torch.autograd.grad((output * torch.randn_like(output)).sum(), plain.{name})",
        f"found = {ratio:.6g} * expected  # in the port, by what was measured",
        _PRINT,
    )


def _find_factor(name: str, plain: Tensors, ported: Tensors) -> Optional[float]:
    """Return what the plain tensor has to be multiplied by to be the port's; None where no factor makes it so."""
    if name not in plain or name not in ported:
        return None
    one, other = plain[name].double(), ported[name].double()
    factor = float((one * other).sum() / (one * one).sum())
    return factor if float((other - factor * one).norm()) <= 1e-3 * float(other.norm()) else None


def _reproduce_elements(name: str, plain: Tensors, ported: Tensors) -> str:
    """Show the elements of a tensor that differ most, as they were measured."""
    if name not in plain or name not in ported or plain[name].shape != ported[name].shape:
        return ""
    if torch.equal(plain[name].double(), ported[name].double()):
        return ""
    one, other = plain[name].double().flatten(), ported[name].double().flatten()
    places = (one - other).abs().topk(min(4, one.numel())).indices
    texts = [write_number([float(f"{float(tensor[place]):.9g}") for place in places]) for tensor in (one, other)]
    return _join_lines(
        f"# elements {places.tolist()} of `{name}`, as they were measured",
        f"expected = torch.tensor({texts[0]})  # plain PyTorch",
        f"found = torch.tensor({texts[1]})  # the port",
        _PRINT,
        head=("import torch", ""),
    )


def reproduce_start(name: str, plain: nn.Module, ported: nn.Module) -> str:
    """Show a tensor that has another value in the port from the start."""
    return _reproduce_elements(name, plain.state_dict(), ported.state_dict())


def _reproduce_joined(evidence: Evidence, shares: Sequence[float]) -> str:
    options = evidence.ported.options
    own, count = evidence.plain.accumulated, len(shares)
    settings = f"accumulation={options.accumulation}, replicas={options.replicas}, reduction={options.reduction!r}"
    if own != options.reduction and len(set(shares)) == 1 and count > 1:
        factor = "" if own == "mean" else f" * {count}"
        return _join_lines(
            "model = nn.Linear(4, 2)",
            "plain = copy.deepcopy(model)",
            f"x, y = torch.randn({2 * count}, 4), torch.randn({2 * count}, 2)",
            f'options = PortOptions({settings}, keep_gradients=True, output_mode="all")',
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
            'ported = to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")',
            "ported(x, y)",
            f"(nn.MSELoss()(plain(x), y){factor}).backward()",
            'expected, found = plain.weight.grad, ported.gradients()["weight"]',
            _PRINT,
            head=("import copy", "", *_HEAD[:3], "from porting import PortOptions, to_ipu", *_HEAD[3:]),
        )
    return _join_lines(
        "plain = nn.Linear(4, 2)",
        f"parts = [(torch.randn(2, 4), torch.randn(2, 2)) for _ in range({count})]",
        "losses = [nn.functional.mse_loss(plain(x), y) for x, y in parts]",
        "gradients = [torch.autograd.grad(loss, plain.weight)[0] for loss in losses]",
        f"shares = {[round(share, 6) for share in shares]}  # how much each counts in the port",
        f"expected = sum(gradients){'' if own == 'sum' else f' / {count}'}",
        f"found = sum(share * part for share, part in zip(shares, gradients)){'' if own == 'sum' else f' / {count}'}",
        _PRINT,
    )


# -- buffers, updates, schedules ---------------------------------------------------------------------------------------


def reproduce_buffer(evidence: Evidence, path: str, name: str, code: str = "") -> str:
    """Show a buffer behind one pass of the modules at `path`; `code` does to `ported` what the port does."""
    plain, ported = _write_pair(path, evidence)
    inputs = _write_inputs(path, evidence, evidence.step.micro_batches[0])
    if plain is None or ported is None or inputs is None or (plain == ported and not code):
        return _reproduce_elements(name, evidence.step.after.buffers, evidence.observed.after.buffers)
    attribute = name.rpartition(".")[2]
    return _join_lines(
        f"plain = {plain}",
        f"ported = {ported}  # as in the port",
        *([code] if code and plain == ported else []),
        f"inputs = [{inputs}]",
        "plain(*inputs)",
        "ported(*inputs)",
        f"expected, found = plain.{attribute}, ported.{attribute}",
        _PRINT,
    )


def reproduce_update(evidence: Evidence, parameter: str) -> str:
    """Show three updates by the two optimizers, with the settings that `parameter` has on each side."""
    try:
        own = read_plain_settings(evidence.plain)
    except AssertionError:
        return ""
    names = name_groups(evidence.plain.optimizer, evidence.plain.model)
    pair = _find_settings(parameter, own, names), _find_settings(parameter, evidence.groups, evidence.group_names)
    texts = ["None" if settings is None else write_optimizer(settings) for settings in pair]
    if texts[0] is None or texts[1] is None:
        return ""
    norms = [None if settings is None else settings.max_grad_norm for settings in pair]
    if texts[0] == texts[1] and norms[0] == norms[1]:
        return _reproduce_numbers(evidence, parameter, texts[0])
    return _join_lines(
        "weights = [nn.Parameter(torch.ones(4, dtype=torch.float64)) for _ in range(2)]",
        "plain, ported = [weights[0]], [weights[1]]",
        f"optimizers = {texts[0].replace('PARAMETERS', 'plain')}, {texts[1].replace('PARAMETERS', 'ported')}",
        f"norms = {[norm if norm is not None and norm < 1e30 else None for norm in norms]}",
        "for step in range(3):",
        f"    gradient = {'1e-6 * ' if _differ_in_eps(pair) else ''}torch.randn(4, dtype=torch.float64)",
        "    for weight, optimizer, norm in zip(weights, optimizers, norms):",
        "        weight.grad = gradient.clone()",
        "        _ = norm and nn.utils.clip_grad_norm_([weight], norm)",
        "        _ = optimizer and optimizer.step()",
        "expected, found = weights[0].detach(), weights[1].detach()",
        _PRINT,
    )


def _differ_in_eps(pair: Sequence[Optional[GroupSettings]]) -> bool:
    # which shows where gradients are small
    return len({settings.eps for settings in pair if settings is not None}) > 1


def _find_settings(
    parameter: str, groups: Sequence[GroupSettings], names: Sequence[Sequence[str]]
) -> Optional[GroupSettings]:
    return next((settings for settings, of_group in zip(groups, names) if parameter in of_group), None)


def write_optimizer(settings: GroupSettings) -> Optional[str]:
    """Return an expression that makes torch's optimizer of `PARAMETERS` with these settings; None where it has none."""
    kind, rate = settings.kind.name, f"lr={settings.learning_rate:.9g}, weight_decay={settings.weight_decay:.9g}"
    if kind.startswith("SGD"):
        momentum = f"momentum={settings.momentum:.9g}, dampening={settings.dampening:.9g}, nesterov={settings.nesterov}"
        return f"torch.optim.SGD(PARAMETERS, {rate}, {momentum})"
    if kind.startswith("ADAM"):
        name = "AdamW" if kind.startswith("ADAMW") else "Adam"
        betas = f"betas=({settings.beta1:.9g}, {settings.beta2:.9g}), eps={settings.eps:.9g}"
        return f"torch.optim.{name}(PARAMETERS, {rate}, {betas})"
    if kind.startswith("RMSPROP"):
        rest = f"alpha={settings.alpha:.9g}, eps={settings.eps:.9g}, momentum={settings.momentum:.9g}"
        return f"torch.optim.RMSprop(PARAMETERS, {rate}, {rest}, centered={kind.endswith('CENTERED')})"
    return None


def _reproduce_numbers(evidence: Evidence, parameter: str, optimizer: str) -> str:
    """Show the update of a few elements by plain PyTorch beside that of the port, which settings do not explain."""
    after = evidence.observed.after.parameters or (evidence.replayed.after.parameters if evidence.replayed else {})
    gradient = evidence.step.gradients.get(parameter)
    if gradient is None or parameter not in after or evidence.step.before.slots.get(parameter):
        plain = evidence.step.after.parameters.get(parameter)
        if plain is None or parameter not in after:
            return ""
        place = _find_largest(plain, after[parameter])
        return _join_lines(
            f"# `{parameter}` behind step, where they differ most",
            f"expected = torch.tensor({_pick_element(plain, place)})  # plain PyTorch",
            f"found = torch.tensor({_pick_element(after[parameter], place)})  # the port",
            _PRINT,
        )
    place = _find_largest(evidence.step.after.parameters[parameter], after[parameter])
    weight = _pick_element(evidence.step.before.parameters[parameter], place)
    return _join_lines(
        f"weight = torch.nn.Parameter(torch.tensor([{weight}]))",
        f"weight.grad = torch.tensor([{_pick_element(gradient, place)}])",
        f"optimizer = {optimizer.replace('PARAMETERS', '[weight]')}",
        "optimizer.step()",
        f"expected, found = weight.detach(), torch.tensor([{_pick_element(after[parameter], place)}])  # in the port",
        _PRINT,
    )


def _find_largest(one: torch.Tensor, other: torch.Tensor) -> int:
    return int((one.double() - other.double()).abs().flatten().argmax())


def _pick_element(tensor: torch.Tensor, place: int) -> str:
    return f"{float(tensor.flatten()[place]):.9g}"


def reproduce_schedule(plain: PlainTraining, rates: Sequence[float], others: Sequence[float]) -> str:
    """Show the learning rates of the schedule beside those that the device saw."""
    count = min(len(rates), len(others), 20)
    if not count:
        return ""
    text = [write_number(value) for value in (list(rates[:count]), list(others[:count]))]
    return _join_lines(
        f"expected = torch.tensor({text[0]})  # {type(plain.scheduler).__name__} of plain PyTorch, step by step",
        f"found = torch.tensor({text[1]})  # what the device saw",
        _PRINT,
        head=("import torch", ""),
    )
