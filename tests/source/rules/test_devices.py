"""Moves, wrappers and CUDA."""

from __future__ import annotations


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
