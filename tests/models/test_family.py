"""Every family of models keeps the same contract: its example batch trains its model, eagerly and ported alike."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from typing import Any, List, Mapping, Tuple

import pytest
import torch
from torch import nn

from porting import to_ipu
from porting.models import FAMILIES, Family, build, load
from porting.models.cnn import CNNConfig
from porting.models.family import configure, example_batch, loss
from porting.models.mlp import MLPConfig

# a variant of each family, and the changes that make it small enough to train here in a moment
SMALL: Mapping[str, Tuple[str, Mapping[str, Any]]] = {
    "bert": ("toy", {}),
    "cnn": ("digits", {}),
    "dcgan": ("small", {"hidden": 5, "bottom": 1, "channels": 16}),
    "fashion_cnn": ("small", {}),
    "gpt": ("small", {"num_layers": 1, "width": 8, "num_heads": 2, "length": 6, "vocabulary": 11}),
    "lenet5": ("mnist", {}),
    "mlp": ("mushrooms", {}),
    "mnist_cnn": ("mnist", {"image_size": 12, "hidden": 16}),
    "recurrent": ("lstm", {"num_features": 3, "hidden": 5, "length": 4}),
    "resnet": ("resnet50_chainer", {"width": 2, "num_classes": 7, "image_size": 40}),
    "rnn_language_model": ("small", {"width": 8, "length": 4}),
    "seq2seq": ("small", {"width": 8}),
    "skip_gram": ("small", {}),
    "uresnet2d": ("a21", {"filters": 2, "depth": 2, "bottleneck": 4, "spatial_size": (16, 24)}),
    "uresnet3d": ("uresnet3d", {"filters": 2, "depth": 2, "bottleneck": 4, "spatial_size": (16, 24)}),
    "vgg": ("vgg16_small", {"channels": (2, 2, 2, 2, 4), "hidden": 8}),
}

# the only whole numbers that may be 0: tokens that are numbered from 0, and blocks that can be left out
MAY_BE_ZERO = {
    "seq2seq": {"padding", "end"},
    "uresnet2d": {"blocks_per_level", "blocks_deepest", "blocks_final"},
    "uresnet3d": {"blocks_per_level", "blocks_deepest", "blocks_final"},
}

VARIANTS = {"plain": MLPConfig((4, 2)), "deep": MLPConfig((4, 4, 4, 2))}

every_family = pytest.mark.parametrize("name", FAMILIES)


def small(name: str) -> Tuple[Family, Any, nn.Module]:
    """Load a family; make a small configuration and its model."""
    family = load(name)
    variant, changes = SMALL[name]
    torch.manual_seed(0)
    return family, dataclasses.replace(family.VARIANTS[variant], **changes), family.build(variant, **changes)


def losses_in_eager(family: Family, model: nn.Module, batch: Tuple[torch.Tensor, ...]) -> List[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _step in range(2):
        optimizer.zero_grad()
        loss = family.loss(model(*batch[:-1]), batch[-1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@every_family
def test_the_table_of_small_models_has_every_family(name):
    assert name in SMALL


@every_family
def test_a_family_says_what_it_is_in_one_line(name):
    assert 20 < len(FAMILIES[name]) <= 120


@every_family
def test_a_family_has_the_names_of_the_contract_and_its_default_is_a_variant(name):
    family = load(name)

    assert family.DEFAULT in family.VARIANTS
    assert {"DEFAULT", "VARIANTS", "build", "example_batch", "loss"} <= set(family.__all__)


@every_family
def test_configurations_are_frozen_and_so_is_the_table_of_them(name):
    config = next(iter(load(name).VARIANTS.values()))

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[0].name, None)
    with pytest.raises(TypeError):
        load(name).VARIANTS["mine"] = config


@every_family
def test_an_unknown_variant_is_refused_with_those_that_there_are(name):
    family = load(name)

    with pytest.raises(ValueError, match="there is no variant 'enormous'; there are ") as caught:
        family.build("enormous")
    assert [variant for variant in family.VARIANTS if repr(variant) not in str(caught.value)] == []


@every_family
def test_a_change_of_what_is_no_field_is_refused(name):
    with pytest.raises(TypeError, match="has no field 'colour'; it has "):
        load(name).build(colour="red")


@every_family
def test_the_example_batch_fits_the_model_and_its_loss_reaches_every_parameter(name):
    family, config, model = small(name)
    *inputs, labels = family.example_batch(config, batch_size=4)

    loss = family.loss(model(*inputs), labels)
    loss.backward()

    assert loss.shape == ()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@every_family
def test_a_seed_always_gives_the_same_batch_and_leaves_the_global_stream_alone(name):
    family, config, _model = small(name)
    state = torch.get_rng_state()

    batches = [family.example_batch(config, batch_size=2, seed=seed) for seed in (5, 5, 6)]

    assert all(torch.equal(one, other) for one, other in zip(batches[0], batches[1]))
    assert not all(torch.equal(one, other) for one, other in zip(batches[0], batches[2]))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.sampled(5)
@every_family
def test_the_ported_model_has_the_losses_of_the_eager_one(name):
    family, config, model = small(name)
    batch = family.example_batch(config, batch_size=4)
    expected = losses_in_eager(family, model, batch)

    _family, _config, model = small(name)
    ported = to_ipu(model, family.loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    losses = [float(ported(*batch)[1]) for _step in range(2)]

    assert losses == pytest.approx(expected, rel=1e-5)


def test_a_model_is_made_by_the_name_of_its_family_and_variant():
    assert build("mlp:mushrooms")[0].in_features == 22


def test_without_a_variant_the_default_is_made():
    assert build("mlp")[0].in_features == 784


def test_an_unknown_family_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="there is no family 'transformer'; there are .*'gpt'"):
        build("transformer:large")


def test_a_submodule_that_is_no_family_is_refused():
    with pytest.raises(ValueError, match="there is no family 'image_classes'"):
        load("image_classes")


def test_families_are_listed_without_loading_torch():
    program = "from porting.models import FAMILIES; print(*FAMILIES); import sys; assert 'torch' not in sys.modules"

    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert {"mlp", "resnet"} <= set(listed)


@every_family
def test_no_size_of_a_family_can_be_zero_or_negative(name):
    family = load(name)
    config = family.VARIANTS[family.DEFAULT]
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    sizes = [field for field, value in values.items() if is_number(value)]
    rows = [field for field, value in values.items() if isinstance(value, tuple)]

    for field in sizes:
        with pytest.raises(ValueError, match=r"-1\b"):
            family.build(**{field: -1})
        if field not in MAY_BE_ZERO.get(name, ()):
            with pytest.raises(ValueError, match=r"\b0\b"):
                family.build(**{field: 0})
    for field in rows:
        with pytest.raises(ValueError, match=r"\b0\b"):
            family.build(**{field: (*values[field][:-1], 0)})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("dcgan", {"channels": 4}, "`channels` is 4; it is a multiple of 8"),
        ("resnet", {"width": 0}, "`width` is 0; it is at least 1"),
        ("resnet", {"blocks": (1, 1)}, r"`blocks` is \(1, 1\); it counts the blocks of four stages"),
        ("mlp", {"sizes": (784,)}, r"`sizes` is \(784,\); a layer has at least two"),
        ("bert", {"num_heads": 0}, "`num_heads` is 0; it is at least 1"),
        ("gpt", {"num_heads": 0}, "`num_heads` is 0; it is at least 1"),
        ("seq2seq", {"padding": -1}, "`padding` is -1; it is at least 0"),
    ],
)
def test_what_cannot_be_built_is_said_by_the_name_of_the_field(name, changes, message):
    with pytest.raises(ValueError, match=message):
        load(name).build(**changes)


def test_without_changes_it_is_the_variant_itself():
    assert configure(VARIANTS, "deep", {}) == VARIANTS["deep"]


def test_changes_replace_fields_and_leave_the_table_alone():
    assert configure(VARIANTS, "plain", {"sizes": (3, 1)}) == MLPConfig((3, 1))
    assert VARIANTS["plain"] == MLPConfig((4, 2))


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="there is no variant 'flat'; there are 'plain', 'deep'"):
        configure(VARIANTS, "flat", {})


def test_an_unknown_field_is_refused_with_the_known_ones():
    with pytest.raises(TypeError, match="MLPConfig has no field 'size'; it has 'sizes'"):
        configure(VARIANTS, "plain", {"size": 3})


def test_images_are_square_and_labels_are_classes():
    images, labels = example_batch(CNNConfig(image_size=8, num_classes=3), batch_size=50)

    assert images.shape == (50, 1, 8, 8)
    assert set(labels.tolist()) == {0, 1, 2}


def test_who_knows_nothing_loses_the_logarithm_of_the_number_of_classes():
    assert loss(torch.zeros(4, 10), torch.arange(4)).item() == pytest.approx(math.log(10))
