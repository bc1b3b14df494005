"""The table of names: what calls of the libraries return, in the spellings that programs use."""

from __future__ import annotations

import importlib

import pytest
import torch

from porting.source.facts import Kind
from porting.source.library import (
    NAMES,
    find_class_kind,
    find_method_kind,
    list_kinds,
    list_result_kinds,
    list_words,
    read_tables,
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.Linear", "module"),
        ("torch.nn.modules.conv.Conv2d", "module"),
        ("torch.nn.CrossEntropyLoss", "criterion"),
        ("torch.nn.modules.loss.MSELoss", "criterion"),
        ("torch.nn.BCEWithLogitsLoss", "criterion"),
        ("torch.nn.HuberLoss", "criterion"),
        ("torch.nn.functional.cross_entropy", "loss"),
        ("torch.nn.functional.binary_cross_entropy_with_logits", "loss"),
        ("torch.nn.functional.mse_loss", "loss"),
        ("torch.optim.AdamW", "optimizer"),
        ("torch.optim.adam.Adam", "optimizer"),
        ("torch.optim.lr_scheduler.OneCycleLR", "scheduler"),
        ("torch.utils.data.DataLoader", "loader"),
        ("torch.utils.data.dataloader.DataLoader", "loader"),
        ("torch.utils.data.distributed.DistributedSampler", "sampler"),
        ("torch.utils.data.TensorDataset", "dataset"),
        ("torchvision.datasets.ImageFolder", "dataset"),
        ("torchvision.models.resnet50", "module"),
        ("torchvision.models.detection.fasterrcnn_resnet50_fpn", "module"),
        ("torchvision.models.get_model", "module"),
        ("timm.create_model", "module"),
        ("timm.models.create_model", "module"),
        ("timm.scheduler.CosineLRScheduler", "scheduler"),
        ("timm.optim.create_optimizer_v2", "optimizer"),
        ("timm.loss.LabelSmoothingCrossEntropy", "criterion"),
        ("transformers.AutoModelForCausalLM.from_pretrained", "module"),
        ("transformers.BertForMaskedLM", "module"),
        ("transformers.get_linear_schedule_with_warmup", "scheduler"),
        ("transformers.AutoTokenizer.from_pretrained", "other"),
        ("torch.hub.load", "module"),
        ("torch.compile", "module"),
        ("torch.jit.script", "module"),
        ("torch.nn.parallel.DistributedDataParallel", "module"),
        ("torch.cuda.amp.GradScaler", "scaler"),
        ("torch.amp.GradScaler", "scaler"),
        ("torch.utils.tensorboard.SummaryWriter", "writer"),
        ("wandb.init", "writer"),
        ("poptorch.trainingModel", "port"),
        ("poptorch.inferenceModel", "port"),
        ("porting.to_ipu", "port"),
        ("porting.simulator.trainingModel", "port"),
        ("poptorch.DataLoader", "port-loader"),
        ("poptorch.Options", "options"),
        ("porting.PortOptions", "options"),
        ("poptorch.optim.SGD", "optimizer"),
        ("torch.zeros_like", "tensor"),
        ("torch.nn.Parameter", "tensor"),
        ("torch.load", "state"),
        ("torch.device", "device"),
    ],
)
def test_what_a_call_returns(name, kind):
    assert [found.value for found in list_result_kinds(name)] == [kind]


@pytest.mark.parametrize(
    "name",
    ["torch.manual_seed", "torch.save", "torch.nn.functional.relu", "torch.nn.utils.clip_grad_norm_", "numpy.zeros"],
)
def test_what_the_table_does_not_know(name):
    assert list_result_kinds(name) == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.Module", Kind.MODULE),
        ("pytorch_lightning.LightningModule", Kind.MODULE),
        ("lightning.pytorch.LightningDataModule", Kind.OTHER),
        ("torch.nn.modules.loss._Loss", Kind.CRITERION),
        ("torch.utils.data.Dataset", Kind.DATASET),
        ("torch.utils.data.IterableDataset", Kind.DATASET),
        ("torch.utils.data.Sampler", Kind.SAMPLER),
        ("torch.optim.Optimizer", Kind.OPTIMIZER),
        ("torch.optim.lr_scheduler._LRScheduler", Kind.SCHEDULER),
        ("transformers.PreTrainedModel", Kind.MODULE),
        ("torch.autograd.Function", None),
        ("builtins.object", None),
    ],
)
def test_what_a_class_of_the_users_is(name, kind):
    assert find_class_kind(name) is kind


def test_all_losses_of_torch_are_criteria():
    losses = importlib.import_module("torch.nn.modules.loss")
    names = [name for name in losses.__all__ if not name.startswith("_")]

    assert {list_result_kinds(f"torch.nn.{name}") for name in names} == {(Kind.CRITERION,)}


def test_all_optimizers_and_schedules_of_torch_are_known():
    optim = importlib.import_module("torch.optim")
    schedules = importlib.import_module("torch.optim.lr_scheduler")

    optimizers = [name for name in dir(optim) if isinstance(getattr(optim, name), type)]
    assert {list_result_kinds(f"torch.optim.{name}") for name in optimizers} == {(Kind.OPTIMIZER,)}
    found = {list_result_kinds(f"torch.optim.lr_scheduler.{name}") for name in schedules.__all__}
    assert found == {(Kind.SCHEDULER,)}


def test_methods_return_by_the_kind_of_object():
    assert find_method_kind(Kind.PORT, "inference") is Kind.PORT
    assert find_method_kind(Kind.MODULE, "parameters") is Kind.PARAMETERS
    assert find_method_kind(Kind.MODULE, "inference") is None


ROWS = [(table, number) for table, rows in read_tables().items() for number in range(len(rows))]


@pytest.mark.parametrize(("table", "number"), ROWS, ids=[f"{table}-{number}" for table, number in ROWS])
def test_a_row_is_for_its_examples_and_none_above_is(table, number):
    rows = read_tables()[table]

    for example in rows[number].examples:
        assert list_words(table, example) == rows[number].words
        assert [place for place, row in enumerate(rows) if row.pattern.fullmatch(example)][0] == number


@pytest.mark.parametrize("section", ["computed in place", "of tensors alone", "views", "tensor methods"])
def test_the_names_of_a_section_are_those_of_tensors(section):
    assert {name for name in NAMES[section] if not hasattr(torch.Tensor, name)} == set()


def test_what_is_computed_in_place_has_a_method_that_does_so():
    assert {name for name in NAMES["computed in place"] if not hasattr(torch.Tensor, f"{name}_")} == set()


@pytest.mark.parametrize("table", sorted(set(read_tables()) - {"asking", "settings"}))
def test_the_words_of_a_table_are_kinds(table):
    assert all(list_kinds(table, example) for row in read_tables()[table] for example in row.examples)
