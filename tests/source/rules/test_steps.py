"""The step of a training loop, in programs that say it in unusual ways."""

from __future__ import annotations

import pytest

from porting.source.checks import check_source
from porting.source.project import read_programs

PARTS = """
    import torch
    from torch import nn
    from data import loader, dataset
    from porting import to_ipu
    model, criterion = nn.Linear(4, 3), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_loss_made_in_a_function_of_another_file_is_found_where_the_loop_calls_it(find):
    program = """
        import torch
        from losses import total_loss
        from data import loader
        model = torch.nn.Linear(4, 3)
        for x, y in loader:
            loss = total_loss(model(x), y)
            loss.backward()
    """
    losses = """
        import torch.nn.functional as F
        def total_loss(output, y):
            return F.cross_entropy(output, y) + 0.1 * output.pow(2).mean()
    """

    assert find(program, losses=losses) == ["L001:6", "L010:7"]


def test_the_parts_of_a_loss_are_handed_over_as_one_function(tmp_path):
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "from data import loader\n"
        "model, first, second = torch.nn.Linear(4, 4), torch.nn.MSELoss(), torch.nn.L1Loss()\n"
        "for x, y in loader:\n"
        "    output = model(x)\n"
        "    loss = first(output, y)\n"
        "    loss += second(output, x)\n"
        "    loss.backward()\n"
    )

    findings = check_source(read_programs([str(tmp_path / "program.py")]))

    helps = [finding.help for finding in findings if finding.code == "L001"]
    assert len(helps) == 2
    assert all("one function of output and label" in help[0] for help in helps)


def test_a_loss_that_the_model_returns_is_inside_already(find):
    program = """
        import torch
        from torch import nn
        from data import loader
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 3)
            def forward(self, x, y):
                return nn.functional.cross_entropy(self.net(x), y)
        model = Model()
        for x, y in loader:
            loss = model(x, y) / 2
            loss.backward()
    """

    assert find(program) == ["L010:13"]


def test_a_loss_of_arithmetic_alone_is_found_at_its_statement(find):
    program = """
        import torch
        from data import loader
        model = torch.nn.Linear(4, 3)
        for x, y in loader:
            error = (model(x) - y).abs().mean()
            error.backward()
    """

    assert find(program) == ["L001:5", "L010:6"]


def test_a_plain_loop_beside_a_port_is_none_of_the_ports_business(find):
    program = (
        PARTS
        + """
    import sys
    if "--ipu" in sys.argv:
        use_ipu = True
    else:
        use_ipu = False
    if use_ipu:
        ported = to_ipu(model, criterion, optimizer=optimizer)
        for x, y in ported.dataloader(dataset):
            output, loss = ported(x, y)
    else:
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    )

    assert find(program) == []


def test_a_loop_that_stays_on_the_host_by_intention_has_no_faults(find):
    program = (
        PARTS
        + """
    ported = to_ipu(model, loop="host")
    for x, y in loader:
        loss = criterion(ported(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    """
    )

    assert find(program) == []


def test_an_optimizer_of_the_programs_own_updates_its_weights_itself(find):
    program = """
        import torch
        class Lion(torch.optim.Optimizer):
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data -= 0.1 * p.grad.sign()
    """

    assert find(program) == []


def test_weights_updated_in_each_of_the_usual_ways(find):
    program = """
        import torch
        model = torch.nn.Linear(4, 3)
        for p in model.parameters():
            p.data -= 0.1 * p.grad
        for p in model.parameters():
            p.data = p.data - 0.1 * p.grad
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.1 * p.grad)
    """

    assert find(program) == ["O015:4", "O015:6", "O015:9"]


def test_a_scaler_is_found_line_by_line(find):
    program = (
        PARTS.replace("from porting import to_ipu", "")
        + """
    scaler = torch.cuda.amp.GradScaler()
    for x, y in loader:
        loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    """
    )

    assert find(program) == ["O010:8", "L001:10", "L010:11", "O010:12", "O007:13", "O010:14"]


def test_gradients_asked_for_in_forward_are_another_code(find):
    program = """
        import torch
        from data import loader
        class Energy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(3, 1)
            def forward(self, x):
                return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]
        model = Energy()
        for x, y in loader:
            forces = model(x)
    """

    assert find(program) == ["C007:8"]


PENALTY = """
    import torch
    from data import loader
    from porting import to_ipu
    critic = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(critic.parameters())
    ported = to_ipu(critic, loop="host")
    for x in loader:
        x.requires_grad_(True)
        score = CALL(x)
        slope = torch.autograd.grad(score.sum(), xSETTING)[0]
        (ported(x).mean() + (slope.norm() - 1).square()).backward()
        optimizer.step()
"""


def test_a_gradient_of_a_gradient_is_found_in_a_loop_on_the_host(find):
    program = PENALTY.replace("CALL", "ported").replace("SETTING", ", create_graph=True")

    assert find(program) == ["L015:10"]


def test_gradients_of_first_order_and_those_of_the_plain_model_are_fine_in_a_loop_on_the_host(find):
    assert find(PENALTY.replace("CALL", "ported").replace("SETTING", "")) == []
    assert find(PENALTY.replace("CALL", "ported.model").replace("SETTING", ", create_graph=True")) == []
    assert find(PENALTY.replace("CALL", "critic").replace("SETTING", ", create_graph=True")) == []


@pytest.mark.parametrize(
    "owner",
    ["accelerator = Accelerator()", "class T: pass\nT.accelerator = Accelerator()\naccelerator = T.accelerator"],
)
def test_autocast_of_an_accelerator_chooses_the_precision(find, owner):
    program = f"from accelerate import Accelerator\n{owner}\nwith accelerator.autocast():\n    pass\n"

    assert [one.split(":")[0] for one in find(program)] == ["P013"]


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        ("loss = model(x)\n    loss = loss / 4\n    loss.backward()", []),
        ("loss = model(x)\n    (loss * 0.5).backward()", []),
        ("out = model(x)\n    (out.mean() + out.std()).backward()", ["L001:7"]),
    ],
)
def test_a_loss_that_has_no_name_or_is_the_models(find, lines, places):
    program = f"""import torch
from data import loader, make_model
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    {lines}
"""

    assert [place for place in find(program) if place.startswith("L001")] == places


def test_an_average_that_an_agent_updates_is_no_read(find):
    program = """
        import torch
        from agents import Agent, loader
        agent = Agent()
        for x in loader:
            agent.update_parameters(x)
    """

    assert find(program) == []


@pytest.mark.parametrize(("enabled", "places"), [("False", []), ("True", ["P013:4"]), ("rank > 0", ["P013:4"])])
def test_autocast_that_is_switched_off_chooses_nothing(find, enabled, places):
    program = f"""
        import torch
        from ranks import rank
        x = torch.rand(3)
        with torch.autocast("cuda", enabled={enabled}):
            y = x + 1
    """

    assert find(program) == places


@pytest.mark.parametrize(("given", "codes"), [("", ["O016"]), ("model = porting.to_ipu(model, loop='host')", [])])
def test_a_switch_of_synchronisation_is_none_for_a_port_of_a_loop_on_the_host(find, given, codes):
    program = f"""
import porting, torch
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{given}
for step in range(3):
    model.require_backward_grad_sync = step == 2
    model(torch.ones(2, 4)).mean().backward()
    opt.step()
    opt.zero_grad()
"""

    assert [one.split(":")[0] for one in find(program) if one.startswith("O016")] == codes
