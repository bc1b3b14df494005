"""Steps that are small enough to count by hand: chains of operators."""

from __future__ import annotations

import torch

from porting.capture import TensorInfo
from porting.planning.step_memory import Operation, StepMemory, Value


def weight(name):
    return TensorInfo(name, "parameter", (10, 10), torch.float32, torch.float32, requires_grad=True)


def operation(number):
    """Make operator `number` of a chain, which uses a weight of its own and makes 100 bytes."""
    return Operation(
        module_path=f"layer{number}",
        stage=0,
        result_bytes=100,
        operand_bytes=500,
        is_product=True,
        is_float=True,
        ends=(f"layer{number}",),
        parameters=(f"weight{number}",),
        results=(number + 1,),
    )


def chain(length=4):
    """Make a step of operators that read what the one before has made, and keep it; value 0 is the input."""
    values = [
        Value(100, made_at=number - 1, read_at=[number], kept_at=[number], is_of_batch=True, is_float=True)
        for number in range(length)
    ]
    values.append(Value(100, made_at=length - 1, read_at=[], kept_at=[], is_of_batch=True, is_float=True))
    return StepMemory(
        mode="training",
        micro_batch=2,
        operations=tuple(map(operation, range(length))),
        values=tuple(values),
        parameters=tuple(weight(f"weight{number}") for number in range(length)),
        buffers=(),
        first_uses={f"weight{number}": number for number in range(length)},
        input_bytes=100,
        output_bytes=40,
        called={f"layer{number}": "Layer" for number in range(length)},
        calls={f"layer{number}": number for number in range(length)},
    )
