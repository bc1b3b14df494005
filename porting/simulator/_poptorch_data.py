"""Define the data that is saved beside an executable, so that an executor can be made again from one file.

`save` and `load` use it.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch
from torch import nn

from ._options_impl import require
from .options import Options

__all__ = ["PoptorchData", "parse"]


@dataclass
class PoptorchData:
    """The metadata of a saved executable; `training`, `model` and `optimizer` are None if the model was not exported.

    `executable_inputs` is the signature of the arguments that it was compiled for, `version` the package's.
    `per_replica_params` are the replica groupings of parameters, by name.
    """

    version: str
    executable_inputs: Any
    options: Optional[Options] = None
    training: Optional[bool] = None
    model: Optional[nn.Module] = None
    optimizer: Optional[torch.optim.Optimizer] = None
    optimizer_state: Optional[Dict[str, Any]] = None
    random_seed: Optional[int] = None
    rng_state: Optional[List[int]] = None
    per_replica_params: Optional[Dict[str, Any]] = None

    def serialize(self) -> bytes:
        """Return the pickled data."""
        return pickle.dumps(self)


def parse(serialized_data: bytes, expected_version: str) -> PoptorchData:
    """Read serialized data; raises AssertionError for another version or class, and for data without inputs."""
    data: PoptorchData = pickle.loads(serialized_data)
    require(isinstance(data, PoptorchData), f"The metadata are of type {type(data)}")
    require(
        data.version == expected_version,
        f"PopTorch version mismatch: File was created with version: {data.version} and this is version "
        f"{expected_version}",
    )
    require(bool(data.executable_inputs), "Executable inputs are missing")
    return data
