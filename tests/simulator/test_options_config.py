"""Options read from a file of setters or from JSON."""

from __future__ import annotations

import pytest

import porting.simulator as poptorch
from porting.simulator import enums
from porting.simulator._options_config import _describe_syntax_error
from porting.simulator.options import ConfigFileError, Options


@pytest.fixture
def config(tmp_path):
    def write(*lines: str) -> str:
        path = tmp_path / "tmp.conf"
        path.write_text("\n".join(lines))
        return str(path)

    return write


def test_file_calls_each_setter(config):
    path = config(
        "# Comment",
        "",
        "  deviceIterations(4)  ",
        "outputMode(poptorch.OutputMode.All)",
        "Training.gradientAccumulation(options.device_iterations)",
    )

    options = Options()
    options.loadFromFile(path)

    assert (options.device_iterations, options.output_mode) == (4, enums.OutputMode.All)
    assert options.Training.gradient_accumulation == 4


def test_later_file_overrides_only_what_it_mentions(config):
    options = Options()
    options.loadFromFile(config("deviceIterations(4)", "replicationFactor(2)"))

    options.loadFromFile(config("deviceIterations(5)"))

    assert (options.device_iterations, options.replication_factor) == (5, 2)


def test_unclosed_bracket_at_the_end_names_line_file_and_source(config):
    path = config(
        "# not counted",
        "deviceIterations(1)",
        "replicationFactor(1)",
        "",
        "logDir('/tmp')",
        "syncPattern(poptorch.SyncPattern.Full)",
        "outputMode(poptorch.OutputMode.All",
    )

    with pytest.raises(ConfigFileError) as caught:
        Options().loadFromFile(path)

    assert str(caught.value) == (
        "SyntaxError at line 5 of tmp.conf: unexpected EOF while parsing\n> options.outputMode(poptorch.OutputMode.All"
    )


def test_other_syntax_error_keeps_pythons_words(config):
    with pytest.raises(ConfigFileError, match=r"SyntaxError at line 2 of tmp\.conf: .+\n> options\.logDir\(\]\)"):
        Options().loadFromFile(config("deviceIterations(1)", "logDir(])", "replicationFactor(1)"))


def test_error_without_a_line_is_said_of_the_first_one():
    assert _describe_syntax_error(SyntaxError("odd"), ["options.x"], "f").startswith("SyntaxError at line 1 of f: odd")


def test_error_of_a_setter_passes_through(config):
    with pytest.raises(AttributeError, match=r"Invalid attribute wibble\."):
        Options().loadFromFile(config("wibble(1)"))


def test_config_file_error_is_an_exception_of_its_own():
    assert ConfigFileError.__bases__ == (Exception,)


def test_config_file_sees_the_module_that_users_import():
    assert poptorch.OutputMode is enums.OutputMode


def test_json_takes_the_items_of_a_list_as_they_are():
    with pytest.raises(AssertionError):
        Options().from_json('{"outputMode": ["OutputMode.EveryN", 2]}')


@pytest.mark.parametrize(
    ("text", "read", "value"),
    [
        ('{"deviceIterations": 3}', lambda o: o.device_iterations, 3),
        ('{"outputMode": "OutputMode.Sum"}', lambda o: o.output_mode, 3),
        ('{"Training.gradientAccumulation": 6}', lambda o: o.Training.gradient_accumulation, 6),
        ('{"_Popart.set": ["autoRecomputation", 3]}', lambda o: o._Popart.options["autoRecomputation"], 3),
        (
            '{"setAvailableMemoryProportion": {"IPU1": 0.25}}',
            lambda o: o.available_memory_proportion,
            {1: 0.25},
        ),
        ('{"logDir": "OutputMode.Nothing"}', lambda o: o.log_dir, "OutputMode.Nothing"),
        ('{"logDir": "Path.All"}', lambda o: o.log_dir, "Path.All"),
        ('{"logDir": "enum.IntEnum"}', lambda o: o.log_dir, "enum.IntEnum"),
        ('{"modelName": "a.b.c"}', lambda o: o.model_name, "a.b.c"),
    ],
)
def test_json_calls_each_accessor(text, read, value):
    options = Options()

    assert options.from_json(text) is options
    assert read(options) == value


def test_json_with_an_unknown_accessor_is_an_error():
    with pytest.raises(AttributeError, match=r"Invalid attribute wibble\."):
        Options().from_json('{"wibble": 1}')
