"""Padding and an executable for each length change no loss; staying with a length changes the order, and all learn."""

from __future__ import annotations

from types import ModuleType

from porting.buckets import choose_buckets
from porting.recipe_chain import chain_of_equal_losses, demand, equal_losses, holds, measured, reaches
from porting.recipes.seq2seq import workload

NUM_STEPS = 24


def half_is_padding_with_one_length(_step: object) -> str:
    """Count the padding for one length and for two."""
    pairs = workload.load_pairs()[0]
    lengths = workload.measure_lengths(pairs)
    one, two = (choose_buckets(lengths, number).report(lengths).padding_share for number in (1, 2))
    return demand(two < 0.25 and one > 0.4, f"padding is {one:.0%} of all places with one length, {two:.0%} with two")


def few_changes_of_program(step: ModuleType) -> str:
    """Count how often the length changes in 200 batches."""
    pairs, _test_pairs, buckets = workload.load_pairs()
    batches = workload.make_batches(pairs, buckets, 200, run=step.RUN)
    lengths = [buckets.bucket_of(max(workload.measure_lengths(batch))) for batch in batches]
    num_changes = sum(one != another for one, another in zip(lengths, lengths[1:]))
    return demand(num_changes <= 30, f"{num_changes} changes in 200 steps")


CHECKS = (
    reaches(0, "BLEU soon", at_least=0.2, measure=measured("BLEU", 120)),
    # 0.59 and 0.44 when it was written, 0.74 and 0.63 after 400 steps
    reaches(0, "BLEU", at_least=0.5, measure=measured("BLEU", 240), slow=True),
    *chain_of_equal_losses(1, 2),
    holds(1, "two lengths save most of the padding", half_is_padding_with_one_length),
    holds(3, "the program seldom changes", few_changes_of_program),
    reaches(3, "last loss of 60", at_most=2.0, measure=lambda step: step.train(60)[-1], slow=True),
    reaches(4, "BLEU", at_least=0.35, measure=measured("BLEU", 220), slow=True),
    equal_losses(4, like=3),
)
