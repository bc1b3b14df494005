"""The end of a process is told with its status, or its signal, and its last words."""

from __future__ import annotations

from porting.bench.processes import Child, describe_exit


def test_the_end_of_a_process_is_told_with_its_last_words():
    assert describe_exit(3, "one\ntwo\n\nthree\nfour\n") == "exit status 3: two; three; four"
    assert describe_exit(-11, "") == "signal 11"


def test_a_job_that_there_is_not_fails_with_its_name():
    with Child("nothing", {}) as child:
        child.wait(60.0)

        assert child.outcome() == ("failed", "KeyError: 'nothing'", None)
