"""Settings of libraries' trainers, and what their steps do for each batch."""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest

from porting.source.checks import check_source
from porting.source.project import read_programs


@pytest.mark.parametrize(
    ("library", "call", "code"),
    [
        ("transformers", "TrainingArguments(\n    fp16=True)", "P013"),
        ("transformers", "Seq2SeqTrainingArguments(\n    bf16=True)", "P013"),
        ("transformers", "TrainingArguments(\n    torch_compile=True)", "D012"),
        ("transformers", "TrainingArguments(\n    optim='adafactor')", "O001"),
        ("lightning", "Trainer(\n    precision='16-mixed')", "P013"),
        ("pytorch_lightning", "Trainer(\n    accelerator='gpu')", "D013"),
        ("pytorch_lightning", "Trainer(\n    gpus=2)", "D013"),
        ("accelerate", "Accelerator(\n    mixed_precision=args.precision)", "P013"),
    ],
)
def test_a_setting_is_told_where_it_stands(find, library, call, code):
    assert find(f"import {library}\nit = {library}.{call}\n") == [f"{code}:3"]


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("transformers", "TrainingArguments(fp16=False, optim='adamw_torch')"),
        ("transformers", "TrainingArguments(optim=args.optim)"),
        ("lightning", "Trainer(precision=32, accelerator='auto', gpus=0)"),
        ("accelerate", "Accelerator(mixed_precision='no')"),
        ("data", "Trainer(precision=16, accelerator='gpu')"),
    ],
)
def test_a_setting_that_asks_for_nothing(find, library, call):
    assert find(f"import {library}\nit = {library}.{call}\n") == []


def test_a_setting_behind_the_question_for_cuda(find):
    program = """
        import torch
        import lightning
        if torch.cuda.is_available():
            trainer = lightning.Trainer(accelerator="gpu")
    """

    assert find(program) == []


MODULE = """
    import torch
    import lightning
    import torch.nn.functional as F
    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 3)
            self.automatic_optimization = False
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)
        def {name}(self, batch, batch_idx):
            x, y = batch
            loss = F.cross_entropy(self.fc(x), y)
            {body}
            return loss
"""


@pytest.mark.parametrize("name", ["training_step", "validation_step"])
def test_a_read_in_each_step_of_a_library(find, name):
    assert find(MODULE.format(name=name, body="self.log('loss', loss.item())")) == ["D020:14"]


def test_a_read_in_some_steps_of_a_library(find):
    assert find(MODULE.format(name="training_step", body="print(loss.item()) if batch_idx % 100 == 0 else None")) == []


def test_a_method_of_another_name_is_no_step_of_a_library(find):
    assert find(MODULE.format(name="compute", body="self.log('loss', loss.item())")) == []


def test_accumulation_and_clipping_in_a_manual_step(find):
    lines = ["opt = self.optimizers()", "self.manual_backward(loss)", "if (batch_idx + 1) % 4 == 0:"]
    lines += ["    self.clip_gradients(opt, 1.0)", "    opt.step()", "    opt.zero_grad()"]

    found = find(MODULE.format(name="training_step", body="\n            ".join(lines)))

    assert found == ["L001:13", "L010:15", "O011:16", "O009:17", "O007:18", "O008:19"]


def test_gradients_that_a_hook_of_a_library_reads(find):
    program = """
        import lightning
        from torch import nn
        class Lit(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)
            def on_after_backward(self):
                self.log("norm", sum(p.grad.norm() for p in self.parameters()))
    """

    assert find(program) == ["D009:8"]


IGNITE = """
    import ignite.distributed as idist
    import torch
    from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import LRScheduler, PiecewiseLinear
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.MSELoss()
    trainer = create_supervised_trainer(model, optimizer, criterion)
    {line}
"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("evaluator = create_supervised_evaluator(model)", "D014"),
        ("trainer.add_event_handler(Events.EPOCH_STARTED, PiecewiseLinear(optimizer, 'lr', []))", "O013"),
        ("model = idist.auto_model(model)", "D012"),
        ("loader = idist.auto_dataloader(data, batch_size=8)", "B010"),
        ("parallel = idist.Parallel(backend='nccl')", "D018"),
        ("Engine(lambda engine, batch: criterion(model(batch), batch).item())", "D020"),
    ],
)
def test_what_ignite_does_in_the_place_of_a_loop(find, line, code):
    assert find(IGNITE.format(line=line)) == [f"{code}:9"]


def test_another_handler_of_ignite_is_no_schedule(find):
    assert find(IGNITE.format(line="trainer.add_event_handler(Events.EPOCH_STARTED, print)")) == []


TRAIN = """import hydra
from hydra.utils import instantiate

@hydra.main(config_path="conf", config_name="config")
def main(cfg):
    trainer = instantiate(cfg.trainer)
"""


def find_configured(folder: Path, **texts: str) -> List[Tuple[str, str, bool]]:
    (folder / "requirements.txt").write_text("hydra-core", encoding="utf-8")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "conf").mkdir()
    for name, text in texts.items():
        (folder / "conf" / f"{name}.yaml").write_text(text, encoding="utf-8")
    findings = check_source(read_programs([str(folder / "train.py")]))
    return [(one.code, f"{Path(one.place.file).stem}:{one.place.line}", one.is_guess) for one in findings if one.place]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("_target_: lightning.Trainer\nprecision: 16-mixed # half\n", ("P013", "config:2", False)),
        ("seed: 1\ntrainer:\n  accelerator: 'gpu'\n  _target_: lightning.Trainer\n", ("D013", "config:3", False)),
        ("optimizers:\n  - _target_: torch.optim.Adagrad\n    lr: 0.1\n", ("O001", "config:2", False)),
        ("a:\n  _target_: transformers.TrainingArguments\n  fp16: true\n", ("P013", "config:3", False)),
        ("device: cuda:0\n", ("D013", "config:1", False)),
    ],
)
def test_a_configuration_is_told_where_it_asks(tmp_path, text, found):
    assert find_configured(tmp_path, config=text) == [found]


@pytest.mark.parametrize(
    "text",
    [
        "_target_: lightning.Trainer\nprecision: 32\naccelerator: ${device}\n",
        "trainer:\n  _target_: lightning.Trainer\nother:\n  precision: 16\n",
        "_target_: torch.optim.Adam\n",
        "device: cpu\n",
        "# device: cuda\n",
    ],
)
def test_a_configuration_that_asks_for_nothing(tmp_path, text):
    assert find_configured(tmp_path, config=text) == []


def test_one_of_several_configurations_is_a_guess(tmp_path):
    found = find_configured(tmp_path, adam="_target_: torch.optim.Adam", lion="_target_: lion_pytorch.Lion")

    assert found == [("O001", "lion:1", True)]


def test_a_configuration_that_nothing_is_made_of(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch", encoding="utf-8")
    (tmp_path / "config.yaml").write_text("device: cuda", encoding="utf-8")
    (tmp_path / "train.py").write_text("import torch\n", encoding="utf-8")

    assert check_source(read_programs([str(tmp_path / "train.py")])) == []
