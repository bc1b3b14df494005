"""Validation, the bare model, warm-up, arguments."""

from __future__ import annotations

HEAD = """
        import time
        import poptorch
        import torch
        from torch import nn
        from data import dataset
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 3)
            def forward(self, x, y=None):
                output = self.net(x)
                if y is None:
                    return output
                return output, nn.functional.cross_entropy(output, y)
        options = poptorch.Options()
        loader = poptorch.DataLoader(options, dataset, batch_size=8)
        model = Model()
        port = poptorch.trainingModel(model, options)
"""


def test_a_model_that_is_only_used_needs_no_second_executor(find):
    program = """
        import torch
        from torch import nn
        from data import loader
        teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
        teacher.eval()
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for x, y in loader:
            with torch.no_grad():
                wanted = teacher(x)
            student(x)
    """

    assert find(program) == []


def test_eval_before_saving_is_no_validation(find):
    program = """
        import torch
        from data import loader
        model = torch.nn.Linear(4, 3)
        for x, y in loader:
            model(x)
        model.eval()
        torch.save(model.state_dict(), "weights.pt")
    """

    assert find(program) == []


def test_a_ported_model_may_be_called_bare_after_the_training(find):
    program = (
        HEAD
        + """
        for x, y in loader:
            output, loss = port(x, y)
        model.eval()
        with torch.no_grad():
            print(model(torch.rand(8, 4)))
    """
    )

    assert find(program) == []


def test_a_call_before_the_loop_warms_up_as_well(find):
    program = (
        HEAD
        + """
        port(*next(iter(loader)))
        start = time.time()
        for x, y in loader:
            output, loss = port(x, y)
        print(time.time() - start)
    """
    )

    assert find(program) == []


def test_a_loop_that_nobody_times_needs_no_warm_up(find):
    program = (
        HEAD
        + """
        for x, y in loader:
            output, loss = port(x, y)
    """
    )

    assert find(program) == []


def test_arguments_by_name_have_to_be_the_forwards(find):
    program = (
        HEAD
        + """
        for x, y in loader:
            output, loss = port(x, y=y)
            output, loss = port(x, labels=y)
    """
    )

    assert find(program) == ["L014:22"]


def test_of_classes_of_one_name_nobody_knows_which_a_port_holds(find):
    program = (
        HEAD
        + """
        def check_one():
            class Local(nn.Module):
                def forward(self, x):
                    return x
            poptorch.inferenceModel(Local())(torch.rand(2))
        def check_two():
            class Local(nn.Module):
                def forward(self, x, y):
                    return x + y
            poptorch.inferenceModel(Local())(torch.rand(2), torch.rand(2))
        check_one()
        check_two()
    """
    )

    assert find(program) == []


def test_another_models_eval_mode_is_none_of_the_ports(find):
    program = (
        HEAD
        + """
        nn.Linear(3, 3).eval()
        model.eval()
        for x, y in loader:
            output, loss = port(x, y)
    """
    )

    assert find(program) == []


def test_a_deep_copy_is_another_model(find):
    program = (
        HEAD
        + """
        import copy
        plain = copy.deepcopy(model)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        for x, y in loader:
            output, loss = port(x, y)
            output, plain_loss = plain(x, y)
            optimizer.zero_grad()
            plain_loss.backward()
            optimizer.step()
    """
    )

    assert find(program) == []


def test_a_switch_to_evaluation_of_what_may_be_the_training_port_is_found_and_not_that_of_the_inference(find):
    program = """
        import argparse
        import poptorch
        from model import ModelWithLoss
        args = argparse.ArgumentParser().parse_args()
        model = ModelWithLoss()
        if args.ipu:
            if args.train:
                model = poptorch.trainingModel(model)
            else:
                model = poptorch.inferenceModel(model)
        if args.train:
            model.eval()
        else:
            model.eval()
    """

    assert find(program) == ["D010:2", "D014:12"]


def test_a_model_that_is_evaluated_where_nothing_trains_is_not_validated(find):
    program = """
        import torch
        from torch import nn
        def run(is_training, x):
            model = nn.Linear(4, 3)
            if is_training:
                optimizer = torch.optim.SGD(model.parameters())
                model(x).sum().backward()
            else:
                model.eval()
                model(x)
        run(True, torch.rand(4))
    """

    assert not [finding for finding in find(program) if finding.startswith("D014")]


def test_a_network_that_an_optimizer_of_inputs_uses_is_not_validated(find):
    program = """
        import torch
        net = torch.nn.Linear(8, 8).eval()
        image = torch.rand(1, 8).requires_grad_(True)
        optimizer = torch.optim.Adam([image])
        for _ in range(3):
            loss = (net(image) ** 2).mean()
            loss.backward()
            optimizer.step()
    """

    assert not [finding for finding in find(program) if finding.startswith("D014")]


def test_a_copy_of_the_model_under_no_grad_is_no_validation(find):
    program = """
        import copy
        import torch
        from torch import nn
        from data import loader
        model = nn.Linear(4, 3)
        target = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in loader:
            with torch.no_grad():
                y = target(x)
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    """

    assert [place for place in find(program) if place.startswith("D014")] == []


def test_a_part_of_a_model_that_was_switched_is_told_once(find):
    program = """
        import torch
        from torch import nn
        from data import loader
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)
            def forward(self, x):
                return self.decoder(self.encoder(x))
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def sample():
            model.eval()
            with torch.no_grad():
                return model.decoder(torch.zeros(1, 2)), model(torch.zeros(1, 4))
        for x in loader:
            nn.functional.mse_loss(model(x), x).backward()
            optimizer.step()
        sample()
    """

    assert [place for place in find(program) if place.startswith("D014")] == ["D014:13"]
