"""Loaders: the last batch, workers, padding."""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
        import torch
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms
        from data import dataset
"""


def test_what_becomes_of_the_last_batch_is_decided_by_any_of_these(find):
    program = (
        HEAD
        + """
        DataLoader(dataset, batch_size=8)
        DataLoader(dataset, batch_size=8, drop_last=True)
        DataLoader(dataset, batch_size=8, drop_last=False)
        DataLoader(dataset, batch_sampler=torch.utils.data.BatchSampler(range(8), 4, True))
        DataLoader(dataset, batch_size=1)
        DataLoader(dataset)
    """
    )

    assert find(program) == ["B010:6", "B014:7", "B014:8", "B014:9", "B014:10", "B014:11"]


def test_settings_of_a_loader_may_come_from_a_dictionary(find):
    program = (
        HEAD
        + """
        settings = {"batch_size": 8, "drop_last": True, "num_workers": 4}
        augment = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
        DataLoader(datasets.MNIST("d", transform=augment), **settings)
    """
    )

    assert find(program) == ["B014:8"]


def test_augmentation_that_is_not_random_needs_no_workers(find):
    program = (
        HEAD
        + """
        steps = transforms.Compose([transforms.CenterCrop(24), transforms.ToTensor()])
        DataLoader(datasets.MNIST("d", transform=steps), batch_size=8, drop_last=True)
    """
    )

    assert find(program) == ["B014:7"]


def test_padding_to_one_length_is_no_finding(find):
    program = """
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
        tokenizer(["a", "b c"], padding="max_length", max_length=64, truncation=True)
        tokenizer(["a", "b c"], padding=True)
    """

    assert find(program) == ["B018:4"]


def test_a_batch_that_a_ports_loop_makes_itself_is_no_loader(find):
    program = """
        import poptorch
        import torch
        model = torch.nn.Linear(4, 3)
        port = poptorch.trainingModel(model)
        for step in range(100):
            output = port(torch.rand(8, 4))
    """

    assert find(program) == []


def test_a_loader_of_whole_calls_feeds_a_port_as_well(find):
    program = """
        import poptorch
        from torch.utils.data import DataLoader
        from model import ModelWithLoss, dataset
        options = poptorch.Options().deviceIterations(10)
        port = poptorch.trainingModel(ModelWithLoss(), options)
        for x, y in DataLoader(dataset, batch_size=8 * 10, drop_last=True):
            port(x, y)
        for x, y in DataLoader(dataset, batch_size=8 * 10):
            port(x, y)
    """

    assert find(program) == ["B014:8"]


def test_padding_once_more_makes_one_length(find):
    program = """
        from torch.nn.functional import pad
        from torch.nn.utils.rnn import pad_sequence
        def collate(samples):
            padded = pad_sequence(samples, batch_first=True)
            return pad(padded, (0, 64 - padded.shape[1]))
        def collate_short(samples):
            return pad_sequence(samples, batch_first=True)
        collate([]), collate_short([])
    """

    assert find(program) == ["B018:7"]


def test_poptorch_geometric_has_loaders_of_the_devices(find):
    program = """
        import poptorch
        from model import ModelWithLoss, dataset
        from poptorch_geometric.dataloader import FixedSizeDataLoader
        port = poptorch.trainingModel(ModelWithLoss(), poptorch.Options())
        for data in FixedSizeDataLoader(dataset, batch_size=4):
            port(data.x, data.edge_index)
    """

    assert find(program) == []


LOOP = """
import torch
from data import X, Y
model = torch.nn.Linear(4, 3)
size = 16
"""


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(0, len(X), 32):\n    x = X[i : i + 32]",
        "for i in range(0, X.shape[0], size):\n    x = X[order[i : i + size]]",
        "for x in X.split(32):\n    pass",
        "for x in torch.chunk(X, 10):\n    pass",
        "i = 0\nwhile i < len(X):\n    x = X[i : i + 32]\n    i += 32",
        "def cut(n):\n    for i in range(0, len(X), n):\n        yield X[i : i + n]\nfor x in cut(8):\n    pass",
    ],
)
def test_the_last_of_equal_slices_is_short(find, loop):
    found = find(LOOP + loop + "\n    model(x).mean().backward()\n")

    assert [one for one in found if one.startswith("B010")]


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(0, len(X) - len(X) % 32, 32):\n    x = X[i : i + 32]",
        "for i in range(0, len(X) // size * size, size):\n    x = X[i : i + size]",
        "for i in range(0, 2048, 128):\n    x = X[i : i + 128]",
        "for i in range(len(X)):\n    x = X[i : i + 1]",
        "for x in X.split(1):\n    pass",
    ],
)
def test_slices_without_a_rest_are_of_one_length(find, loop):
    found = find(LOOP + loop + "\n    model(x).mean().backward()\n")

    assert not [one for one in found if one.startswith("B010")]


@pytest.mark.parametrize(
    "port",
    [
        "from porting import PortOptions, to_ipu\nport = to_ipu(model, options=PortOptions(max_executables=2))",
        "from porting.integrations import DeviceCalls\nDeviceCalls(model).install()\nport = model",
    ],
)
def test_a_port_with_executables_for_several_shapes_takes_a_short_slice(find, port):
    found = find(f"{LOOP}{port}\nfor i in range(0, len(X), 32):\n    port(X[i : i + 32]).mean().backward()\n")

    assert not [one for one in found if one.startswith("B010")]


@pytest.mark.parametrize(
    ("options", "codes"),
    [("max_executables=2", []), ("max_executables=2, accumulation=4", ["B014:8"]), ("micro_batch=32", ["B014:8"])],
)
def test_a_port_for_several_shapes_takes_the_batches_of_torchs_loader(find, options, codes):
    found = find(
        f"{LOOP}from porting import PortOptions, to_ipu\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"port = to_ipu(model, torch.nn.MSELoss(), optimizer=optimizer, options=PortOptions({options}))\n"
        "for x, y in torch.utils.data.DataLoader(data, batch_size=32, drop_last=True):\n    port(x, y)\n"
    )

    assert [one for one in found if one.startswith("B014")] == codes


@pytest.mark.parametrize(
    ("collate", "given"),
    [
        ("def pad(b):\n    n = max(len(s) for s in b)\n    return n", "pad"),
        ("class Pad:\n    def __call__(self, b):\n        return max([s.shape[0] for s in b])", "Pad()"),
        ("def pad(b):\n    lengths = torch.tensor([len(s) for s in b])\n    return lengths.max()", "lambda b: pad(b)"),
    ],
)
def test_a_batch_that_is_padded_by_hand_to_its_longest_sample(find, collate, given):
    loader = f"torch.utils.data.DataLoader(X, 8, drop_last=True, collate_fn={given})\n"

    assert [one for one in find(f"{LOOP}{collate}\n{loader}") if one.startswith("B018")]
    assert not [one for one in find(LOOP + collate + "\n") if one.startswith("B018")]


def test_the_rest_of_a_text_is_shorter_than_its_other_parts(find):
    rest = "for i in range(0, len(X) - 1, 35):\n    n = min(35, len(X) - 1 - i)\n    x = X[i : i + n]\n"

    found = find(LOOP + rest + "    model(x).mean().backward()\n")

    assert [one for one in found if one.startswith(("B010", "B018"))] == ["B018:6"]


@pytest.mark.parametrize(("settings", "codes"), [("8", ["B010"]), ("8, drop_last=True", [])])
@pytest.mark.parametrize(
    "use", ["for x in DataLoader(dataset, {}):\n    infer(x)", "found = [infer(x) for x in DataLoader(dataset, {})]"]
)
def test_a_short_last_batch_reaches_an_inference(find, settings, codes, use):
    program = "import porting\nport = porting.to_ipu(torch.nn.Linear(4, 3))\ninfer = port.inference()\n"

    found = find(textwrap.dedent(HEAD) + program + use.format(settings) + "\n")

    assert [one.split(":")[0] for one in found] == codes


def test_batches_that_a_port_s_loop_fetches_are_found_whatever_their_name_says(find):
    program = """
        import poptorch
        from model import ModelWithLoss, reader
        port = poptorch.trainingModel(ModelWithLoss())
        def train():
            for step in range(3):
                minibatch_data = reader.fetch_next_batch("train")
                port(minibatch_data["image"])
        train()
    """

    assert find(program) == ["B014:6"]


def test_a_collate_function_that_pads_to_the_longest_length_of_all_makes_batches_of_one_shape(find):
    program = """
        import poptorch
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from model import ModelWithLoss, dataset
        def pad(chunks):
            for chunk in chunks:
                yield pad_sequence(chunk)
        class Collate:
            def __init__(self, max_length):
                self.max_length = max_length
            def __call__(self, batch):
                padded = torch.zeros(len(batch), self.max_length)
                return padded
        options = poptorch.Options()
        loader = poptorch.DataLoader(options, dataset.map(pad), collate_fn=Collate(8))
        port = poptorch.trainingModel(ModelWithLoss(), options)
        for batch in loader:
            port(batch)
    """

    assert find(program) == []


def test_hypotheses_that_a_model_pads_are_no_batches(find):
    program = """
        import poptorch
        import torch
        from data import dataset
        class Speech(torch.nn.Module):
            def forward(self, x):
                return poptorch.identity_loss(x.mean(), "none")
            def rescore(self, hypotheses):
                for some in hypotheses:
                    yield torch.nn.utils.rnn.pad_sequence(some)
        model = Speech()
        port = poptorch.trainingModel(model)
        for batch in poptorch.DataLoader(poptorch.Options(), dataset):
            port(batch)
            list(model.rescore(batch))
    """

    assert find(program) == []


@pytest.mark.parametrize("name", ["DataLoader", "NeighborLoader"])
def test_batches_of_graphs_are_of_many_sizes(find, name):
    program = (
        f"from torch_geometric.loader import {name}\nfrom data import graphs\nloader = {name}(graphs, batch_size=8)\n"
    )

    assert find(program) == ["B010:3", "B018:3"]


def test_a_collator_with_a_call_takes_the_longest(find):
    program = """
        import torch
        from torch.utils.data import DataLoader
        from data import dataset
        class MelCollate:
            def __call__(self, batch):
                longest = max(x.size(1) for x in batch)
                return torch.zeros(len(batch), longest)
        collate_fn = MelCollate()
        loader = DataLoader(dataset, batch_size=8, collate_fn=collate_fn, drop_last=True, num_workers=2)
    """

    assert find(program) == ["B018:6", "B014:9"]
