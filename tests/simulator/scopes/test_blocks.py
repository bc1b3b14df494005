"""Blocks: which stage and IPU operators belong to, how blocks begin and end, and that the CPU knows nothing of them."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._scopes.blocks import Block, _BlockHook


class TwoBlocks(nn.Module):
    """Two linear layers, each in a block."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x):
        with simulator.Block("A", ipu_id=0):
            x = self.first(x)
        with simulator.Block("B", ipu_id=1):
            return self.second(x)


class Traced(nn.Module):
    """Runs `body(x)` as its forward."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)


def compiled(model, *, strategy=None, iterations=1):
    options = simulator.Options().deviceIterations(iterations)
    options.setExecutionStrategy(strategy or simulator.ShardedExecution())
    executor = simulator.inferenceModel(model, options)
    executor.compile(torch.ones(iterations, 4))
    return executor


def places(executor):
    """Return block, stage, phase and IPU of each operator."""
    nodes = [operator.node for operator in executor.device_session.compiled.graph.operators]
    return [tuple(node.meta[key] for key in ("block", "stage", "phase", "ipu")) for node in nodes]


def test_each_operator_is_in_the_block_around_it():
    assert places(compiled(TwoBlocks())) == [("A", 0, 0, 0), ("B", 1, 0, 1)]


def test_a_strategy_changes_no_result(poptorch):
    torch.manual_seed(0)
    model, x = TwoBlocks(), torch.randn(4, 4)
    strategies = [
        poptorch.PipelinedExecution(),
        poptorch.PipelinedExecution("A", "B"),
        poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement),
        poptorch.SerialPhasedExecution("A", "B"),
        poptorch.ParallelPhasedExecution(poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(1)),
    ]

    for strategy in strategies:
        options = poptorch.Options().deviceIterations(2).setExecutionStrategy(strategy)
        torch.testing.assert_close(poptorch.inferenceModel(model, options)(x), model(x))


def test_blocks_do_nothing_on_the_cpu():
    model, x = TwoBlocks(), torch.ones(1, 4)

    torch.testing.assert_close(model(x), model.second(model.first(x)))
    assert Block._stages_manager is None


def test_entering_a_block_gives_nothing():
    with simulator.Block("A") as entered:
        assert entered is None


def test_a_block_can_be_a_sub_module_without_state():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = simulator.Block("A", ipu_id=1)
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            with self.block:
                return self.layer(x)

    holder = Holder()

    assert sorted(holder.state_dict()) == ["layer.bias", "layer.weight"]
    assert places(compiled(holder)) == [("A", 1, 0, 1)]


def test_operators_before_the_first_block_are_on_the_first_ipu():
    def forward(x):
        x = x + 1
        with simulator.Block("A", ipu_id=1):
            return x * 2

    assert places(compiled(Traced(forward))) == [("", 0, 0, 0), ("A", 1, 0, 1)]


@pytest.mark.parametrize("iterations", [1, 2])
def test_an_operator_after_a_block_must_be_in_another_one(iterations):
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            x = x + 1
        return x * 2

    with pytest.raises(simulator.Error, match="No active Block, all the ops must belong to a Block"):
        compiled(Traced(forward), iterations=iterations)

    assert not simulator.poptorch_core.isCompilingWithDispatcher()
    assert Block._stages_manager is None


def test_the_operator_outside_all_blocks_is_named_with_its_line():
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            x = x + 1
        return torch.relu(x)

    with pytest.raises(simulator.Error, match=r"aten\.relu\.default at .*test_blocks\.py"):
        compiled(Traced(forward))


def test_an_inner_block_ends_the_outer_one_too():
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            with simulator.Block("B", ipu_id=1):
                x = x + 1
            return x * 2

    with pytest.raises(simulator.Error, match="No active Block"):
        compiled(Traced(forward))


def test_constants_and_returned_values_need_no_block():
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            y = x + 1
        return y, torch.ones(2, device=y.device) * 3

    assert len(compiled(Traced(forward))(torch.ones(1, 4))) == 2


def test_what_does_nothing_needs_no_block():
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            y = x + 1
        return y.float().contiguous().type_as(x)

    assert torch.equal(compiled(Traced(forward))(torch.ones(1, 4)), torch.full((1, 4), 2.0))


def test_what_is_computed_from_a_changed_constant_needs_a_block():
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            total = torch.zeros(4, device=x.device)
            total += x[0]
        return total * 2

    with pytest.raises(simulator.Error, match="No active Block"):
        compiled(Traced(forward))


def test_random_numbers_need_a_block():
    def forward(x):
        with simulator.Block("A", ipu_id=0):
            y = x + 1
        return y, torch.rand(4, device=x.device)

    with pytest.raises(simulator.Error, match="No active Block"):
        compiled(Traced(forward))


def test_a_block_that_is_started_lasts_until_the_next_one():
    def forward(x):
        simulator.Block.start("A", ipu_id=0)
        x = x + 1
        simulator.Block.start("B", ipu_id=1)
        x = x * 2
        return x - 1

    assert places(compiled(Traced(forward))) == [("A", 0, 0, 0), ("B", 1, 0, 1), ("B", 1, 0, 1)]


def test_blocks_without_an_id_are_numbered_as_they_are_entered():
    def forward(x):
        simulator.Block.useAutoId()
        with simulator.Block(ipu_id=0):
            x = x + 1
        with simulator.Block(ipu_id=1):
            x = x * 2
        simulator.Block.useAutoId()
        with simulator.Block(ipu_id=0):
            return x - 1

    assert [place[0] for place in places(compiled(Traced(forward)))] == ["0", "1", "0"]


def test_a_module_begins_a_block_where_it_is_called():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    begun = simulator.BeginBlock(model[2], "B", ipu_id=1)

    assert begun is model[2]
    assert places(compiled(model)) == [("", 0, 0, 0), ("", 0, 0, 0), ("B", 1, 0, 1)]


def test_beginning_a_block_changes_neither_names_nor_values():
    model = nn.Linear(4, 2)
    before = model.state_dict()

    simulator.BeginBlock(model, "A", ipu_id=0)

    assert list(model.state_dict()) == list(before)
    torch.testing.assert_close(model(torch.ones(1, 4)), nn.functional.linear(torch.ones(1, 4), **before))


def test_numbers_of_begun_blocks_are_kept_for_later_traces():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    for index, layer in enumerate(model):
        simulator.BeginBlock(layer, ipu_id=index)

    first, second = places(compiled(model)), places(compiled(model))

    assert first == second == [("0", 0, 0, 0), ("1", 1, 0, 1)]
    assert simulator.module_repr(model[1]).startswith("BeginBlock(user_id=1, ipu_id=1) Linear(")


def test_a_module_cannot_begin_two_blocks():
    layer = simulator.BeginBlock(nn.Linear(4, 4), "A")

    with pytest.raises(simulator.Error, match=r"module has already been assigned to a block\."):
        simulator.BeginBlock(layer, "B")
    simulator.removeBlocks(layer)

    assert simulator.BeginBlock(layer, "B") is layer


def test_only_what_can_be_called_begins_a_block():
    with pytest.raises(simulator.Error, match=r"module is not an instance of torch.nn.Module or function\."):
        simulator.BeginBlock(3, "A")


def test_a_function_can_begin_a_block():
    double = simulator.BeginBlock(lambda x: x * 2, "B", ipu_id=1)

    def forward(x):
        return double(x + 1)

    assert type(double) is simulator.LegacyBeginBlockFn
    assert isinstance(double, nn.Module)
    assert double(3) == 6
    assert places(compiled(Traced(forward))) == [("", 0, 0, 0), ("B", 1, 0, 1)]


def test_a_decorated_function_runs_inside_a_block():
    @simulator.BlockFunction("B", ipu_id=1)
    def double(x):
        return x * 2

    assert double.__name__ != "double"
    assert double(3) == 6
    assert places(compiled(Traced(lambda x: double(x + 1)))) == [("", 0, 0, 0), ("B", 1, 0, 1)]


def test_blocks_are_removed_from_all_modules_inside():
    model = nn.Sequential(nn.Sequential(simulator.BeginBlock(nn.Linear(4, 4), "A")), nn.ReLU())
    other = model[1].register_forward_pre_hook(lambda module, inputs: None)

    simulator.removeBlocks(model)

    assert not model[0][0]._forward_pre_hooks
    assert other.id in model[1]._forward_pre_hooks


def test_blocks_are_removed_from_modules_only():
    with pytest.raises(AssertionError):
        simulator.removeBlocks(lambda x: x)


def test_a_hook_says_which_block_it_begins():
    model = nn.Sequential(simulator.BeginBlock(nn.ReLU(), "A", ipu_id=2))

    assert simulator.module_repr(model) == "Sequential(\n  (0): BeginBlock(user_id=A, ipu_id=2) ReLU()\n)"
    assert repr(simulator.inferenceModel(model)) == simulator.module_repr(model)
    assert "BeginBlock" not in repr(model)


def test_blocks_survive_saving_and_copying():
    model = nn.Sequential(simulator.BeginBlock(nn.Linear(4, 4), "A", ipu_id=1), simulator.Block("B"))
    file = io.BytesIO()

    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)

    for duplicate in (loaded, copy.deepcopy(model)):
        hooks = list(duplicate[0]._forward_pre_hooks.values())
        assert [repr(hook) for hook in hooks] == ["BeginBlock(user_id=A, ipu_id=1)"]
        assert isinstance(hooks[0], _BlockHook)


def test_everything_is_reset_after_an_error_in_forward():
    def forward(x):
        with simulator.Block("A", ipu_id=0), simulator.MultiConv(), simulator.NameScope("n"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiled(Traced(forward))

    assert Block._stages_manager is None
    assert not simulator.isRunningOnIpu()
    assert places(compiled(TwoBlocks())) == [("A", 0, 0, 0), ("B", 1, 0, 1)]


def test_blocks_are_found_where_programs_look_for_them():
    for name in ("BeginBlock", "Block", "BlockFunction", "BlockId", "LegacyBeginBlockFn", "removeBlocks"):
        assert getattr(simulator.ops, name) is getattr(simulator, name)
    assert simulator.BlockId is str
