"""Write programs of about ten lines that show a difference alone, with a module or an operator of both sides.

A location has one where running it shows a difference.
"""

from __future__ import annotations

import inspect
import io
import re
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from typing import List, Optional

import torch
from torch import nn

from porting.support.host_state import keep_streams
from porting.torch_insides.modules import LOSSES
from porting.verify.certificate import Location
from porting.verify.fault_location.evidence import Evidence, find_module
from porting.verify.fault_location.step_trace import TensorForm, ValueRecord
from porting.verify.fault_location.trace_comparison import ValueFault
from porting.verify.fault_location.traced_steps import LOSS

__all__ = ["reproduce_fault", "reproduce_module", "without_idle_reproduction"]

_DIFFERENCE = re.compile(r"^largest difference: (\S+)$", re.MULTILINE)
_PROGRAM = """import torch
from torch import nn

torch.manual_seed(0)
{lines}
if isinstance(found, tuple):
    found, expected = found[0], expected[0]
apart = (found.double() - expected.double()).detach() if found.shape == expected.shape else torch.tensor(float("inf"))
print("largest difference:", float(apart.abs().max()))
"""


def reproduce_fault(fault: ValueFault, path: str, evidence: Evidence) -> str:
    """Show the modules at `path` with the same weights and input; where they are alike, the operators."""
    return reproduce_module(path, evidence) or _reproduce_operators(fault)


def reproduce_module(path: str, evidence: Evidence, *, attribute: str = "") -> str:
    """Show what the modules at `path` give for the same weights and input, or a buffer behind that."""
    if path == LOSS:
        pair = [evidence.plain.loss, evidence.ported.port.loss]
    else:
        pair = [find_module(path, model) for model in (evidence.plain.model, evidence.ported.model)]
    texts = list(map(_write_module, pair))
    traces = evidence.step.micro_batches
    forms = traces[0].module_inputs.get(path, ()) if traces else ()
    if None in texts or texts[0] == texts[1] or not forms or not all(isinstance(form, TensorForm) for form in forms):
        return ""
    # labels are of as many classes as the output has
    classes = getattr(pair[0], "num_embeddings", forms[0].shape[-1] if path == LOSS and forms[0].shape else 1)
    inputs = ", ".join(_write_tensor(form, classes) for form in forms)
    inputs = inputs.replace(")", ").sigmoid()", 1) if isinstance(pair[0], nn.BCELoss) else inputs
    lines = [
        f"plain = {texts[0]}",
        f"ported = {texts[1]}  # as in the port",
        "ported.load_state_dict(plain.state_dict(), strict=False)",
        f"inputs = [{inputs}]",
        *(f"torch.manual_seed(1)\n{side} = {module}(*inputs)" for side, module in _SIDES),
        *(f"{side} = {module}.{attribute}" for side, module in _SIDES if attribute),
    ]
    return _PROGRAM.format(lines="\n".join(lines))


_SIDES = (("expected", "plain"), ("found", "ported"))


def _reproduce_operators(fault: ValueFault) -> str:
    forms: List[TensorForm] = []
    calls = ["t[0]" if record is None else _write_call(record, forms) for record in (fault.plain, fault.ported)]
    if not forms or calls[0] == calls[1]:
        return ""
    tensors = ", ".join(_write_tensor(form) for form in forms)
    return _PROGRAM.format(lines=f"t = [{tensors}]\nexpected = {calls[0]}\nfound = {calls[1]}  # in the port")


# -- text --------------------------------------------------------------------------------------------------------------


def _write_module(module: object) -> Optional[str]:
    """Return an expression that makes a module of torch with the settings of `module`; None for one of the user's."""
    name = type(module).__name__
    if not isinstance(module, nn.Module) or getattr(nn, name, None) is not type(module):
        return None
    arguments = module.extra_repr()
    if isinstance(module, LOSSES):  # which do not tell their settings
        names = [name for name in inspect.signature(type(module).__init__).parameters if hasattr(module, name)]
        arguments = ", ".join(f"{name}={_write_value(getattr(module, name))}" for name in names)
    return f"nn.{name}({arguments}){'' if module.training else '.eval()'}"


def _write_value(value: object) -> str:
    """Return the text of a setting; of what cannot be written the program does not run, and is not shown."""
    if isinstance(value, torch.Tensor):
        return f"torch.tensor({value.tolist()})"
    return f"[{', '.join(map(_write_value, value))}]" if isinstance(value, (list, tuple)) else repr(value)


def _write_tensor(form: TensorForm, classes: int = 1) -> str:
    shape = list(form.shape)
    if form.dtype.is_floating_point:
        return f"torch.randn({shape}).to({form.dtype})"
    return f"torch.randint({2 if form.dtype == torch.bool else max(classes, 1)}, {shape}).to({form.dtype})"


def _write_call(record: ValueRecord, forms: List[TensorForm]) -> str:
    """Return a call of an operator with tensors `t[0]`, `t[1]`, ... of `forms`, which may become more."""
    taken: List[int] = []

    def write(value: object) -> str:
        if isinstance(value, TensorForm):
            free = [place for place, form in enumerate(forms) if form == value and place not in taken]
            forms.extend([] if free else [value])
            taken.append(free[0] if free else len(forms) - 1)
            return f"t[{taken[-1]}].clone()"
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return f"[{', '.join(map(write, value))}]"
        return _write_value(value)

    arguments = [*map(write, record.args), *(f"{name}={write(value)}" for name, value in record.kwargs.items())]
    return f"torch.ops.{record.operator}({', '.join(arguments)})"


# -- trying it ---------------------------------------------------------------------------------------------------------


def without_idle_reproduction(location: Location) -> Location:
    """Return a location whose reproduction prints a difference here; it has none where it does not."""
    if not location.reproduction or _shows_difference(location.reproduction):
        return location
    return replace(location, reproduction="")


def _shows_difference(program: str) -> bool:
    printed = io.StringIO()
    try:
        with keep_streams(), redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(program, "<reproduction>", "exec"), {"__name__": "__main__"})
    except Exception:
        return False
    found = _DIFFERENCE.search(printed.getvalue())
    # NaN is a difference, too
    return found is None or float(found[1]) != 0.0
