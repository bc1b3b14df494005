"""Gradients of several processes added up in few messages."""

from __future__ import annotations

import pytest
import torch

from porting.engines.calls import gradient_exchange
from porting.engines.calls.gradient_exchange import sum_over_processes


@pytest.fixture
def messages(monkeypatch):
    """Give the list of messages that were sent; two other processes have the same gradients as this one."""
    sent = []

    def all_reduce(message):
        sent.append(message.clone())
        message.mul_(3)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce, raising=False)
    return sent


def test_gradients_are_added_up_in_place(messages):
    gradients = [torch.ones(2, 3), torch.full((4,), 2.0), torch.tensor(5.0)]

    sum_over_processes(gradients)

    assert [gradient.shape for gradient in gradients] == [(2, 3), (4,), ()]
    assert [gradient.unique().tolist() for gradient in gradients] == [[3.0], [6.0], [15.0]]


def test_many_small_gradients_are_one_message(messages):
    sum_over_processes([torch.ones(10) for _ in range(50)])

    assert [message.numel() for message in messages] == [500]


def test_messages_are_of_limited_size(messages, monkeypatch):
    monkeypatch.setattr(gradient_exchange, "_MESSAGE_BYTES", 100)
    gradients = [torch.ones(20) for _ in range(5)]

    sum_over_processes(gradients)

    assert [message.numel() for message in messages] == [40, 40, 20]
    assert all((gradient == 3).all() for gradient in gradients)


def test_gradients_in_another_memory_format_keep_it(messages):
    gradient = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)

    sum_over_processes([gradient])

    assert torch.equal(gradient, 3 * torch.arange(24.0).reshape(1, 2, 3, 4))
    assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_nothing_to_exchange_sends_nothing(messages):
    sum_over_processes([])

    assert messages == []
