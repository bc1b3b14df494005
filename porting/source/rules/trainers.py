"""Settings of libraries' trainers: each asks for what a loop of one's own has lines for."""

from __future__ import annotations

import ast
import re
from typing import Iterator, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Call
from porting.source.rules.guards import asks_for_cuda
from porting.source.rules.reading import Reading
from porting.source.rules.scope import rule

__all__ = ["find_settings_of_trainers"]

_COMPUTED = "?"
_LIGHTNING = r"(pytorch_)?lightning\.(\w+\.)*(Trainer|Fabric)"
_TRANSFORMERS = r"(.+\.)?\w*TrainingArguments"
_ACCELERATE = r"accelerate\.(\w+\.)*Accelerator"
# Of which call, by which name, with which values; a value that is computed is "?".
_SETTINGS: Tuple[Tuple[str, str, str, str], ...] = (
    ("P013", _TRANSFORMERS, r"fp16|bf16", r"True"),
    ("P013", _LIGHTNING, r"precision", r".*16.*"),
    ("P013", _ACCELERATE, r"mixed_precision", r"fp16|bf16|fp8|\?"),
    ("D012", _TRANSFORMERS, r"torch_compile", r"True"),
    ("D013", _LIGHTNING, r"accelerator", r"gpu|cuda"),
    ("D013", _LIGHTNING, r"gpus", r"(?!([?0]|None|False)$).+"),
    ("O001", _TRANSFORMERS, r"optim", r"(?!(adamw_(hf|torch)(_fused|_xla|_npu_fused)?|sgd|rmsprop|\?)$).+"),
)


@rule(in_host_loops=False)
def find_settings_of_trainers(reading: Reading) -> Iterator[Finding]:
    """P013, D012, D013 and O001: a trainer is asked for autocast, a wrapper, CUDA or an optimizer of its own."""
    for call in reading.facts.calls:
        for code, trainer, names, values in _SETTINGS if call.node.keywords else ():
            for word in call.node.keywords if re.fullmatch(trainer, call.name) else ():
                is_asked = re.fullmatch(names, word.arg or "") and re.fullmatch(values, _write_value(word.value))
                if is_asked and not (code == "D013" and asks_for_cuda(call.where.guards)):
                    note = f"the device has no `{_write_value(word.value)}`" if code == "O001" else ""
                    yield reading.report(code, _place_of(call, word.value), note=note)


def _write_value(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else _COMPUTED


def _place_of(call: Call, node: ast.expr) -> Place:
    return Place(call.place.file, node.lineno, node.col_offset + 1)
