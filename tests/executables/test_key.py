"""A key is the same for the same step in every process, and another for everything that programs depend on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan, ReplicaGroups
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.calls.group_settings import read_settings
from porting.executables.key import make_executable_key


class Net(nn.Module):
    def __init__(self, *, width=8, p=0.1, activation=None, scale=1.0):
        super().__init__()
        self.body = nn.Linear(4, width)
        self.activation = activation or nn.ReLU()
        self.drop = nn.Dropout(p)
        self.head = nn.Linear(width, 3)
        self.scale = scale

    def forward(self, x, y):
        factor = torch.full((3,), self.scale).to(x.device)
        logits = self.head(self.drop(self.activation(self.body(x)))) * factor
        return nn.functional.cross_entropy(logits, y)


def key_of(
    model=None,
    *,
    batch=16,
    optimizer=None,
    choice=None,
    plan=None,
    engine="auto",
    dtype=torch.float32,
    replica_groups=None,
    **settings,
):
    model = model or Net()
    inputs = [torch.ones(batch, 4, dtype=dtype), torch.zeros(batch, dtype=torch.long)]
    graph = capture_step(model, inputs, mode="training")
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    names = [name for name, _parameter in model.named_parameters()]
    request = BuildRequest(plan or CallPlan(), tuple(read_settings(optimizer)), (tuple(names),), choice or Choice())
    request = replace(request, replica_groups=replica_groups or {})
    return make_executable_key(graph, request, engine=engine, **settings)


def sgd(model, **settings):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **settings})


def with_optimizer(**settings):
    model = Net()
    return key_of(model, optimizer=sgd(model, **settings))


def frozen():
    model = Net()
    model.body.weight.requires_grad_(False)
    return key_of(model)


CHANGES = {
    "dropout": lambda: key_of(Net(p=0.2)),
    "width": lambda: key_of(Net(width=9)),
    "activation": lambda: key_of(Net(activation=nn.GELU())),
    "constant": lambda: key_of(Net(scale=2.0)),
    "batch": lambda: key_of(batch=32),
    "half": lambda: key_of(Net().half(), dtype=torch.float16),
    "frozen": frozen,
    "accumulation": lambda: key_of(plan=CallPlan(accumulation=4)),
    "replicas": lambda: key_of(plan=CallPlan(replicas=2)),
    "iterations": lambda: key_of(plan=CallPlan(iterations=2)),
    "output mode": lambda: key_of(plan=CallPlan(output_mode="all")),
    "momentum": lambda: with_optimizer(momentum=0.9),
    "weight decay": lambda: with_optimizer(weight_decay=0.1),
    "engine": lambda: key_of(engine="aot"),
    "choice": lambda: key_of(choice=Choice("aot", channels_last=True)),
    "threads": lambda: key_of(choice=Choice(num_threads=7)),
    "replica groups": lambda: key_of(replica_groups={"body.weight": ReplicaGroups(4, 2, strided=False)}),
}


def test_the_same_step_has_the_same_key():
    assert key_of().digest == key_of().digest


@pytest.mark.parametrize("name", CHANGES)
def test_what_programs_depend_on_changes_the_key(name):
    assert CHANGES[name]().digest != key_of().digest


def test_all_changes_have_keys_of_their_own():
    digests = [make().digest for make in CHANGES.values()]

    assert len(set(digests)) == len(digests)


def test_numbers_that_programs_take_as_arguments_change_nothing():
    assert with_optimizer(lr=0.2, momentum=0.9).digest == with_optimizer(lr=0.1, momentum=0.8).digest


def test_the_values_of_weights_change_nothing():
    model = Net()
    with torch.no_grad():
        model.body.weight.fill_(3.0)

    assert key_of(model).digest == key_of().digest


def test_the_name_of_the_class_explains_and_changes_nothing():
    named = key_of(model=Net())

    assert named.digest == key_of().digest
    assert key_of().explained["places"] != []


def program(*, lines_before=0):
    return "\n" * lines_before + textwrap.dedent(
        """
        import torch
        from torch import nn
        from porting.capture import capture_step
        from porting.engines.calls.call_plan import CallPlan
        from porting.engines.calls.executable import BuildRequest
        from porting.executables.key import make_executable_key

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm2d(3)
                self.register_buffer("scale", torch.ones(3, 1, 1))

            def forward(self, x):
                y = torch.cat([x, self.norm(x)], dim=1).transpose(1, 2)
                return nn.functional.max_pool2d(y * 2.5, 2), x.to(torch.float16)

        graph = capture_step(Net(), [torch.ones(2, 3, 8, 8)], mode="inference")
        print(make_executable_key(graph, BuildRequest(CallPlan()), engine="aot").digest)
        """
    )


def digest_in_a_process(tmp_path, source, seed):
    file = tmp_path / f"program{seed}.py"
    file.write_text(source)
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    words = [sys.executable, str(file)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_key_is_the_same_in_every_process_and_wherever_the_lines_stand(tmp_path):
    first = digest_in_a_process(tmp_path, program(), "1")
    second = digest_in_a_process(tmp_path, program(lines_before=7), "2")

    assert first == second
    assert len(first.strip()) == 32


def test_the_key_for_another_engine_is_the_one_that_is_made_for_it():
    assert key_of(engine="auto").for_engine("aot").digest == key_of(engine="aot").digest


def test_components_are_plain_and_the_same_after_a_file():
    components = key_of().components

    assert json.loads(json.dumps(components)) == components


def test_a_loop_is_part_of_the_key():
    class Loops(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return poptorch.for_loop(3, lambda value: [value * self.factor], [x])[0]

    def key(factor):
        graph = capture_step(Loops(factor), [torch.ones(2)], mode="inference")
        return make_executable_key(graph, BuildRequest(CallPlan()), engine="aot")

    assert key(2.0).digest == key(2.0).digest
    assert key(2.0).digest != key(3.0).digest
    assert key(2.0).opaque == ()


def test_a_call_of_the_host_is_for_this_process_only():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.op = poptorch.CPU(lambda x: x + 1, "plus_one")

        def forward(self, x):
            return self.op(x)

    graph = capture_step(Net(), [torch.ones(2)], mode="inference", host_features="ignored")
    key = make_executable_key(graph, BuildRequest(CallPlan()), engine="aot")

    assert key.opaque != ()


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_precision_that_was_set_in_the_newer_way_is_no_error():
    program = """
        import torch
        from tests.executables.test_key import key_of

        before = key_of().digest
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        after = key_of().digest
        assert before != after
    """
    newer = getattr(torch.backends.mkldnn, "matmul", None)
    if not hasattr(newer, "fp32_precision"):
        pytest.skip("this version of torch has no such setting")

    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
