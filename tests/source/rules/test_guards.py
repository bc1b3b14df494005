"""Conditions that say where a port is."""

from __future__ import annotations

import ast

import pytest

from porting.source.rules.guards import are_exclusive, asks_for_cuda, excludes_ports, is_of_one_rank, requires_port


def parse(*texts: str):
    return [ast.parse(text, mode="eval").body for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not args.use_ipu", True),
        ("mode != ComputeMode.IPU", True),
        ("not isinstance(model, porting.PortedModel)", True),
        ("args.device == 'ipu'", False),
        ("not args.no_cuda", False),
        ("not multiplier", False),
    ],
)
def test_a_condition_excludes_ports(text, expected):
    assert excludes_ports(parse(text)) is expected


def test_the_vendors_own_question_is_no_choice():
    assert requires_port(parse("args.use_ipu"))
    assert not requires_port(parse("poptorch.ipuHardwareIsAvailable()"))
    assert not requires_port(parse("args.train"))


def test_a_condition_and_its_contrary_exclude_each_other():
    assert are_exclusive(parse("a == 1"), parse("a != 1"))
    assert are_exclusive(parse("x", "y"), parse("not y"))
    assert not are_exclusive(parse("a == 1"), parse("b != 1"))


@pytest.mark.parametrize("text", ["rank == 0", "args.local_rank in (-1, 0)", "is_main_process()", "self.gpu_id == 0"])
def test_a_condition_chooses_one_process(text):
    assert is_of_one_rank(parse(text))


def test_other_conditions_choose_none():
    assert not is_of_one_rank(parse("epoch % 10 == 0", "args.save"))


def test_a_way_without_mpi_is_open_to_every_instance():
    assert is_of_one_rank(parse("not args.distributed or rank == 0"))
    assert not is_of_one_rank(parse("not MPI_AVAILABLE or rank == 0"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch.cuda.is_available()", True),
        ("args.gpus and ready", True),
        ("not args.no_cuda", True),
        ("local_rank != -1", True),
        ("not use_cuda", False),
        ("args.verbose", False),
    ],
)
def test_a_condition_asks_for_cuda(text, expected):
    assert asks_for_cuda(parse(text)) is expected
