"""Give the training of step 6 in parts to `porting verify`: model, loss, loader, optimizer and options."""

from __future__ import annotations

from typing import Any, Dict

import torch
from torch import nn

import porting
from porting.recipes.first_port.workload import load_images, make_model


def make() -> Dict[str, Any]:
    """Make the parts of the training; the port makes its own loader of this one."""
    _train_set, _test_set, loader = load_images()
    options = porting.PortOptions(micro_batch=8, accumulation=4, device_iterations=3, output_mode="all")
    model = make_model()
    return {
        "model": model,
        "loss": nn.CrossEntropyLoss(),
        "loader": loader,
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.001),
        "options": options,
    }
