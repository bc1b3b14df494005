"""Stages and recomputation by name: they change where a step runs, never what it computes, and leave no mark."""

from __future__ import annotations

import itertools
from collections import namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting import PortingError, PortOptions, to_ipu
from porting.adapters.stages import balanced_stages, check_order, mark_stages
from porting.diagnostics import OptionError

Pair = namedtuple("Pair", ["first", "second"])


class Tower(nn.Module):
    """An embedding, two layers in a list, a pair-valued module and a head, run one after another."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 8)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2)) for _ in range(3))
        self.fork = Fork()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(sum(self.fork(x)))


class Fork(nn.Module):
    def forward(self, x):
        return Pair(x * 2, torch.relu(x))


class Tied(nn.Module):
    """An embedding whose weight is used again at the end, in `forward` itself."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.middle = nn.Linear(8, 8)

    def forward(self, tokens):
        return nn.functional.linear(self.middle(self.embedding(tokens)), self.embedding.weight)


class Looped(nn.Module):
    """Two cells that are called in turn, with the same weights each time."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 8)
        self.first = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2))
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.enter(x)
        for _turn in range(2):
            x = self.second(torch.relu(self.first(x)))
        return {"logits": self.head(x)}["logits"]


X = torch.linspace(-1, 1, 4 * 28).reshape(28, 4)
Y = torch.arange(28) % 3


def ported_tower(kind=Tower, **options):
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = PortOptions(micro_batch=4, accumulation=7, seed=1, **options)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")


def trained(kind=Tower, **options):
    """Train three steps; return losses, weights and the outputs of inference."""
    ported = ported_tower(kind, **options)
    losses = [ported(X, Y)[1].item() for _ in range(3)]
    return losses, {name: value.clone() for name, value in ported.state_dict().items()}, ported.inference()(X[:4])


def codes_of(call):
    with pytest.raises(PortingError) as caught:
        call()
    return caught.value.code, str(caught.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        {"stages": {"layers.1": 1}},
        {"stages": {"layers.0": 0, "layers.1": 1, "head": 0}},
        {"stages": {"layers.0": 1, "layers.1": 2, "head": 3}},
        {"stages": {"layers.1.0": 1, "layers.1.1": 1}},
        {"recompute": ["layers.0", "layers.1", "fork"]},
        {"stages": {"layers.1": 1}, "recompute": ["layers.0", "layers.2", "fork"]},
    ],
)
def test_losses_weights_and_outputs_are_those_without(options):
    plain_losses, plain_weights, plain_outputs = trained()

    losses, weights, outputs = trained(**options)

    assert losses == plain_losses
    assert all(torch.equal(weights[name], value) for name, value in plain_weights.items())
    assert torch.equal(outputs, plain_outputs)


TURNS = {"second#1": 1, "first#2": 0, "second#2": 1}


@pytest.mark.parametrize("stages", [TURNS, {"second": 1, "first#2": 0, "second#2": 1}], ids=["numbered", "one plain"])
def test_calls_of_one_module_begin_stages_each_with_the_same_losses(stages):
    plain_losses, plain_weights, plain_outputs = trained(Looped)

    losses, weights, outputs = trained(Looped, stages=stages)

    assert losses == plain_losses
    assert all(torch.equal(weights[name], value) for name, value in plain_weights.items())
    assert torch.equal(outputs, plain_outputs)


def test_each_call_is_on_the_ipu_of_its_stage():
    ported = ported_tower(Looped, stages=TURNS)
    ported.compile(X, Y)

    placed = [
        (op.module_path, op.node.meta["ipu"])
        for op in ported.device_executor.device_session.compiled.graph.operators
        if op.operator == "aten.linear.default"
    ]

    assert [ipu for _path, ipu in placed] == [0, 0, 1, 0, 1, 1]
    assert [path for path, _ipu in placed][1:5] == ["first.0", "second.0"] * 2


def test_a_call_that_leaves_its_weight_behind_is_refused():
    assert codes_of(lambda: ported_tower(Looped, stages={"first#2": 1})(X, Y))[0] == "P010"


def test_a_call_that_there_is_not_is_refused():
    code, text = codes_of(lambda: ported_tower(Looped, stages={"first#1": 0, "second#3": 1})(X, Y))

    assert code == "P009"
    assert "`second#3`" in text


def test_two_names_of_one_module_are_refused_with_its_calls():
    layer = nn.Linear(4, 4)
    options = PortOptions(stages={"0": 1, "2": 2})

    code, text = codes_of(lambda: to_ipu(nn.Sequential(layer, nn.ReLU(), layer), options=options))

    assert code == "P007"
    assert "`2#1`, `2#2`" in text


def test_operators_are_on_the_ipu_of_the_stage_that_began_last():
    ported = ported_tower(stages={"layers.1": 1, "head": 0})
    ported.compile(X, Y)

    placed = {
        (op.module_path, op.node.meta["ipu"])
        for op in ported.device_executor.device_session.compiled.graph.operators
        if op.operator == "aten.linear.default"
    }

    assert placed == {("enter", 0), ("layers.0.0", 0), ("layers.1.0", 1), ("layers.2.0", 1), ("head", 0)}


def test_outputs_of_modules_to_recompute_are_marked_in_whatever_they_are():
    ported = ported_tower(recompute=["layers.0", "fork"])
    ported.compile(X, Y)
    operators = ported.device_executor.device_session.compiled.graph.operators

    assert [op.operator for op in operators].count("poptorch.recomputation_checkpoint.default") == 3


def test_the_model_is_as_plain_as_before():
    ported = ported_tower(stages={"layers.1": 1}, recompute=["layers.0"])
    own = ported.model.head.register_forward_pre_hook(lambda _module, _args: None)
    ported(X, Y)

    hooks = [(*module._forward_pre_hooks, *module._forward_hooks) for module in ported.model.modules()]

    assert [hook for found in hooks for hook in found] == [own.id]


def test_blocks_of_the_users_own_stay(poptorch):
    model = Tower()
    poptorch.BeginBlock(model.head, "mine", ipu_id=1)

    with mark_stages(model, PortOptions(stages={"layers.1": 1}), backend=poptorch):
        assert len(model.layers[1]._forward_pre_hooks) == 1

    assert len(model.layers[1]._forward_pre_hooks) == 0
    assert len(model.head._forward_pre_hooks) == 1


def test_a_module_with_a_block_of_its_own_is_refused_and_keeps_it(poptorch):
    model = Tower()
    poptorch.BeginBlock(model.head, "mine", ipu_id=1)

    with pytest.raises(OptionError, match="begins a block already"), mark_stages(
        model, PortOptions(stages={"head": 1}), backend=poptorch
    ):
        pass

    assert len(model.head._forward_pre_hooks) == 1


def test_the_marks_are_gone_when_compiling_fails():
    class Reading(Tower):
        def forward(self, x):
            return super().forward(x) * float(x.sum())

    options = PortOptions(micro_batch=4, accumulation=7, stages={"layers.1": 1})
    ported = to_ipu(Reading(), nn.CrossEntropyLoss(), options=options, device="sim")

    assert codes_of(lambda: ported(X, Y))[0] == "C001"
    assert not any(module._forward_pre_hooks for module in ported.model.modules())


@pytest.mark.parametrize("option", [{"stages": {"layer.1": 1}}, {"recompute": ["layer.1"]}])
def test_an_unknown_name_is_refused_with_the_nearest(option):
    code, text = codes_of(lambda: ported_tower(**option))

    assert code == "P007"
    assert "did you mean `layers.1`" in text


def test_the_end_of_a_name_is_recognised():
    options = PortOptions(recompute=["embedding"])

    assert "did you mean `0.embedding`" in codes_of(lambda: to_ipu(nn.Sequential(Tied()), options=options))[1]


@pytest.mark.parametrize(("num_stages", "accumulation"), [(2, 2), (3, 4), (4, 6)])
def test_too_few_micro_batches_are_refused_with_the_number_needed(num_stages, accumulation):
    stages = {f"layers.{number}": number + 1 for number in range(num_stages - 1)}
    model = Tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(accumulation=accumulation, stages=stages)

    code, text = codes_of(lambda: to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options))

    assert code == "P008"
    assert f"accumulation={2 * num_stages - 1}" in text


def test_inference_needs_no_accumulation():
    ported = to_ipu(Tower(), options=PortOptions(stages={"head": 1}), device="sim")

    assert ported.inference()(X[:1]).shape == (1, 3)


def test_inference_is_pipelined_where_iterations_fill_the_pipeline(poptorch):
    def strategy(iterations):
        options = PortOptions(stages={"head": 1}, device_iterations=iterations)
        ported = to_ipu(Tower(), options=options, device="sim")
        return type(ported.port.inference_options._execution_strategy)

    assert strategy(1) is poptorch.ShardedExecution
    assert strategy(2) is poptorch.PipelinedExecution


@pytest.mark.parametrize("stages", [{"head": 1, "layers.1": 2}, {"layers": 1}, {"layers.1": 1, "layers.1.0": 2}])
def test_another_order_than_the_models_is_refused(stages):
    assert codes_of(lambda: ported_tower(stages=stages)(X, Y))[0] == "P009"


def test_a_module_that_runs_twice_in_its_stage_is_no_other_order():
    check_order(PortOptions(stages={"a": 1, "b": 1, "c": 2}), ["a", "a", "b", "a", "c"])


def test_a_module_that_runs_in_two_stages_is_refused():
    with pytest.raises(OptionError, match="another order"):
        check_order(PortOptions(stages={"a": 1, "b": 2}), ["a", "b", "a"])


def test_a_weight_on_two_ipus_is_refused_at_the_line_that_uses_it():
    options = PortOptions(micro_batch=2, accumulation=5, stages={"middle": 1})
    tokens = torch.arange(10)

    code, text = codes_of(lambda: to_ipu(Tied(), nn.CrossEntropyLoss(), options=options)(tokens, tokens))

    assert code == "P010"
    assert "`embedding.weight`" in text
    assert "self.embedding.weight)" in text


def test_recomputation_on_one_ipu_is_asked_of_the_compiler():
    recompute_all = 4
    ported = ported_tower(recompute=["fork"])

    assert ported.port.training_options._Popart.options["autoRecomputation"] == recompute_all


def test_the_report_says_how_many_ipus_are_used():
    report = ported_tower(stages={"layers.1": 1, "head": 0}, replicas=2).report()

    assert "3 stages on 2 IPUs in each of 2 replicas: 0, 1, 0" in str(report)
    assert (report.num_ipus, report.to_dict()["num_stages"]) == (4, 3)


def largest(sizes, cuts):
    ends = [*cuts[1:], len(sizes)]
    return max(sum(sizes[first:end]) for first, end in zip(cuts, ends))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=7), st.data())
def test_balanced_stages_have_the_least_possible_largest_stage(sizes, data):
    num_ipus = data.draw(st.integers(1, len(sizes)))
    model = nn.Sequential(*(nn.ParameterList([torch.zeros(size)]) for size in sizes))

    stages = balanced_stages(model, num_ipus)

    cuts = [int(name) for name in stages]
    others = ([0, *rest] for rest in itertools.combinations(range(1, len(sizes)), num_ipus - 1))
    assert list(stages.values()) == list(range(num_ipus))
    assert largest(sizes, cuts) == min(largest(sizes, other) for other in others)


def test_balanced_stages_of_a_sequence_inside_have_its_name():
    assert balanced_stages(Tower(), 3, within="layers") == {"layers.0": 0, "layers.1": 1, "layers.2": 2}


def test_more_stages_than_modules_are_refused():
    with pytest.raises(ValueError, match="3 modules"):
        balanced_stages(Tower(), 4, within="layers")


def test_a_product_in_parts_trains_as_the_whole_one():
    def train(**options):
        torch.manual_seed(0)
        tower = Tower().eval()
        optimizer = torch.optim.SGD(tower.parameters(), lr=0.1)
        ported = to_ipu(tower, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options), device="sim")
        losses = [ported(torch.ones(4, 4), torch.tensor([0, 1, 2, 0]))[1].item() for _step in range(3)]
        return losses, vars(tower.enter).get("forward")

    whole, _none = train()
    parts, left_behind = train(serialize={"enter": 4})

    assert parts == pytest.approx(whole, rel=1e-5)
    assert left_behind is None


@pytest.mark.parametrize("padding", [None, 5])
def test_a_lookup_in_parts_gives_the_rows_and_gradients_of_the_whole_one(padding):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(12, 4, padding_idx=padding)

        def forward(self, tokens):
            return self.words(tokens).sum(1)

    tokens = torch.tensor([[0, 5, 11], [5, 4, 5], [7, 8, 1], [3, 3, 3]])

    def train(**options):
        torch.manual_seed(0)
        model = Words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ported = to_ipu(
            model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(micro_batch=4, **options)
        )
        losses = [ported(tokens, torch.tensor([0, 1, 2, 3]))[1].item() for _step in range(2)]
        return losses, ported.state_dict()["words.weight"].clone(), vars(model.words).get("forward")

    losses, weight, _none = train()
    in_parts, weight_in_parts, left_behind = train(serialize={"words": 3})

    assert in_parts == losses
    assert torch.equal(weight_in_parts, weight)
    assert left_behind is None


def test_a_lookup_that_needs_all_rows_is_not_computed_in_parts():
    model = nn.Sequential(nn.Embedding(8, 4, max_norm=1.0))

    with pytest.raises(OptionError, match="needs all rows at once"):
        to_ipu(model, options=PortOptions(serialize={"0": 2}), device="sim")


@pytest.mark.parametrize(
    ("serialize", "fault"), [({"layers.0.1": 2}, "which is a Tanh"), ({"head": 2}, "3 outputs are not 2 equal parts")]
)
def test_only_products_of_equal_parts_are_computed_in_parts(serialize, fault):
    with pytest.raises(OptionError, match=fault) as caught:
        to_ipu(Tower(), nn.CrossEntropyLoss(), options=PortOptions(serialize=serialize), device="sim")

    assert caught.value.code == "P007"
