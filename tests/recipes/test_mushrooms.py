"""The real mushrooms, where the file is: the figures in the story, and the bar for the accuracy."""

import pytest

from porting.recipes.mushrooms import step_0_plain, step_5_hundred_steps_a_call, workload


@pytest.fixture
def mushrooms_file(data_folder):
    """The real file; the test is skipped where it is not."""
    path = data_folder / "mushrooms.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return str(path)


@pytest.mark.slow
def test_fifty_epochs_on_the_real_file_are_as_good_as_in_chainers_manual(mushrooms_file):
    plain = step_0_plain.train(data=mushrooms_file).measured.history
    ported = step_5_hundred_steps_a_call.train(data=mushrooms_file).measured.history

    differences = [abs(one[0] - other[0]) for one, other in zip(plain.steps, ported.steps)]
    assert len(differences) == 2800
    assert max(differences) < 1e-5
    assert ported.tests[2800][1] >= 0.965
    assert ported.tests[2800] == pytest.approx(plain.tests[2800], abs=1e-4)


def test_the_table_says_where_nothing_was_tested(capsys):
    history = workload.History(steps=[(0.5, 0.75)] * 2800, tests={1400: (0.25, 0.875), 2800: (0.125, 0.9375)})

    workload.print_table(history)

    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == "1 0.5000 0.5507 0.7500 0.7335 - 0.5028 - 0.7528".split()
    assert lines[5].split() == "50 0.5000 0.0622 0.7500 0.9823 0.1250 0.0710 0.9375 0.9817".split()
