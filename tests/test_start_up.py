"""What a program loads from its start to its first trained step: nothing that only compiling needs."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

# Packages that take long to import, and that neither importing nor training a usual model calls for.
HEAVY = {"matplotlib", "mpmath", "networkx", "onnx", "pandas", "scipy", "setuptools", "sklearn", "sympy", "triton"}
HEAVY_PARTS = {"torch._dynamo", "torch._export", "torch._inductor", "torch.distributed.tensor", "torch.onnx"}


@pytest.fixture(scope="module")
def loaded_by(tmp_path_factory, program_server):
    """Give a function that tells what a process that begins with torch has loaded after a program."""
    place = tmp_path_factory.mktemp("programs") / "program.py"

    @functools.lru_cache(maxsize=None)
    def run(program: str) -> frozenset:
        place.write_text(program + "\nimport sys, json; print(json.dumps(sorted(sys.modules)))")
        code, said = program_server.run(str(place))
        assert code == 0, said
        return frozenset(json.loads(said.splitlines()[-1]))

    return run


@pytest.fixture
def heavy_modules_after(loaded_by):
    """Give a function that lists the heavy packages that a process has loaded after a program, and torch has not."""

    def find(program: str) -> list:
        loaded = loaded_by(program) - loaded_by("import torch")
        return sorted({name.partition(".")[0] for name in loaded} & HEAVY | loaded & HEAVY_PARTS)

    return find


def test_importing_porting_loads_no_torch():
    done = subprocess.run(
        [sys.executable, "-c", "import porting, sys; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["import torch, porting", "from porting import to_ipu", "import porting.simulator as poptorch"]
)
def test_imports_load_nothing_heavy_beyond_torch(heavy_modules_after, program):
    assert heavy_modules_after(program) == []


MODELS = {
    "perceptron": "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))",
    "convolutions": "nn.Sequential(View(1, 2, 2), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), "
    "nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3))",
    "decoder": "nn.Sequential(View(1, 2, 2), nn.Conv2d(1, 4, 1), nn.ConvTranspose2d(4, 2, 2, stride=2), Rolled(), "
    "nn.Flatten(), nn.Linear(32, 3))",
    "attention": "nn.Sequential(View(2, 2), Attention(), nn.LayerNorm(2), nn.GELU(), nn.Flatten(), nn.Linear(4, 3))",
}

PROGRAM = """
import torch
from torch import nn
from porting import to_ipu

class View(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.view(x.shape[0], *self.shape)

class Rolled(nn.Module):
    def forward(self, x):
        turned = x.transpose(1, 2)[:, :1]
        return torch.cat([turned.expand(-1, 3, -1, -1).roll(1, 2), x.transpose(1, 2)[:, 1:2]], 1).cumsum(1)

class Attention(nn.Module):
    def forward(self, x):
        heads = x.view(2, 2, 1, 2).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(2, 2, 2)

model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")
ported(torch.ones(2, 4), torch.tensor([0, 1]))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", MODELS)
def test_the_first_trained_step_loads_nothing_heavy(heavy_modules_after, model):
    assert heavy_modules_after(PROGRAM.format(model=MODELS[model])) == []


# What a first step needs none of: a search for a faster engine, files, other loops, loaders, and looks at trouble.
LATE = [
    "porting.adapters.batches",
    "porting.adapters.checkpoints",
    "porting.adapters.fixed_batch",
    "porting.api.host_loop",
    "porting.engines.recompute.plans",
    "porting.engines.tuning.tuner",
    "porting.executables.explanations",
    "porting.executables.exported_step",
    "porting.nan_search.not_finite",
    "porting.planning.step_walk",
    "porting.simulator._dataloader",
]


@pytest.mark.parametrize("module", LATE)
def test_the_first_trained_step_loads_no_part_that_it_does_not_use(loaded_by, module):
    assert module not in loaded_by(PROGRAM.format(model=MODELS["perceptron"]))


def test_the_first_trained_step_loads_no_part_of_torch_that_torch_does_not_load_for_any_mode(loaded_by):
    loaded = loaded_by(PROGRAM.format(model=MODELS["perceptron"])) - loaded_by("import torch")

    assert {name for name in loaded if name.startswith("torch.")} <= {"torch._subclasses.schema_check_mode"}


POPTORCH = """
import torch
import porting.simulator as poptorch

class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, y):
        out = self.layer(x)
        return out, poptorch.identity_loss((out - y) ** 2, reduction="mean")

model = WithLoss()
training = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
training(torch.ones(2, 4), torch.zeros(2, 2))
"""


@pytest.mark.slow
def test_a_poptorch_program_loads_nothing_heavy(heavy_modules_after):
    assert heavy_modules_after(POPTORCH) == []


ON_DISK = """
import sys, torch
from torch import nn
from porting import PortOptions, to_ipu
from porting.engines.replay import graph_function

written = []
write = graph_function.GraphFunction.__init__
graph_function.GraphFunction.__init__ = lambda self, *a, **k: written.append(a) or write(self, *a, **k)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
options = PortOptions(engine="{engine}", cache_dir="{folder}")
ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")
ported(torch.ones(2, 4), torch.tensor([0, 1]))
print("graph functions:", len(written), file=sys.stderr)
"""


@pytest.mark.slow
def test_a_compiled_executable_on_disk_is_run_without_compiler_and_without_replay(
    heavy_modules_after, compiler_server, program_server, tmp_path
):
    def run(engine, server):
        program = ON_DISK.format(engine=engine, folder=tmp_path)
        return subprocess.run([server.python, "-c", program], capture_output=True, text=True, check=True).stderr

    run("aot", compiler_server)

    assert "graph functions: 0" in run("ready", program_server)
    assert heavy_modules_after(ON_DISK.format(engine="ready", folder=tmp_path)) == []


LOSSES = """
import sys
import torch
from torch import nn
from porting import PortOptions, to_ipu
import porting.simulator

class Triplet(nn.TripletMarginLoss):
    def forward(self, out, y):
        return super().forward(out, y, y.flip(0))

class Cosine(nn.CosineEmbeddingLoss):
    def forward(self, out, y):
        return super().forward(out, y, torch.ones(len(y)))

class Ranking(nn.MarginRankingLoss):
    def forward(self, out, y):
        return super().forward(out[:, 0], y[:, 0], y[:, 1].sign())

class First(nn.MSELoss):
    def forward(self, out, y):
        return super().forward(out[:, 0], y[:, 0])

class Divergence(nn.KLDivLoss):
    def forward(self, out, y):
        return super().forward(out.log_softmax(1), y.softmax(1))

numbers, labels, signs = torch.rand(4, 3), torch.tensor([0, 2, 1, 1]), torch.tensor([[1.0, -1.0, 1.0]] * 4)
bits = torch.tensor([[1.0, 0.0, 1.0]] * 4)
losses = [
    *((loss, numbers) for loss in (nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.PoissonNLLLoss())),
    *((loss, numbers) for loss in (Triplet(), Cosine(), Ranking(), First(), Divergence(reduction="batchmean"))),
    *((nn.BCEWithLogitsLoss(pos_weight=weight), bits) for weight in (None, torch.ones(3))),
    (nn.CrossEntropyLoss(label_smoothing=0.1), labels),
    (nn.CrossEntropyLoss(weight=torch.ones(3)), labels),
    (nn.CrossEntropyLoss(), numbers.softmax(1)),
    *((loss, signs) for loss in (nn.SoftMarginLoss(), nn.HingeEmbeddingLoss())),
    (nn.MultiLabelSoftMarginLoss(), bits),
]
for loss, target in losses:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, loss, optimizer=optimizer, options=PortOptions(engine="replay"), device="sim")
    ported(torch.ones(4, 4), target)
    loaded = [name for name in ("torch._dynamo", "sympy") if name in sys.modules]
    assert not loaded, (loss, loaded)
"""


@pytest.mark.slow
def test_the_first_step_of_no_usual_loss_loads_anything_heavy(heavy_modules_after):
    assert heavy_modules_after(LOSSES) == []


MADE_ON_THE_DEVICE = """
import torch
from torch import nn
from porting import PortOptions, to_ipu
import porting.simulator

class Making(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.lstm = nn.Linear(4, 3), nn.LSTM(3, 3, batch_first=True)

    def forward(self, x):
        out = self.layer(x)
        device = out.device
        out = out + torch.zeros(2, 3, device=device) + torch.ones((2, 3), device=device) + torch.zeros_like(out)
        out = out + torch.full((3,), 0.5, device=device) + torch.rand_like(out) + torch.randn(2, 3, device=device)
        out += torch.arange(3, device=device).float()
        return self.lstm(out[:, None])[0][:, 0]

model = Making()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(engine="replay"), device="sim")
ported(torch.ones(2, 4), torch.tensor([0, 1]))
"""


@pytest.mark.slow
def test_what_is_made_on_the_device_loads_nothing_heavy(heavy_modules_after):
    assert heavy_modules_after(MADE_ON_THE_DEVICE) == []


CHANNELS_LAST = """
import torch
from torch import nn
from porting.capture import capture_step
from porting.engines.calls.memory_format import put_channels_last

model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1))
graph = capture_step(model, [torch.ones(2, 2, 8, 8)], mode="inference")
put_channels_last(graph)
"""


@pytest.mark.slow
def test_a_step_with_channels_innermost_loads_nothing_heavy(heavy_modules_after):
    assert heavy_modules_after(CHANNELS_LAST) == []
