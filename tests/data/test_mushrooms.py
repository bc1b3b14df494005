"""Mushrooms are read as UCI wrote them, or not at all; those that are made can be learnt."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from porting.data.mushrooms import TRAITS, make_mushrooms, read_mushrooms, split_at_random, write_mushrooms
from porting.diagnostics import PortingError

HEADER = ",".join(["class", *TRAITS])
ROW = "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u"
EDIBLE = "e,x,s,y,t,a,f,c,b,k,e,c,s,s,w,w,p,w,o,p,n,n,g"


@pytest.fixture
def mushrooms_file(data_folder):
    """The real file; the test is skipped where it is not."""
    path = data_folder / "mushrooms.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return path


@pytest.fixture(scope="module")
def made_file(tmp_path_factory):
    """A small file of the format, and its content."""
    path = tmp_path_factory.mktemp("mushrooms") / "made.csv"
    write_mushrooms(path, 20, seed=0)
    return path


def error_of(tmp_path, content):
    path = tmp_path / "mushrooms.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PortingError) as caught:
        read_mushrooms(path)
    return caught.value


def num_rows_or_code(path):
    """Return the number of mushrooms, or the code of the error."""
    try:
        return len(read_mushrooms(path)[0])
    except PortingError as error:
        return error.finding.code


# -- the real file -----------------------------------------------------------------------------------------------------


def test_the_real_file_is_read(mushrooms_file):
    features, poisonous = read_mushrooms(mushrooms_file)

    assert features.shape == (8124, 22)
    assert features.dtype == poisonous.dtype == torch.float32
    assert poisonous.shape == (8124, 1)
    assert poisonous.sum() == 3916


def test_features_are_the_codes_of_numpys_unique(mushrooms_file):
    table = np.genfromtxt(mushrooms_file, delimiter=",", dtype=str, skip_header=1)
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in table.T], axis=1)

    features, poisonous = read_mushrooms(mushrooms_file)

    assert np.array_equal(features.numpy(), codes[:, 1:])
    assert np.array_equal(poisonous.numpy(), codes[:, :1])


# -- made mushrooms ----------------------------------------------------------------------------------------------------


def test_what_is_written_is_what_is_made(tmp_path):
    write_mushrooms(tmp_path / "made.csv", 8124, seed=7)

    for read, made in zip(read_mushrooms(tmp_path / "made.csv"), make_mushrooms(8124, seed=7)):
        assert torch.equal(read, made)


@given(num_samples=st.integers(0, 60), seed=st.integers(0, 2**40))
def test_a_feature_stands_for_the_same_letter_however_few_mushrooms_are_made(tmp_path_factory, num_samples, seed):
    path = tmp_path_factory.mktemp("few") / "made.csv"
    write_mushrooms(path, num_samples, seed=seed)
    rows = [line.split(",")[1:] for line in path.read_text().splitlines()[1:]]

    features, _poisonous = make_mushrooms(num_samples, seed=seed)

    assert features.tolist() == [
        [sorted(TRAITS[name]).index(field) for name, field in zip(TRAITS, row)] for row in rows
    ]


def test_noise_is_the_share_of_wrong_labels():
    _features, clean = make_mushrooms(8124, seed=0, noise=0)
    _features, noisy = make_mushrooms(8124, seed=0, noise=0.02)

    assert 0.015 < (clean != noisy).float().mean() < 0.025


def test_without_noise_three_traits_tell_the_label():
    features, poisonous = make_mushrooms(8124, seed=0, noise=0)
    names = list(TRAITS)
    telling = features[:, [names.index("odor"), names.index("gill-size"), names.index("spore-print-color")]]

    num_kinds = len(telling.unique(dim=0))

    assert len(torch.cat([telling, poisonous], dim=1).unique(dim=0)) == num_kinds


def test_made_mushrooms_are_learnt_as_well_as_real_ones():
    torch.manual_seed(0)
    train_set, test_set = split_at_random(make_mushrooms(seed=0))
    model = torch.nn.Sequential(torch.nn.Linear(22, 44), torch.nn.ReLU(), torch.nn.Linear(44, 44), torch.nn.ReLU())
    model.append(torch.nn.Linear(44, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)

    for rows in (rows for _ in range(20) for rows in torch.randperm(len(train_set)).split(100)):
        features, poisonous = train_set[rows]
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(features), poisonous).backward()
        optimizer.step()

    features, poisonous = test_set.tensors
    assert ((model(features) >= 0) == poisonous).float().mean() >= 0.965


def test_the_global_random_streams_stay_where_they_are(random_states):
    before = random_states()

    split_at_random(make_mushrooms(10, seed=0))

    assert random_states() == before


@given(num_samples=st.integers(2, 50), share=st.floats(0, 1), seed=st.integers(0, 2**40))
def test_a_split_loses_no_sample_and_repeats_none(num_samples, share, seed):
    parts = split_at_random([torch.arange(num_samples)], share=share, seed=seed)

    assert [len(part) for part in parts] == [int(share * num_samples), num_samples - int(share * num_samples)]
    assert torch.cat([part.tensors[0] for part in parts]).sort().values.tolist() == list(range(num_samples))


def test_samples_of_unequal_length_are_not_split():
    with pytest.raises(ValueError, match="as many rows, not of 10, 12"):
        split_at_random((torch.zeros(10), torch.zeros(12)))


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "place", "text"),
    [
        ("", ":1:1", "the name `class` should stand here, not nothing"),
        (HEADER.replace("odor", "odour"), ":1:47", "the name `odor` should stand here, not `odour`"),
        (HEADER + ",weight\n" + ROW, ":1:301", "the end of the line should stand here, not `weight`"),
        (ROW, ":1:1", "the name `class` should stand here, not `p`"),
        (HEADER, ":1", "there is no mushroom"),
        (f"{HEADER}\n{ROW}\n{EDIBLE[:-2]}\n", ":3:44", "22 fields in the line, not 23"),
        (f"{HEADER}\n{ROW},x\n", ":2:47", "24 fields in the line, not 23"),
        (f"{HEADER}\n{ROW}\n\n{ROW}\n", ":3:1", "1 fields in the line, not 23"),
        (f"{HEADER}\n{ROW.replace('x,s,n', 'x,,n')}\n", ":2:5", "an empty field is no value of `cap-surface`"),
        (f"{HEADER}\n{ROW}\nm{ROW[1:]}\n", ":3:1", "`m` is no value of `class`, which are e, p"),
        (f"{HEADER}\n{ROW[:-1]}?\n", ":2:45", "`?` is no value of `habitat`"),
        (f"{HEADER}\n{ROW[:-1]}", ":2:45", "an empty field is no value of `habitat`"),
        (f"{HEADER}\n{ROW}\np,x,s\N{LATIN SMALL LETTER N WITH TILDE}", ":3:6", "byte 0xc3 is no letter"),
        (f"{HEADER}\n{ROW}\n".encode("utf-16"), ":1:1", "byte 0xff is no letter"),
        (f"{HEADER}\n{ROW}\n".encode("utf-8-sig"), ":1:1", "byte 0xef is no letter"),
    ],
)  # fmt: skip
def test_damage_is_found_where_it_is(tmp_path, content, place, text):
    error = error_of(tmp_path, content)

    assert error.finding.code == "F001"
    assert f"mushrooms.csv{place}" in str(error)
    assert text in str(error)


def test_a_file_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(PortingError) as caught:
        read_mushrooms(tmp_path / "none.csv")

    assert caught.value.finding.code == "F002"


def test_ends_of_lines_of_other_systems_are_read(tmp_path, made_file):
    (tmp_path / "other.csv").write_bytes(made_file.read_bytes().replace(b"\n", b"\r\n"))

    assert torch.equal(read_mushrooms(tmp_path / "other.csv")[0], read_mushrooms(made_file)[0])


@given(data=st.data())
def test_a_file_that_is_cut_off_is_damaged_unless_whole_rows_are_gone(tmp_path_factory, made_file, data):
    content = made_file.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    path = tmp_path_factory.mktemp("cut") / "mushrooms.csv"
    path.write_bytes(content[:length])

    are_rows_whole = content[length:][:1] in (b"\n", b"") or content[:length].endswith(b"\n")
    num_rows = len(content[:length].split()) - 1
    assert num_rows_or_code(path) == (num_rows if are_rows_whole and num_rows > 0 else "F001")


@given(data=st.data())
@example(data=None)
def test_a_byte_that_is_flipped_is_found_or_gives_another_letter_of_its_column(tmp_path_factory, made_file, data):
    content = bytearray(made_file.read_bytes())
    index = data.draw(st.integers(0, len(content) - 1)) if data else 0
    content[index] ^= data.draw(st.integers(1, 255)) if data else 1
    path = tmp_path_factory.mktemp("flipped") / "mushrooms.csv"
    path.write_bytes(content)

    assert num_rows_or_code(path) in ("F001", 20)
