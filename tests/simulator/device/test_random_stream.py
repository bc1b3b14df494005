"""Random numbers on the device: a stream of its own, which a seed fixes."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn


class Noise(nn.Module):
    def forward(self, x):
        return torch.rand_like(x)


def noise(poptorch, seed=None):
    options = poptorch.Options() if seed is None else poptorch.Options().randomSeed(seed)
    return poptorch.inferenceModel(Noise(), options)


def test_equal_seeds_give_equal_first_runs(poptorch):
    x = torch.zeros(5)

    assert torch.equal(noise(poptorch, 3)(x), noise(poptorch, 3)(x))


def test_executors_of_the_same_options_start_alike(poptorch):
    options = poptorch.Options().randomSeed(3)
    executors = [poptorch.inferenceModel(Noise(), options) for _ in range(2)]
    x = torch.zeros(5)

    assert torch.equal(executors[0](x), executors[1](x))


def test_different_seeds_give_different_runs(poptorch):
    x = torch.zeros(5)

    assert not torch.equal(noise(poptorch, 3)(x), noise(poptorch, 4)(x))


def test_consecutive_runs_differ(poptorch):
    executor, x = noise(poptorch, 3), torch.zeros(5)

    assert not torch.equal(executor(x), executor(x))


def test_micro_batches_differ(poptorch):
    executor = poptorch.inferenceModel(Noise(), poptorch.Options().deviceIterations(2))

    first, second = executor(torch.zeros(2, 5))

    assert not torch.equal(first, second)


def test_the_hosts_generator_is_left_alone(poptorch):
    executor, x = noise(poptorch, 3), torch.zeros(5)
    before = torch.get_rng_state()

    executor(x)

    assert torch.equal(torch.get_rng_state(), before)


def test_the_hosts_generator_does_not_move_the_devices(poptorch):
    executors, x = [noise(poptorch, 3), noise(poptorch, 3)], torch.zeros(5)
    executors[0](x)
    executors[1](x)

    torch.rand(100)

    assert torch.equal(executors[0](x), executors[1](x))


def test_setting_the_seed_seeds_the_host_too(poptorch):
    poptorch.Options().randomSeed(3)
    drawn = torch.rand(1)

    torch.manual_seed(3)

    assert torch.equal(drawn, torch.rand(1))


def test_seeding_in_forward_does_not_restart_the_device(poptorch):
    class Seeds(nn.Module):
        def forward(self, x):
            torch.manual_seed(1)
            return torch.rand_like(x)

    executor, x = poptorch.inferenceModel(Seeds()), torch.zeros(5)

    assert not torch.equal(executor(x), executor(x))


def test_dropout_draws_anew_for_each_micro_batch(poptorch):
    executor = poptorch.inferenceModel(nn.Dropout(0.5), poptorch.Options().deviceIterations(2))

    first, second = executor(torch.ones(2, 100))

    assert not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 2.0}


def test_dropout_is_inactive_in_eval_mode(poptorch):
    executor = poptorch.inferenceModel(nn.Dropout(0.5).eval())

    assert torch.equal(executor(torch.ones(100)), torch.ones(100))


# -- rng_state


def test_the_random_state_is_the_callers_own_list(poptorch):
    executor = poptorch.inferenceModel(torch.nn.Dropout(), poptorch.Options().randomSeed(3))
    executor.compile(torch.ones(2))

    executor.rng_state.append(5)
    executor.rng_state[0] = 99

    assert executor.rng_state == [3]


def test_the_state_needs_a_compiled_model(poptorch):
    executor = noise(poptorch, 3)

    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed."):
        executor.rng_state  # noqa: B018


def test_the_state_is_the_seed_before_the_first_run(poptorch):
    executor = noise(poptorch, 3)

    executor.compile(torch.zeros(5))

    assert executor.rng_state == [3]


def test_the_state_is_none_without_a_seed_before_the_first_run(poptorch):
    executor = noise(poptorch)

    executor.compile(torch.zeros(5))

    assert executor.rng_state is None


def test_the_state_begins_with_the_seed_after_a_run(poptorch):
    executor = noise(poptorch, 3)

    executor(torch.zeros(5))

    assert executor.rng_state[0] == 3
    assert {type(word) for word in executor.rng_state} == {int}


def test_a_state_that_is_set_repeats_the_run(poptorch):
    executor, x = noise(poptorch, 3), torch.zeros(5)
    executor(x)
    state = executor.rng_state
    expected = executor(x)

    executor.rng_state = state

    assert torch.equal(executor(x), expected)


def test_another_executor_goes_on_from_a_state(poptorch):
    executor, other, x = noise(poptorch, 3), noise(poptorch, 4), torch.zeros(5)
    executor(x)
    other.compile(x)

    other.rng_state = executor.rng_state

    assert torch.equal(other(x), executor(x))


def test_the_setter_keeps_a_copy(poptorch):
    executor, other, x = noise(poptorch), noise(poptorch, 7), torch.zeros(5)
    executor.compile(x)
    state = [7]

    executor.rng_state = state
    state[0] = 8

    assert executor.rng_state == [7]
    assert torch.equal(executor(x), other(x))


def test_a_state_of_nobody_is_refused(poptorch):
    executor = noise(poptorch)
    executor.compile(torch.zeros(5))

    with pytest.raises(poptorch.Error, match="Invalid RNG state of 3 words"):
        executor.rng_state = [1, 2, 3]


def test_the_stream_goes_on_after_detaching(poptorch):
    executors, x = [noise(poptorch, 3), noise(poptorch, 3)], torch.zeros(5)
    executors[0](x)
    executors[1](x)

    executors[0].detachFromDevice()

    assert torch.equal(executors[0](x), executors[1](x))


# -- what is logged of it


def lines_about_randomness(log):
    return [line.split("] ")[-1] for line in log.splitlines() if "random seed" in line or "RNG state" in line]


def test_the_seed_is_sent_when_the_model_compiles(poptorch, debug_log):
    executor = poptorch.inferenceModel(Noise(), poptorch.Options().randomSeed(11))

    executor.compile(torch.ones(2))

    assert lines_about_randomness(debug_log()) == ["Setting random seed to 11"]


def test_the_state_is_read_once_after_a_run(poptorch, debug_log):
    executor = poptorch.inferenceModel(Noise(), poptorch.Options().randomSeed(11))
    executor(torch.ones(2))
    debug_log()

    first, second = executor.rng_state, executor.rng_state

    assert first == second
    assert lines_about_randomness(debug_log()) == ["Reading random seed", "Reading RNG state"]


def test_a_state_that_is_set_is_sent(poptorch, debug_log):
    executor = poptorch.inferenceModel(Noise(), poptorch.Options().randomSeed(11))
    executor(torch.ones(2))
    state = executor.rng_state
    debug_log()

    executor.rng_state = state

    assert lines_about_randomness(debug_log()) == ["Setting random seed to 11", "Setting RNG state"]


def test_a_state_that_is_set_while_detached_is_sent_with_the_next_attachment(poptorch, debug_log):
    executor = poptorch.inferenceModel(Noise(), poptorch.Options().randomSeed(11))
    first = executor(torch.ones(2))
    executor.detachFromDevice()
    debug_log()

    executor.rng_state = [11]
    silent = lines_about_randomness(debug_log())
    again = executor(torch.ones(2))

    assert silent == []
    assert lines_about_randomness(debug_log()) == ["Setting random seed to 11"]
    assert torch.equal(first, again)


def test_an_offline_executor_has_only_its_seed(poptorch):
    executor = poptorch.inferenceModel(Noise(), poptorch.Options().randomSeed(11).useOfflineIpuTarget())

    executor.compile(torch.ones(2))

    assert executor.rng_state == [11]


class Walk(nn.Module):
    def forward(self, x):
        for _ in range(10):
            x = x + torch.rand_like(x)
        return x


def test_the_streams_of_several_threads_do_not_mix(poptorch):
    def seeded(seed):
        # `randomSeed` seeds the host's generator as well, at once and for all threads
        return poptorch.inferenceModel(Walk(), poptorch.Options().randomSeed(seed))

    def walk(executor):
        return [executor(torch.zeros(50_000)).sum().item() for _ in range(10)]

    expected = [walk(seeded(seed)) for seed in range(3)]
    executors = [seeded(seed) for seed in range(3)]
    results = {}
    threads = [
        threading.Thread(target=lambda number=number: results.update({number: walk(executors[number])}))
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [results[seed] for seed in range(3)] == expected
