"""The end of a process is told with its status, or its signal, and its last words."""

from __future__ import annotations

from porting.bench.processes import describe_exit


def test_the_end_of_a_process_is_told_with_its_last_words():
    assert describe_exit(3, "one\ntwo\n\nthree\nfour\n") == "exit status 3: two; three; four"
    assert describe_exit(-11, "") == "signal 11"
