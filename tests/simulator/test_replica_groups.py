"""Replicas in groups: inputs that a group shares, and parameters with a value for each group."""

from __future__ import annotations

import pytest
import torch
from torch import nn


class Product(nn.Module):
    """Multiplies by a matrix; the loss is the mean square."""

    def __init__(self, poptorch, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.mark_loss = poptorch.identity_loss

    def forward(self, x):
        product = x @ self.weight
        return product, self.mark_loss(product**2, "mean")


def grouped_options(poptorch, replicas, size, kind):
    options = poptorch.Options().replicationFactor(replicas).outputMode(poptorch.OutputMode.All)
    return options.inputReplicaGrouping(size, getattr(poptorch.CommGroupType, kind))


def trained_on_the_host(weight, x, num_steps):
    weight = weight.clone().requires_grad_()
    optimizer, losses = torch.optim.SGD([weight], lr=0.1, momentum=0.5), []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = ((x @ weight) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return weight.detach(), torch.stack(losses)


# -- inputs


@pytest.mark.parametrize(
    ("kind", "rows"),
    [("Consecutive", [0.0, 0.0, 1.0, 1.0]), ("Orthogonal", [0.0, 1.0, 0.0, 1.0])],
)
def test_the_replicas_of_a_group_get_the_same_rows(poptorch, kind, rows):
    options = grouped_options(poptorch, 4, 2, kind)

    result = poptorch.inferenceModel(nn.Identity(), options)(torch.arange(2.0))

    assert result.tolist() == rows


def test_a_group_reads_a_slab_of_rows_one_after_the_other(poptorch):
    options = grouped_options(poptorch, 4, 2, "Consecutive").deviceIterations(2)

    result = poptorch.inferenceModel(nn.Identity(), options)(torch.arange(4.0))

    assert result.tolist() == [0.0, 0.0, 2.0, 2.0, 1.0, 1.0, 3.0, 3.0]


def test_a_batch_is_cut_by_groups_and_not_by_replicas(poptorch):
    options = grouped_options(poptorch, 4, 2, "Consecutive")

    with pytest.raises(
        AssertionError, match=r"replicationFactor\(4\) / Options.inputReplicaGrouping.input_group_size\(2\)"
    ):
        poptorch.inferenceModel(nn.Identity(), options)(torch.ones(3))


def test_buffers_may_change_when_all_replicas_are_one_group(poptorch):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += x.sum()
            return self.count * 1

    executor = poptorch.inferenceModel(Counts(), grouped_options(poptorch, 2, 2, "Consecutive"))

    assert executor(torch.ones(1)).tolist() == [1.0, 1.0]


# -- parameters


@pytest.mark.parametrize(("of_inputs", "of_weights"), [("Consecutive", "Orthogonal"), ("Orthogonal", "Consecutive")])
def test_a_product_in_shards_trains_as_the_whole_one(poptorch, of_inputs, of_weights):
    torch.manual_seed(0)
    x, weight = torch.randn(24, 40), torch.randn(40, 56) / 6
    model = Product(poptorch, weight.reshape(40, 4, 14).transpose(0, 1))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    executor = poptorch.trainingModel(model, grouped_options(poptorch, 8, 4, of_inputs), optimizer)
    executor.weight.replicaGrouping(
        getattr(poptorch.CommGroupType, of_weights), 2, poptorch.VariableRetrievalMode.OnePerGroup
    )

    losses = torch.stack([executor(x)[1].mean() for _ in range(4)])

    expected_weight, expected_losses = trained_on_the_host(weight, x, 4)
    torch.testing.assert_close(losses, expected_losses, rtol=0, atol=1e-6)
    whole = model.weight.detach().transpose(0, 1).reshape(40, 56)
    torch.testing.assert_close(whole, expected_weight, rtol=0, atol=1e-6)


def trained_without_groups(poptorch, optimizer_class, retrieval="OnePerGroup", num_steps=1, **settings):
    model = Product(poptorch, torch.arange(1.0, 7.0).reshape(2, 3, 1))
    optimizer = optimizer_class(model.parameters(), lr=0.1, **settings)
    options = poptorch.Options().replicationFactor(2).outputMode(poptorch.OutputMode.All)
    executor = poptorch.trainingModel(model, options, optimizer)
    executor.weight.replicaGrouping(
        poptorch.CommGroupType.NoGrouping, 0, getattr(poptorch.VariableRetrievalMode, retrieval)
    )
    results = [executor(torch.ones(2, 3)) for _ in range(num_steps)]
    return model, optimizer, executor, results


@pytest.mark.parametrize("retrieval", ["OnePerGroup", "AllReplicas"])
def test_each_replica_sees_its_own_value(poptorch, retrieval):
    model, _optimizer, _executor, [(product, _loss)] = trained_without_groups(poptorch, poptorch.optim.SGD, retrieval)

    assert product.tolist() == [[6.0], [15.0]]
    assert model.weight.shape == (2, 3, 1)
    assert model.weight[0, 0, 0].item() == pytest.approx(1.0 - 0.1 * 2 * 6 / 2)
    assert model.weight[1, 0, 0].item() == pytest.approx(4.0 - 0.1 * 2 * 15 / 2)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "LAMB"])
def test_every_entry_of_the_state_has_a_row_for_each_group(poptorch, name):
    _model, optimizer, _executor, _ = trained_without_groups(poptorch, getattr(poptorch.optim, name))

    state = optimizer.state_dict()["ipu_state"]

    assert state
    assert {value.shape[0] for value in state.values()} == {2}


def test_the_state_of_groups_goes_back_to_the_device(poptorch):
    model, optimizer, executor, _ = trained_without_groups(poptorch, poptorch.optim.Adam)
    state = optimizer.state_dict()
    executor.detachFromDevice()
    executor.attachToDevice()

    again = optimizer.state_dict()["ipu_state"]

    assert state["ipu_state"]["Step___weight"].tolist() == [1.0, 1.0]
    torch.testing.assert_close(again, state["ipu_state"], rtol=0, atol=0)


def test_all_replicas_return_a_value_each(poptorch):
    model = Product(poptorch, torch.arange(1.0, 7.0).reshape(2, 3, 1))
    options = poptorch.Options().replicationFactor(4)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.0))
    executor.weight.replicaGrouping(poptorch.CommGroupType.Consecutive, 2, poptorch.VariableRetrievalMode.AllReplicas)
    executor(torch.ones(4, 3))

    executor.copyWeightsToHost()

    assert model.weight[:, 0, 0].tolist() == [1.0, 1.0, 4.0, 4.0]


def test_groupings_are_kept_by_name(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(2, 2))
    arguments = (poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)

    executor.weight.replicaGrouping(*arguments)

    assert executor.per_replica_params == {"weight": arguments}


def test_inference_can_give_replicas_weights_of_their_own(poptorch):
    model = nn.Linear(1, 1, bias=False)
    model.weight = nn.Parameter(torch.tensor([[[1.0]], [[2.0]]]))
    executor = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(2))
    executor.weight.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)

    assert executor(torch.ones(2, 1)).tolist() == [[1.0], [2.0]]
    assert model.weight.shape == (2, 1, 1)


def test_a_scalar_has_no_groups(poptorch):
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(1.0))
    model.forward = lambda x: x * model.scale
    executor = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(2))
    executor.scale.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)

    with pytest.raises(poptorch.Error, match="Scalars cannot be passed as per-replica weight tensor values"):
        executor(torch.ones(2))


def test_there_must_be_a_value_for_each_group(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(2, 3), poptorch.Options().replicationFactor(2))
    executor.weight.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)

    with pytest.raises(poptorch.Error, match="weight has 3 values along its first dimension and 2 groups"):
        executor(torch.ones(2, 2))


def test_groups_must_divide_the_replicas(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(2, 2), poptorch.Options().replicationFactor(4))
    executor.weight.replicaGrouping(poptorch.CommGroupType.Consecutive, 3, poptorch.VariableRetrievalMode.OnePerGroup)

    with pytest.raises(poptorch.Error, match="cannot be put into groups of 3"):
        executor(torch.ones(4, 2))


@pytest.mark.parametrize("arguments", [(1, 0, 0), ("NoGrouping", 0, 0)])
def test_groupings_are_given_as_the_enums_of_the_api(poptorch, arguments):
    executor = poptorch.inferenceModel(nn.Linear(2, 2))

    with pytest.raises(AssertionError, match=r"must be a poptorch\.CommGroupType"):
        executor.weight.replicaGrouping(*arguments)
