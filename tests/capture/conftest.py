"""Modules made of one function, and what their capture gives or refuses."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import nn

from porting.capture import StepGraph, capture_step
from porting.diagnostics import CaptureError, Finding


class Body(nn.Module):
    """A module whose `forward` is `function(weight, *args)`; `weight` is a parameter of shape (5, 4)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(5, 4))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.weight, *args, **kwargs)


@pytest.fixture
def body() -> Callable[[Callable[..., Any]], nn.Module]:
    """Give the class of modules that are one function of a (5, 4) parameter and their inputs."""
    return Body


@pytest.fixture
def trace() -> Callable[..., StepGraph]:
    """Give a function that captures `function(weight, *args)`, for inference unless another mode is named."""

    def trace(function: Callable[..., Any], *args: Any, mode: str = "inference", **options: Any) -> StepGraph:
        return capture_step(Body(function), args, mode=mode, **options)

    return trace


@pytest.fixture
def refusal(trace: Callable[..., StepGraph]) -> Callable[..., Finding]:
    """Give a function that captures `function(weight, *args)` and returns what the capture finds wrong with it."""

    def refusal(function: Callable[..., Any], *args: Any, **options: Any) -> Finding:
        with pytest.raises(CaptureError) as caught:
            trace(function, *args, **options)
        return caught.value.finding

    return refusal
