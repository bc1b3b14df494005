"""Imports, instances, precision and settings."""

from __future__ import annotations

import pytest


def test_an_import_that_the_whole_program_needs_needs_no_guard(find):
    program = """
        import poptorch
        from model import model, dataset
        options = poptorch.Options()
        port = poptorch.inferenceModel(model, options)
    """

    assert find(program) == []


def test_a_handler_that_ends_the_program_swallows_nothing(find):
    program = """
        import sys
        try:
            import poptorch
        except ImportError:
            sys.exit("no PopTorch")
        from model import model
        port = poptorch.inferenceModel(model, poptorch.Options())
    """

    assert find(program) == []


def test_options_of_popdist_know_the_other_instances(find):
    program = """
        import popdist
        import popdist.poptorch
        import poptorch
        from model import model
        if popdist.isPopdistEnvSet():
            options = popdist.poptorch.Options()
        else:
            options = poptorch.Options()
        port = poptorch.trainingModel(model, options)
    """

    assert find(program) == []


def test_a_setting_may_be_a_field_of_a_class_in_another_file(find):
    program = """
        import poptorch
        from settings import config
        from model import model
        options = poptorch.Options()
        options.replicationFactor(config.replicas)
        options.deviceIterations(config.device_iterations)
        port = poptorch.trainingModel(model, options)
    """
    settings = """
        from dataclasses import dataclass
        @dataclass
        class Config:
            replicas: int = 1
        config = Config()
    """

    assert find(program, settings=settings) == ["P014:6"]


def test_a_precision_given_to_the_options_is_applied(find):
    program = """
        import argparse
        from torch import nn
        from porting import PortOptions, to_ipu
        from data import dataset
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", default="float32")
        args = parser.parse_args()
        ported = to_ipu(nn.Linear(4, 3), nn.MSELoss(), options=PortOptions(precision=args.precision))
        for x, y in ported.dataloader(dataset):
            output, loss = ported(x, y)
    """

    assert find(program) == []


def test_settings_that_are_made_where_nobody_reads_are_not_judged(find):
    program = """
        import poptorch
        from model import ModelWithLoss
        from configuration import load
        config = load("base")
        port = poptorch.trainingModel(ModelWithLoss(), poptorch.Options().replicationFactor(config.replicas))
    """

    assert find(program) == []


def test_the_type_of_a_tensor_is_no_setting(find):
    program = """
        import poptorch
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                if x.dtype == torch.float32:
                    x = x + 1
                return x
        port = poptorch.trainingModel(Net(), poptorch.Options())
        port(torch.rand(4))
    """

    assert find(program) == []


PORT = """
        import argparse
        import poptorch
        import torch
        from model import Config, dataset
        model = torch.nn.Linear(4, 3)
        opts = poptorch.Options()
        {before}
        port = poptorch.trainingModel(model, opts, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
        for x, y in poptorch.DataLoader(opts, dataset):
            port(x, y)
"""
ASKED = 'p = argparse.ArgumentParser(); p.add_argument("--precision"); args = p.parse_args(); '


@pytest.mark.parametrize(
    "before",
    [
        ASKED,
        'cfg = {"precision": "bfloat16"}',
        'cfg = Config(precision="bf16"); print(cfg.precision == "bf16")',
        ASKED + "model = model if args.ipu else model.half()",
    ],
)
def test_a_precision_that_nothing_brings_to_the_port(find, before):
    assert "P012:8" in find(PORT.format(before=before))


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        ASKED + "model.half()",
        ASKED + "model = model.to(dtype=torch.bfloat16)",
        ASKED + "opts.Precision.setPartialsType(torch.float16)",
        "precision = 3 / 4; print(precision)",
    ],
)
def test_a_precision_that_the_port_knows_of_or_nobody_asks_for(find, before):
    assert "P012:8" not in find(PORT.format(before=before))
