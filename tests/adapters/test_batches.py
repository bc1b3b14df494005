"""A torch DataLoader or a dataset becomes the device's loader, with batches for a whole call."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, TensorDataset

from porting.adapters.batches import CallBatches, to_ipu_dataloader
from porting.diagnostics import OptionError, PortingWarning
from porting.simulator._dataloader import DataLoader
from tests.adapters.device_loaders import BACKEND, convert, device, numbers, order, torch_loader


def test_the_result_is_the_backends_loader_with_batches_for_a_whole_call():
    loader = convert(numbers(48), device(iterations=2, accumulation=3, replicas=2), batch_size=2)

    assert type(loader) is DataLoader
    assert [len(batch[0]) for batch in loader] == [24, 24]


def test_further_arguments_go_to_the_backends_loader():
    assert convert(numbers(4), batch_size=2, worker_init_fn=print).worker_init_fn is print


class Pairs:
    batch_size = 2

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        return iter([[first, first + 1] for first in range(0, self.num_samples, 2)])

    def __len__(self):
        return self.num_samples // 2


@pytest.mark.parametrize("num_samples", [12, 14, 16])
def test_the_length_of_a_loader_is_the_number_of_its_calls(num_samples):
    options = device(iterations=3)
    dataset = TensorDataset(torch.arange(num_samples))

    loader = to_ipu_dataloader(
        torch.utils.data.DataLoader(dataset, batch_sampler=Pairs(num_samples)),
        options,
        backend=BACKEND,
        drop_last=True,
    )

    assert len(loader) == len(list(loader)) == num_samples // 6


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_the_same(copied):
    batches = copied(CallBatches(Pairs(8), num_joined=2))

    assert (len(batches), list(batches)[0], batches.batch_size) == (2, [0, 1], 2)


def test_what_it_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError):
        CallBatches([[0]], num_joined=1).sampler  # noqa: B018


def test_the_batch_size_of_the_source_is_the_micro_batch():
    assert convert(torch_loader(numbers(16), 4), device(iterations=2)).combinedBatchSize == 8


def test_a_batch_size_given_wins_over_the_sources():
    assert convert(torch_loader(numbers(16), 4), device(iterations=2), batch_size=1).combinedBatchSize == 2


@pytest.mark.parametrize("batch_size", [1, 3, 4, 12])
def test_shuffled_samples_come_in_the_order_of_the_source_whatever_the_batch_size(batch_size):
    source = torch_loader(numbers(24), batch_size, shuffle=True)
    loader = convert(source, device(iterations=2))

    torch.manual_seed(7)
    expected = [order(source), order(source)]
    torch.manual_seed(7)

    assert [order(loader), order(loader)] == expected
    assert expected[0] != expected[1]


def test_a_dataset_is_shuffled_as_a_torch_loader_with_combined_batches_would():
    loader = convert(numbers(20), device(iterations=2), batch_size=4, shuffle=True, drop_last=True)
    same = torch_loader(numbers(20), 8, shuffle=True, drop_last=True)

    torch.manual_seed(7)
    ours = [batch[0].tolist() for batch in loader]
    torch.manual_seed(7)

    assert ours == [batch[0].tolist() for batch in same]


def test_the_sources_generator_decides_the_order():
    source = torch_loader(numbers(8), shuffle=True, generator=torch.Generator().manual_seed(3))
    expected = order(torch_loader(numbers(8), shuffle=True, generator=torch.Generator().manual_seed(3)))

    assert order(convert(source)) == expected


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("persistent", [False, True])
def test_with_workers_the_order_of_the_source_is_kept_over_epochs(persistent):
    def source():
        generator = torch.Generator().manual_seed(3)
        return torch_loader(numbers(8), shuffle=True, num_workers=1, persistent_workers=persistent, generator=generator)

    expected, loader = source(), convert(source(), device(iterations=2))

    assert [order(loader), order(loader)] == [order(expected), order(expected)]


def test_a_seed_decides_the_order_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()

    first, second = (order(convert(numbers(8), batch_size=4, shuffle=True, seed=5)) for _ in range(2))

    assert first == second
    assert sorted(first) == list(range(8))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "make_sampler",
    [
        lambda _: [3, 1, 2, 0],
        lambda _: SubsetRandomSampler([1, 4, 5, 7], generator=torch.Generator().manual_seed(1)),
        lambda data: RandomSampler(data, num_samples=4, generator=torch.Generator().manual_seed(1)),
        lambda data: RandomSampler(data, True, generator=torch.Generator().manual_seed(1)),
        lambda data: RandomSampler(data, generator=torch.Generator().manual_seed(1)),
    ],
    ids=["list", "subset", "fewer", "with replacement", "own generator"],
)
def test_a_sampler_of_the_source_is_honoured(make_sampler):
    data = numbers(8)

    loader = convert(torch_loader(data, 2, sampler=make_sampler(data)), device(iterations=2))

    assert order(loader) == order(torch_loader(data, 2, sampler=make_sampler(data)))


def test_a_sampler_decides_how_many_samples_an_epoch_has():
    loader = convert(torch_loader(numbers(100), 2, sampler=[5, 6, 7, 8]))

    assert (loader.report.samples, loader.report.calls_per_epoch) == (4, 2)


def test_a_batch_sampler_of_the_source_is_honoured():
    batches = [[3, 2], [1, 0], [7, 6], [5, 4]]

    loader = convert(torch.utils.data.DataLoader(numbers(8), batch_sampler=batches), device(iterations=2), batch_size=2)

    assert [batch[0].tolist() for batch in loader] == [[3, 2, 1, 0], [7, 6, 5, 4]]
    assert loader.report.samples == 8


def test_a_batch_sampler_of_torchs_becomes_sampler_and_batch_size():
    source = torch.utils.data.DataLoader(numbers(8), batch_sampler=BatchSampler([7, 5, 3, 1], 2, False))

    assert [batch[0].tolist() for batch in convert(source, device(iterations=2))] == [[7, 5, 3, 1]]


def test_the_short_batch_of_a_batch_sampler_given_is_counted_right():
    with pytest.warns(PortingWarning, match="2 of 10 samples"):
        loader = convert(numbers(10), batch_sampler=BatchSampler(range(10), 4, False))

    assert order(loader) == list(range(8))


def test_the_collate_function_is_kept():
    def stacked_twice(samples):
        return torch.stack([sample for (sample,) in samples] * 2)

    loader = convert(torch_loader(numbers(4), 2, collate_fn=stacked_twice))

    assert [batch.tolist() for batch in loader] == [[0, 1, 0, 1], [2, 3, 2, 3]]


def test_the_settings_of_workers_are_kept():
    context = torch.multiprocessing.get_context("fork")
    source = torch_loader(
        numbers(4),
        num_workers=1,
        prefetch_factor=5,
        timeout=9,
        worker_init_fn=print,
        multiprocessing_context=context,
    )

    loader = convert(source)

    assert (loader.num_workers, loader.prefetch_factor, loader.timeout) == (1, 5, 9)
    assert (loader.worker_init_fn, loader.multiprocessing_context) == (print, context)
    assert not loader.persistent_workers


def test_without_workers_their_settings_are_left_out():
    source = torch_loader(numbers(4), num_workers=1, prefetch_factor=5, timeout=9, persistent_workers=True)

    loader = convert(source, num_workers=0)

    assert (loader.num_workers, loader.prefetch_factor, loader.timeout) == (0, None, 0)


def test_pinned_memory_is_left_out_and_the_report_says_why():
    loader = convert(torch_loader(numbers(4), pin_memory=True))

    assert not loader.pin_memory
    assert loader.report.ignored == ("`pin_memory`: pinned memory serves copies to CUDA devices only",)


def test_a_sampler_given_replaces_the_sources_order():
    assert order(convert(torch_loader(numbers(4), 2, shuffle=True), sampler=[3, 0])) == [3, 0]


def test_any_sequence_is_a_dataset():
    assert [batch.tolist() for batch in convert([5, 6, 7, 8], batch_size=2)] == [[5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("make_source", "arguments", "message"),
    [
        (lambda: (i for i in range(4)), {"batch_size": 2}, "a `generator` is neither a DataLoader, nor a dataset"),
        (lambda: numbers(4), {}, "`batch_size` is None, not a positive number"),
        (lambda: numbers(4), {"batch_size": 0}, "`batch_size` is 0, not a positive number"),
        (lambda: DataLoader(device(), numbers(4)), {}, "the loader is the backend's already"),
        (lambda: torch_loader(numbers(4), None), {"batch_size": 2}, r"does not batch \(`batch_size=None`\)"),
        (lambda: torch_loader(numbers(4), sampler=[0, 1]), {"shuffle": True}, "the loader has a sampler of its own"),
        (
            lambda: torch_loader(numbers(4), generator=torch.Generator()),
            {"seed": 1},
            "both `seed` and a `generator` decide the order",
        ),
        (
            lambda: torch.utils.data.DataLoader(numbers(4), batch_sampler=[[0, 1]]),
            {},
            "`batch_size` is None, not a positive number",
        ),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(make_source, arguments, message):
    with pytest.raises(OptionError, match=message) as caught:
        convert(make_source(), **arguments)

    assert caught.value.code == "P002"


def test_a_batch_size_against_the_batch_samplers_is_refused():
    class ByFives(BatchSampler):
        pass

    source = torch.utils.data.DataLoader(numbers(10), batch_sampler=ByFives(range(10), 5, False))

    with pytest.raises(OptionError, match="`batch_size` is 2, but the batch sampler makes batches of 5"):
        convert(source, batch_size=2)


def test_a_loader_that_iterates_in_its_own_way_is_refused():
    class Prefetching(torch.utils.data.DataLoader):
        def __iter__(self):
            return super().__iter__()

    with pytest.raises(OptionError, match="`Prefetching` has an `__iter__` of its own"):
        convert(Prefetching(numbers(4)))
