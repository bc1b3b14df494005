"""Buckets have the least padding that so many lengths can have, and the report counts it."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.buckets import Buckets, choose_buckets, pad


def least_padding(lengths, num_buckets):
    """Try all choices of lengths that occur."""
    occurring = sorted(set(lengths))
    choices = [
        (*chosen, occurring[-1])
        for size in range(min(num_buckets, len(occurring)))
        for chosen in combinations(occurring[:-1], size)
    ]
    return min(sum(min(b for b in choice if b >= length) for length in lengths) for choice in choices)


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=12), num_buckets=st.integers(1, 4))
def test_no_other_choice_has_less_padding(lengths, num_buckets):
    buckets = choose_buckets(lengths, num_buckets)

    assert len(buckets.lengths) <= num_buckets
    assert buckets.report(lengths).num_places == least_padding(lengths, num_buckets)


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_every_sequence_is_in_the_shortest_bucket_that_holds_it(lengths):
    buckets = choose_buckets(lengths, 3)

    members = buckets.members(lengths)

    assert sorted(place for places in members for place in places) == list(range(len(lengths)))
    for length, places, shorter in zip(buckets.lengths, members, (0, *buckets.lengths)):
        assert all(shorter < lengths[place] <= length for place in places)


def test_with_a_bucket_for_each_length_there_is_no_padding():
    lengths = [3, 5, 5, 8]

    assert choose_buckets(lengths, 9).report(lengths).padding_share == 0.0


def test_the_share_of_padding_is_that_of_the_places_computed_in_vain():
    report = Buckets((4, 10)).report([4, 4, 5])

    assert (report.num_tokens, report.num_places) == (13, 18)
    assert report.padding_share == pytest.approx(5 / 18)


def test_what_fits_nowhere_is_refused():
    with pytest.raises(ValueError, match="a sequence of 9 does not fit into the longest bucket, 8"):
        Buckets((4, 8)).bucket_of(9)
    with pytest.raises(ValueError, match="a sequence of 3 does not fit into 2"):
        pad([[1, 2, 3]], length=2, value=0)


@pytest.mark.parametrize("lengths", [(), (0, 4), (8, 4), (4, 4)])
def test_lengths_that_do_not_ascend_are_refused(lengths):
    with pytest.raises(ValueError, match="are positive and ascend"):
        Buckets(lengths)


@pytest.mark.parametrize(("lengths", "number"), [([], 1), ([0, 3], 1), ([3], 0)])
def test_nothing_to_choose_is_refused(lengths, number):
    with pytest.raises(ValueError, match="at least one sequence"):
        choose_buckets(lengths, number)
