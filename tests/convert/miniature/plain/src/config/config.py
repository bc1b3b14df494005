from dataclasses import dataclass, field
from enum import Enum


class ComputeMode(Enum):
    CPU   = 0
    GPU   = 1
    DPCPP = 2
    XPU   = 3


class Precision(Enum):
    float32  = 0
    mixed    = 1
    bfloat16 = 2


class ModeKind(Enum):
    train     = 0
    inference = 1


class OptimizerKind(Enum):
    adam    = 0
    rmsprop = 1


@dataclass
class Run:
    compute_mode:   ComputeMode = ComputeMode.CPU
    precision:      Precision   = Precision.float32
    iterations:     int         = 20
    aux_iterations: int         = 5
    minibatch_size: int         = 2
    seed:           int         = 7
    output_dir:     str         = "output"


@dataclass
class Mode:
    name:                  ModeKind      = ModeKind.train
    optimizer:             OptimizerKind = OptimizerKind.adam
    learning_rate:         float         = 0.003
    gradient_accumulation: int           = 1
    checkpoint_iteration:  int           = 10
    quantization_aware:    bool          = False


@dataclass
class Config:
    run:  Run  = field(default_factory=Run)
    mode: Mode = field(default_factory=Mode)


def read_config(words):
    """Read words such as `run.compute_mode=GPU`; the last one counts."""
    config = Config()
    for word in words:
        path, text = word.split("=", 1)
        group, name = path.split(".")
        part = getattr(config, group)
        old = getattr(part, name)
        if isinstance(old, Enum):
            value = type(old)[text]
        elif isinstance(old, bool):
            value = text.lower() == "true"
        else:
            value = type(old)(text)
        setattr(part, name, value)
    return config
