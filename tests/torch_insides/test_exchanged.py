"""An exchange ends with what was there before, whatever else was exchanged meanwhile, in whatever thread."""

from __future__ import annotations

import itertools
import threading

import pytest

from porting.torch_insides.exchanged import exchange, exchanged
from porting.torch_insides.parts import MissingPart


class Greeting:
    @staticmethod
    def say():
        return "hello"


class Inherited(Greeting):
    pass


def append(text):
    return lambda original: staticmethod(lambda: original.__func__() + text)


def test_exchanges_lie_above_each_other():
    with exchanged(Greeting, "say", append(" you")), exchanged(Greeting, "say", append("!")):
        assert Greeting.say() == "hello you!"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_exchanges_end_in_any_order(order):
    original = vars(Greeting)["say"]
    ends = [exchange(Greeting, "say", append(text)) for text in "abc"]

    for number in order:
        ends[number]()

    assert vars(Greeting)["say"] is original


def test_what_is_left_of_several_exchanges_goes_on():
    end = exchange(Greeting, "say", append(" you"))
    with exchanged(Greeting, "say", append("!")):
        end()

        assert Greeting.say() == "hello!"


def test_an_exchange_that_has_ended_ends_once():
    end = exchange(Greeting, "say", append("!"))
    end()

    with exchanged(Greeting, "say", append("?")):
        end()

        assert Greeting.say() == "hello?"


def test_what_is_inherited_is_the_class_of_its_own_only_meanwhile():
    with exchanged(Inherited, "say", append("!")):
        assert (Inherited.say(), Greeting.say()) == ("hello!", "hello")

    assert "say" not in vars(Inherited)


def test_an_exchange_ends_with_an_exception():
    with pytest.raises(KeyError), exchanged(Greeting, "say", append("!")):
        raise KeyError

    assert Greeting.say() == "hello"


def test_what_is_not_there_is_not_exchanged():
    with pytest.raises(MissingPart, match="Greeting.shout"):
        exchange(Greeting, "shout", append("!"))


def test_threads_that_exchange_at_once_leave_what_was_there():
    original = vars(Greeting)["say"]
    together = threading.Barrier(8)

    def exchange_often():
        together.wait()
        for _ in range(200):
            with exchanged(Greeting, "say", append("!")):
                Greeting.say()

    threads = [threading.Thread(target=exchange_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert vars(Greeting)["say"] is original
