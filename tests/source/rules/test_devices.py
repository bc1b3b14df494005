"""Moves, wrappers and CUDA."""

from __future__ import annotations

import pytest


def test_cuda_under_a_question_is_no_finding(find):
    program = """
        import torch
        model = torch.nn.Linear(4, 3)
        use_cuda = torch.cuda.is_available()
        if use_cuda:
            model.cuda()
            torch.cuda.synchronize()
        model.cuda()
        torch.cuda.manual_seed(1)
        torch.cuda.synchronize()
    """

    assert find(program) == ["D013:7", "D013:9"]


def test_a_device_is_found_where_it_is_named(find):
    program = """
        import torch
        DEVICE = "cuda"
        other = torch.device("cuda:1")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Linear(4, 3).to(DEVICE)
        model.to(device)
        model.to("cuda")
    """

    assert find(program) == ["D013:2", "D013:3", "D013:7"]


def test_a_model_moved_before_it_is_ported_is_no_finding(find):
    program = """
        import torch
        from porting import to_ipu
        from data import dataset
        model = torch.nn.Linear(4, 3)
        model = model.half()
        ported = to_ipu(model, torch.nn.MSELoss())
        model.float()
        ported = ported.half()
        for x, y in ported.dataloader(dataset):
            output, loss = ported(x, y)
    """

    assert find(program) == ["D003:8"]


def test_a_wrapper_is_found_once_and_not_where_the_model_is_called(find):
    program = """
        import torch
        model = torch.compile(torch.nn.DataParallel(torch.nn.Linear(4, 3)))
        for step in range(3):
            model(torch.rand(8, 4))
    """

    assert find(program) == ["D012:2"]


def test_a_return_where_there_is_no_cuda_guards_what_follows(find):
    program = """
        import torch
        def describe(fast):
            if not torch.cuda.is_available() or not fast:
                return "cpu"
            return torch.cuda.get_device_name(0)
        def count(slow):
            if not torch.cuda.is_available() and slow:
                return 0
            return torch.cuda.current_device()
        fast = torch.cuda.is_available() and torch.cuda.get_device_capability() > (8, 0)
        describe(fast), count(True)
    """

    assert find(program) == ["D013:9"]


def test_what_may_be_the_bare_model_is_moved_as_that(find):
    program = """
        import sys
        import poptorch
        import torch
        model = torch.nn.Linear(4, 3)
        if len(sys.argv) > 1:
            model = poptorch.trainingModel(model)
        model.half()
    """

    assert find(program) == []


def test_data_parallel_in_forward_is_for_gpus(find):
    program = """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)
            def forward(self, x):
                return torch.nn.parallel.data_parallel(self.fc, x)
    """

    assert find(program) == ["D012:7"]


MAYBE_PORTED = """
        import argparse
        import poptorch
        from model import dataset
        from torch import nn
        args = argparse.ArgumentParser().parse_args()
        model = nn.Linear(4, 3)
        if args.ipu:
            model = poptorch.trainingModel(model)
"""


def test_what_moves_a_port_and_takes_its_place_is_found_though_it_may_be_the_bare_model(find):
    assert find(MAYBE_PORTED + "        model = model.to(args.device)\n") == ["D010:2", "D003:9"]


@pytest.mark.parametrize(
    "line",
    [
        "model.to(args.device)",
        "if not args.ipu: model = model.to(args.device)",
        "if args.cuda: model = model.cuda()",
    ],
)
def test_what_leaves_the_port_where_it_is_is_no_move(line, find):
    assert find(f"{MAYBE_PORTED}        {line}\n") == ["D010:2"]


def test_an_executor_casts_the_weights_of_its_model_in_place(find):
    program = """
        import poptorch
        from model import model
        infer = poptorch.inferenceModel(model)
        infer.half()
        infer = infer.half()
    """

    assert find(program) == ["D003:5"]


@pytest.mark.parametrize("name", ["f'cuda:{rank}'", "'cuda:{}'.format(rank)", "'cuda:1'"])
def test_a_device_of_cuda_by_its_number(find, name):
    assert find(f"import sys\nimport torch\nrank = len(sys.argv)\ndevice = torch.device({name})\n") == ["D013:4"]


@pytest.mark.parametrize("name", ["f'cpu:{rank}'", "'{}'.format(rank)", "f'{kind}:{rank}'"])
def test_a_device_that_need_not_be_of_cuda(find, name):
    assert find(f"import torch\nfrom ranks import kind, rank\ndevice = torch.device({name})\n") == []


def test_a_device_in_the_main_part_of_an_imported_file_is_not_judged(find):
    other = """
        import torch
        def make():
            return torch.nn.Linear(4, 3)
        if __name__ == "__main__":
            model = make()
            device = "cuda"
    """

    assert find("from other import make\nmodel = make()\n", other=other) == []
    assert find(other) == ["D013:6"]


def test_a_device_that_is_compared_in_a_line_that_asks(find):
    program = """
        import torch
        from ranks import device
        if device.type == torch.device("cuda").type and not torch.cuda.is_available():
            device = torch.device("cpu")
    """

    assert find(program) == []
