"""Optimizers, accumulation and schedules."""

from __future__ import annotations

import pytest

from porting.source.checks import check_source
from porting.source.project import read_programs


@pytest.mark.parametrize("name", ["Adagrad", "Adadelta", "NAdam", "RAdam", "LBFGS", "Adamax", "ASGD", "Rprop"])
def test_an_optimizer_that_the_device_lacks(find, name):
    program = f"""
        import torch
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.{name}(model.parameters(), lr=0.1)
    """

    assert find(program) == ["O001:3"]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_an_optimizer_that_the_device_has(find, name):
    program = f"""
        import torch
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.{name}(model.parameters(), lr=0.1)
    """

    assert find(program) == []


def test_a_setting_that_is_off_is_none(find):
    program = """
        import torch
        model = torch.nn.Linear(4, 3)
        first = torch.optim.Adam(model.parameters(), amsgrad=False)
        second = torch.optim.Adam(model.parameters(), amsgrad=True)
    """

    assert find(program) == ["O002:4"]


def test_one_of_two_optimizers_chosen_by_a_flag_is_one_optimizer(find):
    program = """
        import sys
        import torch
        from data import loader
        model = torch.nn.Linear(4, 3)
        if len(sys.argv) > 1:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.step()
    """

    assert find(program) == ["O007:10"]


def test_an_optimizer_step_once_an_epoch_is_no_accumulation(find):
    program = """
        import torch
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.rand(8, 4), torch.rand(8, 3)
        for epoch in range(10):
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
            if epoch % 5 == 0:
                print(loss.item())
    """

    assert find(program) == ["L001:6", "L010:7", "O007:8"]


def test_a_learning_rate_written_by_hand_is_a_schedule(find):
    program = """
        import torch
        def adjust_learning_rate(optimizer, epoch):
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * 0.5 ** epoch
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(10):
            adjust_learning_rate(optimizer, epoch)
    """

    assert find(program) == ["O013:4"]


def test_a_rate_written_by_hand_is_not_told_to_connect_a_scheduler(tmp_path):
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 3)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(9):\n"
        "    optimizer.param_groups[0]['lr'] = 0.1 / (step + 1)\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )

    findings = check_source(read_programs([str(tmp_path / "program.py")]))

    (found,) = [finding for finding in findings if finding.code == "O013"]
    assert "keep the line" in found.help[0]
    assert not any("scheduler" in line for line in found.help)


def test_a_length_reaches_a_schedule_through_variables(find):
    program = """
        import torch
        from torch.utils.data import DataLoader
        from data import dataset
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(dataset, batch_size=8, drop_last=True)
        steps_per_epoch = len(loader)
        total = 10 * steps_per_epoch
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
        print("batches", len(loader))
    """

    assert find(program) == ["B014:6", "B016:7"]


def test_the_optimizer_that_a_port_was_given_is_not_withheld(find):
    program = """
        import torch
        from torch import nn
        from data import dataset
        from porting import to_ipu
        class Trainer:
            def __init__(self):
                self.model = nn.Linear(4, 3)
                self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
                self.ported = to_ipu(self.model, nn.CrossEntropyLoss(), optimizer=self.optimizer)
            def train(self):
                for x, y in self.ported.dataloader(dataset):
                    output, loss = self.ported(x, y)
        Trainer().train()
    """

    assert find(program) == []


def test_an_optimizer_that_replaces_the_first_one_is_handed_over(find):
    program = """
        import poptorch
        from model import ModelWithLoss, dataset
        options = poptorch.Options()
        model = ModelWithLoss()
        port = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
        for x, y in poptorch.DataLoader(options, dataset, batch_size=8):
            port(x, y)
            port.setOptimizer(poptorch.optim.SGD(model.parameters(), lr=0.01))
    """

    assert find(program) == []


def test_an_optimizer_over_no_module_keeps_a_schedule_and_no_weights(find):
    program = """
        import poptorch
        import torch
        from model import ModelWithLoss, dataset
        options = poptorch.Options()
        model = ModelWithLoss()
        port = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
        dummy = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        for x, y in poptorch.DataLoader(options, dataset, batch_size=8):
            port(x, y)
            dummy.step()
    """

    assert find(program) == []


def test_optimizers_of_separate_trainings_are_no_several_optimizers(find):
    program = """
        import torch
        from torch import nn
        def train(model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                model(torch.rand(8, 4)).sum().backward()
                optimizer.step()
        def probe(head):
            optimizer = torch.optim.Adam(head.parameters())
            for step in range(3):
                head(torch.rand(8, 4)).sum().backward()
                optimizer.step()
        train(nn.Linear(4, 3))
        probe(nn.Linear(4, 3))
    """

    assert "O014:9" not in find(program)


def test_a_schedule_of_schedules_steps_them_itself(find):
    program = """
        import poptorch
        from torch.optim.lr_scheduler import LRScheduler, StepLR
        class WarmUp(LRScheduler):
            def __init__(self, optimizer):
                self.inner = StepLR(optimizer, 10)
                super().__init__(optimizer)
            def step(self):
                super().step()
                self.inner.step()
    """

    assert find(program) == []


def test_a_step_of_remote_optimizers_takes_no_closure(find):
    program = """
        from torch.distributed.optim import DistributedOptimizer
        import torch
        def train(context, parameters):
            optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.1)
            optimizer.step(context)
    """

    assert find(program) == ["O007:5"]


@pytest.mark.parametrize(("use", "found"), [("load_state_dict({})", []), ("step()", ["O012:4"])])
def test_an_optimizer_that_later_only_takes_over_a_state_is_none_that_the_port_lacks(use, found, find):
    program = f"""
        import poptorch
        from model import model, batch
        optimizer = poptorch.optim.Adam(model.parameters())
        port = poptorch.trainingModel(model, optimizer=optimizer)
        restored = poptorch.optim.Adam(model.parameters())
        restored.{use}
        port(batch)
    """

    assert find(program) == found


HEAD_OF_TWO = """
    import torch
    from data import loader
    model = torch.nn.Linear(4, 3)
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.Adam(model.parameters(), lr=0.1)
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        first.step()
{behind}
"""


@pytest.mark.parametrize(("behind", "codes"), [("    second.step()", []), ("        second.step()", ["O014:5"])])
def test_an_optimizer_behind_the_training_of_another_is_none_beside_it(find, behind, codes):
    assert [place for place in find(HEAD_OF_TWO.format(behind=behind)) if place.startswith("O014")] == codes


def test_accumulation_by_going_on_to_the_next_batch(find):
    program = """
        import torch
        from data import loader
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i, (x, y) in enumerate(loader):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            if i % 4 != 0:
                continue
            optimizer.step()
    """

    assert [place for place in find(program) if place.startswith("O011")] == ["O011:7"]


@pytest.mark.parametrize(("word", "found"), [("total_steps", ["B016:4"]), ("size", [])])
def test_a_length_that_somebody_is_told_as_that_of_a_schedule(find, word, found):
    program = f"""
        from torch.utils.data import DataLoader
        from data import dataset, make
        loader = DataLoader(dataset, batch_size=8, drop_last=True, num_workers=2)
        module = make(lr=0.1, {word}=len(loader) * 3)
    """

    assert [place for place in find(program) if place.startswith("B016")] == found
