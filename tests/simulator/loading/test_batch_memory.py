"""Memory of batches: used again when nobody has the batch any more, and never before."""

from __future__ import annotations

import copy
import pickle
import weakref

import pytest
import torch
import torch.utils.dlpack

from porting.simulator._loading.batch_reading import BatchMemory

FLOAT = torch.float32


def taken(memory, value, shape=(4, 3), dtype=FLOAT):
    return memory.take(0, shape, dtype).fill_(value)


def churn(memory):
    """Take and drop enough batches to overwrite every slot that is free."""
    for value in range(20):
        taken(memory, value)


def test_memory_is_used_again_when_the_batch_is_dropped():
    memory = BatchMemory()

    places = set()
    for value in range(20):
        places.add(taken(memory, value).data_ptr())

    assert len(places) == 1


def test_a_loop_that_keeps_its_last_batch_needs_two():
    memory, batch = BatchMemory(), None

    places = set()
    for value in range(20):
        batch = taken(memory, value)
        places.add(batch.data_ptr())

    assert batch is not None
    assert len(places) == 2


def test_batches_that_are_kept_stay_as_they_are():
    memory = BatchMemory()

    kept = [taken(memory, value) for value in range(20)]

    assert [batch.unique().tolist() for batch in kept] == [[value] for value in range(20)]


KEPT = {
    "the batch": lambda batch: (batch, lambda kept: kept),
    "a view": lambda batch: (batch[1:, :2], lambda kept: kept),
    "an alias": lambda batch: (batch.detach(), lambda kept: kept),
    "an array": lambda batch: (batch.numpy(), torch.from_numpy),
    "a view of an array": lambda batch: (memoryview(batch.numpy()), torch.asarray),
    "a storage": lambda batch: (batch.untyped_storage(), lambda kept: torch.tensor([]).set_(kept, 0, (4, 3), (3, 1))),
    "a capsule": lambda batch: (torch.utils.dlpack.to_dlpack(batch), torch.utils.dlpack.from_dlpack),
    "a shallow copy": lambda batch: (copy.copy(batch), lambda kept: kept),
    "a parameter": lambda batch: (torch.nn.Parameter(batch), lambda kept: kept.detach()),
}


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT.keys())
def test_whatever_refers_to_the_memory_keeps_it(keep):
    memory = BatchMemory()
    kept, read = keep(taken(memory, 7.0))

    churn(memory)

    assert read(kept).unique().tolist() == [7.0]


def test_a_graph_of_autograd_keeps_what_it_needs():
    memory, weight = BatchMemory(), torch.ones(3, 2, requires_grad=True)
    loss = (taken(memory, 7.0) @ weight).sum()

    churn(memory)
    loss.backward()

    assert weight.grad.unique().tolist() == [28.0]


@pytest.mark.parametrize(
    "change",
    [lambda batch: batch.share_memory_(), lambda batch: batch.resize_(40, 3)],
    ids=["moved into shared memory", "resized"],
)
def test_memory_that_became_another_is_not_used_again(change):
    memory = BatchMemory()
    batch = taken(memory, 7.0)
    change(batch)
    storage = batch.untyped_storage().data_ptr()
    del batch

    assert all(taken(memory, value).data_ptr() != storage for value in range(5))


def test_every_handle_is_a_tensor_of_its_own():
    memory = BatchMemory()
    first = memory.take(0, (4, 3), FLOAT)
    first.mark = "the user's"
    seen = weakref.ref(first)
    del first

    assert seen() is None
    assert not hasattr(memory.take(0, (4, 3), FLOAT), "mark")


def test_another_form_gets_other_memory():
    memory = BatchMemory()

    assert memory.take(0, (4, 3), FLOAT).shape == (4, 3)
    assert memory.take(0, (2, 3), FLOAT).shape == (2, 3)
    assert memory.take(0, (4, 3), torch.int64).dtype == torch.int64
    assert memory.take(0, (4, 3), FLOAT).untyped_storage().nbytes() == 48


def test_not_more_than_three_batches_are_kept_in_reserve():
    memory = BatchMemory()
    storages = [weakref.ref(taken(memory, size, (size, 3)).untyped_storage()) for size in range(1, 20)]

    assert sum(storage() is not None for storage in storages) == 3


def test_batches_of_inference_mode_are_apart_from_the_others():
    memory = BatchMemory()
    with torch.inference_mode():
        assert taken(memory, 1.0).is_inference()

    assert not taken(memory, 2.0).is_inference()


def test_a_copy_begins_without_memory():
    memory = BatchMemory()
    place = taken(memory, 1.0).data_ptr()

    for other in (pickle.loads(pickle.dumps(memory)), copy.deepcopy(memory)):
        assert taken(other, 2.0).data_ptr() != place
