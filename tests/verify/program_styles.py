"""One training in the styles that ported programs are written in, each with the plain program that it was."""

from __future__ import annotations

from textwrap import indent

__all__ = ["STYLES"]

_BEGIN = """\
import torch
from torch import nn

torch.manual_seed(3)
data = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randint(3, (64,)))
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
criterion = nn.CrossEntropyLoss()
"""
_LOADER = "loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)\n"
_SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)\n"
_STEP = """\
optimizer.zero_grad()
loss = criterion(run(x), y)
loss.backward()
optimizer.step()
"""


def _loop(step: str, epochs: int = 2) -> str:
    return f"for epoch in range({epochs}):\n    for number, (x, y) in enumerate(loader):\n{indent(step, ' ' * 8)}"


_PLAIN = _BEGIN + _LOADER + _SGD + "run = model\n" + _loop(_STEP)

_CLASSIC = f"""\
import poptorch
{_BEGIN}
class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.loss = model, criterion

    def forward(self, x, y):
        outputs = self.model(x)
        return outputs, self.loss(outputs, y)

options = poptorch.Options()
loader = poptorch.DataLoader(options, data, batch_size=8, shuffle=True)
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, use_combined_accum=False)
training = poptorch.trainingModel(WithLoss().train(), options, optimizer=optimizer)
{_loop("training(x, y)")}"""

_DEVICE = (
    "from porting import PortOptions, to_ipu\n"
    + _BEGIN
    + _LOADER
    + _SGD
    + "ported = to_ipu(model, criterion, optimizer=optimizer, options=PortOptions({options}))\n"
    + "loader = ported.dataloader(loader)\n"
    + _loop("ported(x, y)")
)

_HOST = f'import porting\n{_BEGIN}{_LOADER}{_SGD}run = porting.to_ipu(model, loop="host")\n{_loop(_STEP)}'

_SMALL = _BEGIN.replace("nn.BatchNorm1d(8), ", "").replace("nn.Dropout(0.2), ", "")
_ACCUMULATED_STEP = (
    "(criterion(model(x), y) / 2).backward()\nif number % 2:\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
_ACCUMULATED = _SMALL + _LOADER + _SGD + _loop(_ACCUMULATED_STEP)

_LIGHTNING = f"""\
import lightning.pytorch as pl
from porting.integrations.lightning import make_strategy
{_BEGIN}{_LOADER}
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model

    def training_step(self, batch, number):
        return criterion(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        {_SGD}        return optimizer

quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
pl.Trainer(max_epochs=2, strategy=make_strategy(), **quiet).fit(Module(), loader)
"""

_IGNITE = f"""\
from porting.integrations.ignite import create_supervised_trainer
{_BEGIN}{_LOADER}{_SGD}
create_supervised_trainer(model, optimizer, criterion).run(loader, max_epochs=2)
"""

_ACCELERATE = f"""\
from porting.integrations.accelerate import Accelerator
{_SMALL}{_LOADER}{_SGD}
accelerator = Accelerator(gradient_accumulation_steps=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(criterion(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
"""

_TRANSFORMERS = f"""\
import transformers
from {{package}} import Trainer
{_SMALL}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model

    def forward(self, x, labels):
        logits = self.net(x)
        return {{{{"loss": criterion(logits, labels), "logits": logits}}}}

quiet = dict(output_dir="out", report_to=[], disable_tqdm=True, save_strategy="no", use_cpu=True)
settings = transformers.TrainingArguments(num_train_epochs=2, per_device_train_batch_size=8, **quiet)
rows = [dict(x=x, labels=y) for x, y in data]
Trainer(model=Net(), args=settings, train_dataset=rows).train()
"""

STYLES = {
    "PopTorch": (_CLASSIC, _PLAIN),
    "a loop on the device": (_DEVICE.replace("{options}", ""), _PLAIN),
    "device iterations": (_DEVICE.replace("{options}", "device_iterations=2"), _PLAIN),
    "accumulation on the device": (
        _DEVICE.replace(_BEGIN, _SMALL).replace("{options}", 'accumulation=2, output_mode="all", keep_gradients=True'),
        _ACCUMULATED,
    ),
    "accumulation of a large batch": (
        _DEVICE.replace(_BEGIN, _SMALL).replace("{options}", "accumulation=2"),
        _PLAIN.replace(_BEGIN, _SMALL).replace("batch_size=8", "batch_size=16"),
    ),
    "a loop on the host": (_HOST, _PLAIN),
    "Lightning": (_LIGHTNING, _PLAIN),
    "Ignite": (_IGNITE, _PLAIN),
    "accelerate": (_ACCELERATE, _ACCUMULATED),
    "transformers": tuple(
        _TRANSFORMERS.format(package=package) for package in ("porting.integrations.transformers", "transformers")
    ),
}
"""A ported and a plain program, by the style of the ported one."""
