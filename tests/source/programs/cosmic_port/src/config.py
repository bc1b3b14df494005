from dataclasses import dataclass, field
from enum import Enum


class ComputeMode(Enum):
    CPU = 0
    GPU = 1
    DPCPP = 2
    XPU = 3
    IPU = 5


class Precision(Enum):
    float32 = 0
    mixed = 1
    bfloat16 = 2


class OptimizerKind(Enum):
    Adam = 0
    RMSProp = 1


@dataclass
class RunConfig:
    distributed: bool = False
    compute_mode: ComputeMode = ComputeMode.GPU
    iterations: int = 500
    aux_iterations: int = 10
    minibatch_size: int = 2
    precision: Precision = Precision.float32


@dataclass
class ModeConfig:
    name: str = "train"
    checkpoint_iteration: int = 500
    gradient_accumulation: int = 1
    optimizer: OptimizerKind = OptimizerKind.Adam
    learning_rate: float = 3e-4
    weights_location: str = ""


@dataclass
class Config:
    run: RunConfig = field(default_factory=RunConfig)
    mode: ModeConfig = field(default_factory=ModeConfig)
    output_dir: str = "output"
