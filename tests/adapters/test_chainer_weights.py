"""Weights of Chainer compute in torch what Chainer's definitions say, no entry is forgotten, no file is unpickled."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from porting import PortingError, load_chainer_npz
from porting.models import lenet5, mlp
from tests.adapters import chainer_oracle as chainer


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.npz"


def float32(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def assert_equal(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4, atol=1e-5)


def mushroom_arrays(random, prefix=""):
    sizes = (22, 44, 44, 1)
    arrays = {}
    for number, (before, after) in enumerate(zip(sizes, sizes[1:]), start=1):
        arrays[f"{prefix}l{number}/W"] = float32(random, after, before)
        arrays[f"{prefix}l{number}/b"] = float32(random, after)
    return arrays


MUSHROOM_NAMES = {"l1": "0", "l2": "2", "l3": "4"}


def mushroom_forward(x, arrays, prefix=""):
    for number in (1, 2, 3):
        x = chainer.linear(x, arrays[f"{prefix}l{number}/W"], arrays[f"{prefix}l{number}/b"])
        x = np.maximum(x, 0) if number < 3 else x
    return x


# -- links -------------------------------------------------------------------------------------------------------------


def test_a_perceptron_computes_what_it_did(random, file):
    arrays, x = mushroom_arrays(random), float32(random, 5, 22)
    chainer.save_npz(file, arrays)
    model = mlp.build("mushrooms")

    sources = load_chainer_npz(file, model, names=MUSHROOM_NAMES)

    assert_equal(model(torch.from_numpy(x)), mushroom_forward(x, arrays))
    assert sources["2.weight"] == "l2/W"


def test_the_model_is_found_in_the_snapshot_of_a_trainer(random, file):
    prefix = "updater/model:main/predictor/"
    arrays, x = mushroom_arrays(random, prefix), float32(random, 5, 22)
    others = {"updater/iteration": 7, "updater/optimizer:main/t": 7, "updater/optimizer:main/predictor/l1/W/m": None}
    chainer.save_npz(file, {**arrays, **others})
    model = mlp.build("mushrooms")

    load_chainer_npz(file, model, names=MUSHROOM_NAMES)

    assert_equal(model(torch.from_numpy(x)), mushroom_forward(x, arrays, prefix))


def test_lenet5_computes_what_it_did(random, file):
    shapes = {
        "conv1": (6, 1, 5, 5),
        "conv2": (16, 6, 5, 5),
        "conv3": (120, 16, 4, 4),
        "fc4": (84, 120),
        "fc5": (10, 84),
    }
    arrays = {f"{link}/W": 0.2 * float32(random, *shape) for link, shape in shapes.items()}
    arrays.update({f"{link}/b": float32(random, shape[0]) for link, shape in shapes.items()})
    chainer.save_npz(file, arrays)
    modules = ("convolution_1", "convolution_2", "convolution_3", "hidden", "classifier")
    model, x = lenet5.build(), float32(random, 2, 1, 28, 28)

    load_chainer_npz(file, model, names=dict(zip(shapes, modules)))

    h = x
    for link in ("conv1", "conv2", "conv3"):
        h = chainer.sigmoid(chainer.convolution_2d(h, arrays[f"{link}/W"], arrays[f"{link}/b"]))
        h = chainer.max_pooling_2d(h, 2, 2) if link != "conv3" else h
    h = chainer.sigmoid(chainer.linear(h.reshape(len(x), -1), arrays["fc4/W"], arrays["fc4/b"]))
    assert_equal(model.train()(torch.from_numpy(x)), chainer.linear(h, arrays["fc5/W"], arrays["fc5/b"]))


@pytest.mark.parametrize("size", range(5, 11))
def test_pooling_that_covers_all_is_ceil_mode(random, size):
    x = float32(random, 2, 3, size, size)

    pooled = nn.MaxPool2d(3, stride=2, ceil_mode=True)(torch.from_numpy(x))

    assert_equal(pooled, chainer.max_pooling_2d(x, 3, 2))


def test_batch_normalization_brings_its_statistics(random, file):
    arrays = {name: float32(random, 4) for name in ("bn/gamma", "bn/beta", "bn/avg_mean")}
    arrays.update({"bn/avg_var": float32(random, 4) ** 2, "bn/N": np.array(0)})
    chainer.save_npz(file, arrays)
    model = nn.ModuleDict({"bn": nn.BatchNorm2d(4, eps=2e-5)}).eval()
    x = float32(random, 2, 4, 3, 3)

    load_chainer_npz(file, model)

    values = [arrays[f"bn/{name}"] for name in ("gamma", "beta", "avg_mean", "avg_var")]
    assert_equal(model["bn"](torch.from_numpy(x)), chainer.batch_normalization(x, *values))


def test_a_normalization_without_a_scale_needs_none(random, file):
    arrays = {"bn/avg_mean": float32(random, 4), "bn/avg_var": float32(random, 4) ** 2}
    chainer.save_npz(file, arrays)
    model = nn.ModuleDict({"bn": nn.BatchNorm1d(4, eps=2e-5, affine=False)}).eval()

    load_chainer_npz(file, model)

    assert_equal(model["bn"].running_var, arrays["bn/avg_var"])


def test_words_are_looked_up_as_before(random, file):
    weight = float32(random, 7, 3)
    chainer.save_npz(file, {"embed/W": weight})
    model = nn.ModuleDict({"embed": nn.Embedding(7, 3)})

    load_chainer_npz(file, model)

    assert_equal(model["embed"](torch.tensor([6, 0])), weight[[6, 0]])


@pytest.mark.parametrize("cell", [False, True])
def test_the_gates_of_an_lstm_find_their_blocks(random, file, cell):
    arrays = {
        "rnn/upward/W": float32(random, 20, 3),
        "rnn/upward/b": float32(random, 20),
        "rnn/lateral/W": float32(random, 20, 5),
    }
    chainer.save_npz(file, arrays)
    model = nn.ModuleDict({"rnn": nn.LSTMCell(3, 5) if cell else nn.LSTM(3, 5)})
    x = float32(random, 4, 2, 3)

    load_chainer_npz(file, model)

    expected = chainer.lstm(x, *arrays.values())
    if cell:
        state = None
        for inputs in torch.from_numpy(x):
            state = model["rnn"](inputs, state)
        assert_equal(state[0], expected[-1])
    else:
        assert_equal(model["rnn"](torch.from_numpy(x))[0], expected)


def test_the_layers_of_an_n_step_lstm_are_put_together(random, file):
    layers = []
    arrays = {}
    for layer, num_inputs in enumerate((3, 5)):
        weights = [float32(random, 5, num_inputs if number < 4 else 5) for number in range(8)]
        biases = [float32(random, 5) for _number in range(8)]
        layers.append((weights, biases))
        for number in range(8):
            arrays[f"rnn/{layer}/w{number}"], arrays[f"rnn/{layer}/b{number}"] = weights[number], biases[number]
    chainer.save_npz(file, arrays)
    model, x = nn.ModuleDict({"rnn": nn.LSTM(3, 5, num_layers=2)}), float32(random, 4, 2, 3)

    load_chainer_npz(file, model)

    assert_equal(model["rnn"](torch.from_numpy(x))[0], chainer.n_step_lstm(x, layers))


def test_a_transposed_convolution_keeps_its_order(random, file):
    weight = float32(random, 3, 2, 4, 4)  # L.Deconvolution2D: input channels first, as in torch
    chainer.save_npz(file, {"up/W": weight, "up/b": np.zeros(2, np.float32)})
    model = nn.ModuleDict({"up": nn.ConvTranspose2d(3, 2, 4, stride=2, padding=1)})

    load_chainer_npz(file, model)

    assert_equal(model["up"].weight, weight)


# -- what does not fit -------------------------------------------------------------------------------------------------


def loading_fails(file, model, **settings):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(PortingError) as caught:
        load_chainer_npz(file, model, **settings)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    return caught.value.finding


@pytest.mark.parametrize(
    ("changes", "names", "says"),
    [
        ({"l4/W": np.ones((1, 1))}, {}, "link `l4` has no module `l4`"),
        ({"l3/scale": np.ones(1)}, {}, "`l3/scale` is in the file, and nothing in the model takes it"),
        ({"l1/W": np.ones((22, 44))}, {}, "`l1/W` has the shape [22, 44], `0.weight` [44, 22]"),
        ({"l1/W": None}, {}, "`l1/W` has no value: the link was saved before its first batch"),
        ({}, {"l9": "0"}, "`names` has `l9`, but there is no such link"),
        ({}, {"l3": None}, "`4.weight` of the model gets nothing from the file"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(random, file, changes, names, says):
    chainer.save_npz(file, {**mushroom_arrays(random), **changes})

    finding = loading_fails(file, mlp.build("mushrooms"), names={**MUSHROOM_NAMES, **names})

    assert finding.code == "K002"
    assert any(note.startswith(says) for note in finding.notes)


def test_an_entry_that_is_missing_is_named(random, file):
    chainer.save_npz(file, {"rnn/upward/W": float32(random, 20, 3), "rnn/upward/b": float32(random, 20)})

    finding = loading_fails(file, nn.ModuleDict({"rnn": nn.LSTM(3, 5)}))

    assert "`rnn.weight_hh_l0` needs `rnn/lateral/W`, which the file does not have" in finding.notes


def test_a_prefix_without_entries_is_named(random, file):
    chainer.save_npz(file, mushroom_arrays(random))

    finding = loading_fails(file, mlp.build("mushrooms"), prefix="main/")

    assert "there are no entries below `main/`" in finding.notes


def test_a_link_can_be_left_out_on_purpose(random, file):
    chainer.save_npz(file, {**mushroom_arrays(random), "head/W": float32(random, 3, 3)})

    sources = load_chainer_npz(file, mlp.build("mushrooms"), names={**MUSHROOM_NAMES, "head": None})

    assert "head/W" not in sources.values()


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(PortingError, match="F002"):
        load_chainer_npz(tmp_path / "none.npz", nn.Linear(1, 1))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all"])
def test_what_is_no_archive_is_damaged(file, content):
    file.write_bytes(content)

    with pytest.raises(PortingError, match="F001"):
        load_chainer_npz(file, nn.Linear(1, 1))


def test_objects_are_never_unpickled(file):
    chainer.save_npz(file, {"l1/W": np.array([{"a": 1}, None], dtype=object)})

    with pytest.raises(PortingError, match="F001.*"):
        load_chainer_npz(file, nn.ModuleDict({"l1": nn.Linear(1, 1)}))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_gives_an_error_or_the_right_weights(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "fuzzed.npz"
    arrays = mushroom_arrays(np.random.default_rng(0))
    chainer.save_npz(file, arrays)
    content = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(content))
    model = mlp.build("mushrooms")

    try:
        load_chainer_npz(file, model, names=MUSHROOM_NAMES)
        code = ""
    except PortingError as error:
        code = error.finding.code

    is_loaded = np.array_equal(model[0].weight.detach().numpy(), arrays["l1/W"])
    assert code in ("F001", "K002") if not is_loaded else code == ""
