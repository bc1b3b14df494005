"""Shapes of an epoch are counted, lengths that vary together are one, and no other buckets have less padding."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.check.shape_audit import ShapeCounter


def _count(*batches):
    counter = ShapeCounter()
    for batch in batches:
        counter.add(batch)
    return counter


def _sentences(*lengths, rows=2):
    return [(torch.zeros(rows, length), torch.zeros(rows, length, dtype=torch.bool), 3) for length in lengths]


def test_lengths_of_tensors_that_vary_together_are_one():
    audit = _count(*_sentences(5, 7, 5)).summarise()

    assert audit.num_executables == 2
    assert [length.dimensions for length in audit.lengths] == [((0, 1), (1, 1))]
    assert audit.lengths[0].values == (5, 7, 5)


def test_a_short_last_batch_is_no_executable_of_its_own():
    audit = _count(torch.zeros(4, 3), torch.zeros(4, 3), torch.zeros(1, 3)).summarise()

    assert audit.num_executables == 1
    assert audit.lengths == ()


@given(st.lists(st.integers(1, 12), min_size=2, max_size=12), st.integers(1, 4))
def test_no_other_buckets_have_less_padding(lengths, num_buckets):
    audit = _count(*_sentences(*lengths)).summarise(max_executables=num_buckets)

    if not audit.lengths:
        assert len(set(lengths)) == 1
        return
    others = itertools.combinations(sorted(set(lengths)), min(num_buckets, len(set(lengths))))
    fewest = min(
        sum(min(bucket for bucket in buckets if bucket >= length) for length in lengths)
        for buckets in others
        if max(buckets) >= max(lengths)
    )
    assert audit.choices[-1].padding_share == pytest.approx(1 - sum(lengths) / fewest)
    assert audit.choices[-1].num_executables <= num_buckets


def test_two_lengths_share_the_executables_between_them():
    batches = [
        (torch.zeros(2, source), torch.zeros(2, target))
        for source, target in [(4, 9), (4, 3), (8, 9), (8, 3), (4, 9), (7, 2)]
    ]

    audit = _count(*batches).summarise(max_executables=4)

    assert len(audit.lengths) == 2
    assert audit.choices[-1].num_executables <= 4
    assert [len(buckets.lengths) for buckets in audit.choices[-1].buckets] == [2, 2]


def test_buckets_pay_when_what_they_save_is_what_they_cost():
    counter = _count(*_sentences(5, 5, 5, 10))

    audit = counter.summarise(max_executables=2, compile_seconds=30.0, step_seconds=2.0)
    one, two = audit.choices

    # padded to 10, four steps take 8 s; three of them padded to 5 take 1 s each
    assert one.break_even_steps == 0.0
    assert two.break_even_steps == pytest.approx(4 * 30.0 / 3.0)
    assert "40 steps" in str(audit)


def test_without_times_buckets_pay_by_the_ratio_of_compiling_to_a_step():
    audit = _count(*_sentences(5, 5, 5, 10)).summarise(max_executables=2)

    assert audit.choices[1].break_even_steps == pytest.approx(4 * 2.0 / 3.0)
    assert "2.67 r steps" in str(audit)
    assert "(r: the time to compile an executable, divided by the time of a step)" in str(audit)


def test_many_lengths_are_rounded_before_buckets_are_chosen():
    audit = _count(*_sentences(*range(1, 1001), rows=1)).summarise(max_executables=4)

    assert audit.num_executables == 1000
    assert len(audit.choices[-1].buckets[0].lengths) == 4
    assert audit.choices[-1].padding_share < 0.25


def test_a_short_last_batch_is_neither_an_executable_nor_a_length():
    audit = _count(*_sentences(5, 9, 5), torch.zeros(1, 7)).summarise(max_executables=4)

    assert audit.num_executables == 2
    assert audit.choices[-1].buckets[0].lengths == (5, 9)
