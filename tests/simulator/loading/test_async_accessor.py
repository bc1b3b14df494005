"""`AsynchronousDataAccessor`: the elements of the dataset in order, whatever is loaded ahead, and nothing left over."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from ..leaks import is_running, nothing_left_behind

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Numbers(Dataset):
    """`count` pairs of a small tensor full of the index, and the index."""

    def __init__(self, count, dtype=torch.float32):
        self.count, self.dtype = count, dtype

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise StopIteration
        return torch.full((2, 3), index).to(self.dtype), torch.tensor(index)


class Rows(IterableDataset):
    """Batches of consecutive numbers with the given sizes."""

    def __init__(self, sizes):
        self.sizes = sizes

    def __iter__(self):
        first = 0
        for size in self.sizes:
            yield torch.arange(first, first + size)
            first += size


class FailsAt(Numbers):
    """Raises at index `bad`."""

    def __init__(self, count, bad):
        super().__init__(count)
        self.bad = bad

    def __getitem__(self, index):
        assert index != self.bad, "Broken dataset"
        return super().__getitem__(index)


@pytest.fixture
def accessor_for(poptorch):
    """Give a function that makes accessors whose processes are forked, and terminate them at the end."""
    made = []

    def make(dataset, **settings):
        settings.setdefault("sharing_strategy", poptorch.SharingStrategy.Fork)
        made.append(poptorch.AsynchronousDataAccessor(dataset, **settings))
        return made[-1]

    yield make
    for accessor in made:
        accessor.terminate()


def indices(accessor):
    return [int(element[1]) for element in accessor]


def num_ready(accessor, expected):
    """Count the slots in use, once they are as many as expected or after some seconds."""
    flags = accessor._worker._data_buffers.indices_mem
    for _ in range(500):
        if sum(flags) == expected:
            break
        time.sleep(0.01)
    return int(sum(flags))


# order and epochs


@pytest.mark.parametrize("buffer_size", [1, 2, 3, 20])
@pytest.mark.parametrize("load_indefinitely", [True, False])
@pytest.mark.parametrize("early_preload", [True, False])
def test_every_epoch_has_all_elements_in_order(accessor_for, buffer_size, load_indefinitely, early_preload):
    accessor = accessor_for(
        Numbers(7), buffer_size=buffer_size, load_indefinitely=load_indefinitely, early_preload=early_preload
    )

    assert [indices(accessor) for _ in range(3)] == [list(range(7))] * 3


@pytest.mark.parametrize("num_read", [1, 3, 6, 7])
@pytest.mark.parametrize("load_indefinitely", [True, False])
def test_an_epoch_left_half_way_starts_again_at_the_first_element(accessor_for, num_read, load_indefinitely):
    accessor = accessor_for(Numbers(7), load_indefinitely=load_indefinitely)

    begun = iter(accessor)
    for _ in range(num_read):
        next(begun)

    assert indices(accessor) == list(range(7))
    assert indices(accessor) == list(range(7))


def test_an_iterator_that_was_not_used_is_not_reset(accessor_for):
    accessor = accessor_for(Numbers(3))

    assert iter(accessor) is accessor
    assert iter(accessor) is accessor
    assert indices(accessor) == [0, 1, 2]


def test_the_first_element_needs_no_iterator(accessor_for):
    assert int(next(accessor_for(Numbers(3)))[1]) == 0


def test_after_the_end_loading_goes_round_again(accessor_for):
    accessor = accessor_for(Numbers(2))
    assert indices(accessor) == [0, 1]

    assert int(next(accessor)[1]) == 0


def test_without_loading_indefinitely_the_end_stays_the_end_until_a_new_iterator(accessor_for):
    accessor = accessor_for(Numbers(2), load_indefinitely=False)
    assert indices(accessor) == [0, 1]

    for _ in range(2):
        with pytest.raises(StopIteration):
            next(accessor)

    assert indices(accessor) == [0, 1]


def test_a_dataset_that_can_be_read_only_once_has_empty_epochs_afterwards(accessor_for):
    class Once(IterableDataset):
        left = True

        def __iter__(self):
            if self.left:
                self.left = False
                yield torch.tensor(5)

    accessor = accessor_for(Once())

    assert [[int(x) for x in accessor] for _ in range(3)] == [[5], [], []]


@pytest.mark.parametrize(("early_preload", "expected"), [(False, 1), (True, 6)])
def test_only_early_preloading_fills_the_ring_before_the_first_iteration(accessor_for, early_preload, expected):
    accessor = accessor_for(Numbers(20), buffer_size=6, early_preload=early_preload)

    assert num_ready(accessor, expected) == expected
    assert accessor._worker._data_buffers.indices_mem.dtype is torch.bool
    assert accessor._worker._data_buffers.indices_mem.is_shared()


def test_memory_is_used_again_once_the_next_elements_are_asked_for(accessor_for):
    accessor = accessor_for(Numbers(9), buffer_size=2)

    memories = {element[0].data_ptr() for element in accessor}

    assert len(memories) == 2


def test_the_length_is_that_of_the_dataset(accessor_for, poptorch):
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(12), batch_size=4)

    assert len(accessor_for(Numbers(7))) == 7
    assert len(accessor_for(loader)) == 3
    assert len(accessor_for(loader, rebatched_size=6)) == 2


# what an element may be


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.int8, torch.uint8, torch.int32])
def test_tensors_of_any_type_arrive_as_they_are(accessor_for, dtype):
    data = Numbers(3, dtype)

    for index, (tensor, _index) in enumerate(accessor_for(data)):
        assert tensor.dtype is dtype
        assert torch.equal(tensor, data[index][0])


def test_tuples_become_lists(accessor_for):
    assert type(next(accessor_for(Numbers(2)))) is list


def test_single_tensors_stay_tensors(accessor_for):
    accessor = accessor_for([torch.tensor(4.0), torch.tensor(5.0)])

    assert [float(tensor) for tensor in accessor] == [4.0, 5.0]


def test_dictionaries_have_the_keys_of_the_first(accessor_for):
    data = [{"a": torch.tensor(1), "b": torch.tensor(2)}, {"b": torch.tensor(4), "a": torch.tensor(3)}]

    elements = [{key: int(value) for key, value in element.items()} for element in accessor_for(data)]

    assert elements == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


class Graph:
    """A type of the user's own."""

    def __init__(self, nodes, name):
        self.nodes, self.name = nodes, name


def test_types_with_a_parser_are_built_again(accessor_for, poptorch):
    class GraphParser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield struct.nodes

        def reconstruct(self, original_structure, tensor_iterator):
            return Graph(next(tensor_iterator), original_structure.name)

    poptorch.registerCustomArgParser(Graph, GraphParser())
    try:
        elements = [
            (type(element), int(element.nodes), element.name)
            for element in accessor_for([Graph(torch.tensor(1), "g"), Graph(torch.tensor(2), "g")])
        ]
    finally:
        poptorch.registerCustomArgParser(Graph, None)

    assert elements == [(Graph, 1, "g"), (Graph, 2, "g")]


def test_writing_to_an_element_does_not_change_the_dataset(accessor_for):
    data = [torch.zeros(2), torch.zeros(2)]

    for element in accessor_for(data):
        element.fill_(7)

    assert [tensor.tolist() for tensor in data] == [[0, 0], [0, 0]]


def test_memory_formats_and_empty_tensors_survive(accessor_for):
    image = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)

    received, empty = next(accessor_for([(image, torch.empty(0, 4))]))

    assert torch.equal(received, image)
    assert received.stride() == image.stride()
    assert empty.shape == (0, 4)


def test_an_element_with_fewer_rows_is_narrowed(accessor_for):
    elements = [tensor.tolist() for tensor in accessor_for(Rows([3, 3, 1]))]

    assert elements == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("sizes", [[3], [1, 1, 1, 1, 1, 1, 1], [7], [2, 5, 1, 6], [20, 1]])
@pytest.mark.parametrize("buffer_size", [1, 3])
def test_rebatching_divides_rows_evenly_and_drops_the_rest(accessor_for, sizes, buffer_size):
    accessor = accessor_for(Rows(sizes), rebatched_size=3, buffer_size=buffer_size)

    epochs = [[tensor.tolist() for tensor in accessor] for _ in range(2)]

    assert epochs == [[[first, first + 1, first + 2] for first in range(0, sum(sizes) - 2, 3)]] * 2


# refusals and failures


@pytest.mark.parametrize("size", [1, 0, -2])
def test_the_size_of_rebatched_elements_is_more_than_one(poptorch, size):
    with pytest.raises(AssertionError, match="rebatched_size must be None or greater than 1"):
        poptorch.AsynchronousDataAccessor(Numbers(3), rebatched_size=size)


def test_a_ring_has_slots(poptorch):
    with pytest.raises(AssertionError, match="buffer_size must be at least 1"):
        poptorch.AsynchronousDataAccessor(Numbers(3), buffer_size=0)


def test_a_loader_that_keeps_its_rest_needs_rebatching(poptorch):
    options = poptorch.Options().deviceIterations(2)
    loader = poptorch.DataLoader(options, Numbers(4), drop_last=False)

    with pytest.raises(
        AssertionError,
        match="The 'drop_last=False' option from the DataLoader only works if 'rebatched_size' is specified too",
    ):
        poptorch.AsynchronousDataAccessor(loader)


def test_an_asynchronous_loader_is_not_wrapped_again(poptorch):
    loader = poptorch.DataLoader(
        poptorch.Options(),
        Numbers(4),
        mode=poptorch.DataLoaderMode.Async,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
    )

    with pytest.raises(poptorch.Error, match="The DataLoader already uses an AsynchronousDataAccessor internally"):
        poptorch.AsynchronousDataAccessor(loader)
    loader.terminate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (FailsAt(3, bad=0), "AssertionError: Broken dataset"),
        (Numbers(0), "The Dataset is empty"),
        (["text"], "Tensor at index 0 is not a torch tensor (<class 'str'>). AsynchronousDataAccessor expects data"),
        ([(torch.ones(1), 2)], "Tensor at index 1 is not a torch tensor (<class 'int'>)"),
    ],
    ids=["raises", "empty", "text", "number"],
)
def test_a_process_that_cannot_load_the_first_element_fails_to_start(poptorch, capfd, dataset, text):
    with nothing_left_behind():
        with pytest.raises(
            poptorch.Error, match=r"worker thread failed to start \(Check above for details\)"
        ) as caught:
            poptorch.AsynchronousDataAccessor(dataset, sharing_strategy=poptorch.SharingStrategy.Fork)
        assert caught.value.type == "poptorch_py_error"
        del caught

    assert text in capfd.readouterr().err


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ((torch.ones(3), torch.ones(2)), "has the shape (3,)"),
        ((torch.ones(2),), "The first element has 2 tensors, a later one has 1"),
        ((torch.ones(2, 2), torch.ones(2)), "has the shape (2, 2)"),
    ],
    ids=["longer", "fewer", "more dimensions"],
)
def test_elements_that_do_not_fit_are_an_error(accessor_for, capfd, later, text):
    accessor = accessor_for([(torch.ones(2), torch.ones(2)), later])

    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        list(accessor)
    assert text in capfd.readouterr().err


def test_an_error_in_the_middle_comes_after_the_elements_before_it(accessor_for, capfd):
    accessor = accessor_for(FailsAt(9, bad=4))
    seen = []

    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        seen.extend(int(element[1]) for element in accessor)

    assert seen == [0, 1, 2, 3]
    assert "AssertionError: Broken dataset" in capfd.readouterr().err
    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        next(iter(accessor))


def test_a_process_that_is_killed_is_an_error(accessor_for):
    accessor = accessor_for(Numbers(9))
    next(iter(accessor))

    os.kill(accessor._worker._process.pid, signal.SIGKILL)

    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        list(zip(range(9), map(next, [accessor] * 9)))


# ends


def test_terminating_twice_is_as_good_as_once(accessor_for):
    with nothing_left_behind():
        accessor = accessor_for(Numbers(9))
        next(iter(accessor))
        accessor.terminate()
        accessor.terminate()
        accessor._worker = None


def test_a_terminated_accessor_says_so(accessor_for, poptorch):
    accessor = accessor_for(Numbers(9))
    accessor.terminate()

    with pytest.raises(poptorch.Error, match="was terminated"):
        iter(accessor)


def test_an_element_outlives_its_process(accessor_for):
    accessor = accessor_for(Numbers(9))
    element = next(accessor)

    accessor.terminate()

    assert int(element[1]) == 0


def test_dropping_an_accessor_ends_its_process(poptorch):
    with nothing_left_behind():
        accessor = poptorch.AsynchronousDataAccessor(Numbers(9), sharing_strategy=poptorch.SharingStrategy.Fork)
        process_id = accessor._worker._process.pid
        next(iter(accessor))
        del accessor
        gc.collect()

        assert not is_running(process_id)


def test_a_forked_copy_does_not_end_the_process_of_the_original(accessor_for):
    accessor = accessor_for(Numbers(5))

    child = multiprocessing.get_context("fork").Process(target=accessor.terminate)
    child.start()
    child.join()

    assert indices(accessor) == list(range(5))


def test_an_interruption_of_the_process_alone_changes_nothing(accessor_for, capfd):
    accessor = accessor_for(Numbers(50))
    iterator = iter(accessor)
    next(iterator)

    os.kill(accessor._worker._process.pid, signal.SIGINT)

    assert [int(next(iterator)[1]) for _ in range(49)] == list(range(1, 50))
    assert indices(accessor) == list(range(50))
    assert capfd.readouterr().err == ""


def test_an_epoch_interrupted_in_the_program_is_begun_anew(accessor_for, monkeypatch):
    accessor = accessor_for(Numbers(5))
    list(accessor)
    wait_for_event = accessor._worker.wait_for_event

    def interrupted(generation):
        wait_for_event(generation)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(accessor._worker, "wait_for_event", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iter(accessor))

    assert indices(accessor) == list(range(5))


@pytest.mark.slow
def test_a_process_that_the_program_waited_for_is_not_killed(accessor_for):
    accessor = accessor_for(Numbers(5))
    process_id = accessor._worker._process.pid
    os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)

    accessor.terminate()

    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


# several at once


def test_two_accessors_do_not_disturb_each_other(accessor_for):
    first, second = accessor_for(Numbers(30)), accessor_for(Numbers(30), buffer_size=5)

    pairs = [(int(a[1]), int(b[1])) for a, b in zip(first, second)]

    assert pairs == [(index, index) for index in range(30)]


def test_accessors_work_in_threads(accessor_for):
    results = {}

    def load(name):
        results[name] = indices(accessor_for(Numbers(20)))

    threads = [threading.Thread(target=load, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == dict.fromkeys(range(3), list(range(20)))


def test_large_tensors_arrive_whole(accessor_for):
    data = [torch.arange(3_000_000) + index for index in range(4)]

    for received, sent in zip(accessor_for(data), data):
        assert torch.equal(received, sent)


def test_both_processes_say_who_they_are_at_debug_level(accessor_for, poptorch, capfd):
    poptorch.setLogLevel("DEBUG")
    try:
        accessor = accessor_for(Numbers(3))
        accessor.terminate()
    finally:
        poptorch.setLogLevel("WARN")

    lines = capfd.readouterr().err
    assert f"[debug] AsynchronousDataAccessor worker process: {accessor._worker._process.pid}\n" in lines
    assert f"[debug] AsynchronousDataAccessor parent process: {os.getpid()}\n" in lines
