"""Text files are read or refused with line and column, made text has the entropy that is claimed, windows go on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from porting.data.text import (
    END_OF_SENTENCE,
    UNKNOWN,
    MarkovSource,
    Vocabulary,
    context_windows,
    continued_windows,
    make_markov_source,
    make_topic_text,
    read_lines,
    read_words,
)
from porting.diagnostics import PortingError


@pytest.fixture
def text_file(tmp_path):
    def write(data):
        path = tmp_path / "text.txt"
        path.write_bytes(data)
        return path

    return write


# -- files


def test_each_line_of_words_ends_a_sentence(text_file):
    path = text_file(b" aer banknote <unk> \n\n pierre N years\n")

    assert read_words(path) == ["aer", "banknote", UNKNOWN, END_OF_SENTENCE, "pierre", "N", "years", END_OF_SENTENCE]


def test_lines_of_windows_are_lines(text_file):
    assert read_lines(text_file(b"one\r\ntwo\r\n")) == ["one", "two"]


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_word(text_file):
    assert read_words(text_file(b"\xef\xbb\xbfthe cat\n")) == ["the", "cat", END_OF_SENTENCE]


def test_a_file_without_a_last_line_end_is_read(text_file):
    assert read_lines(text_file("één\ntwee".encode())) == ["één", "twee"]


@pytest.mark.parametrize(
    ("data", "line", "column", "fault"),
    [
        (b"fine\nbr\xffoken\n", 2, 3, "byte 0xff at position 7 is no UTF-8"),
        ("fine\ncut off: é".encode()[:-1], 2, 10, "is no UTF-8"),
        (b"fine\nzer\x00\x00\n", 2, 4, "the control character '\\x00'"),
        (b"", 1, None, "the file has no words"),
        (b" \n\n", 1, None, "the file has no words"),
    ],
)
def test_a_damaged_text_is_an_error_with_line_and_column(text_file, data, line, column, fault):
    path = text_file(data)

    with pytest.raises(PortingError) as info:
        read_words(path)

    assert info.value.code == "F001"
    assert fault in str(info.value)
    assert (info.value.finding.place.line, info.value.finding.place.column) == (line, column)


def test_bytes_that_no_text_has_are_found_wherever_they_are(text_file):
    data = "das größte Wort\nzwei Sätze\n".encode()

    for position in range(len(data)):
        for byte in (0x00, 0xFF, 0x1B):
            damaged = data[:position] + bytes([byte]) + data[position + 1 :]
            with pytest.raises(PortingError, match="F001"):
                read_words(text_file(damaged))


def test_a_text_that_is_cut_off_within_a_character_is_damaged(text_file):
    data = "das größte Wort\nzwei Sätze\n".encode()
    half = data.index("ß".encode()) + 1

    with pytest.raises(PortingError, match="F001"):
        read_words(text_file(data[:half]))


def test_a_missing_text_is_an_error(tmp_path):
    with pytest.raises(PortingError, match="F002"):
        read_words(tmp_path / "nothing.txt")


def test_rare_words_become_unknown():
    vocabulary = Vocabulary.of("a a a b b c".split(), reserved=(UNKNOWN,), max_size=3)

    assert vocabulary.words == (UNKNOWN, "a", "b")
    assert vocabulary.numbers(["a", "c", "b"]).tolist() == [1, 0, 2]


def test_words_that_are_reserved_must_fit():
    assert Vocabulary.of("a b".split(), reserved=("<pad>", "<end>"), max_size=2).words == ("<pad>", "<end>")
    with pytest.raises(ValueError, match="3 words are reserved, more than a `max_size` of 2"):
        Vocabulary.of("a b".split(), reserved=("<pad>", "<end>", UNKNOWN), max_size=2)


def test_an_unknown_word_without_a_number_for_it_is_an_error():
    with pytest.raises(KeyError, match="'c' is not in the vocabulary"):
        Vocabulary(("a", "b")).numbers(["c"])


def test_a_vocabulary_has_each_word_once():
    with pytest.raises(ValueError, match="each word once"):
        Vocabulary(("a", "a"))


# -- generated text


def test_the_entropy_of_a_chain_of_two_states_is_that_of_the_formula():
    leave_0, leave_1 = 0.1, 0.4
    source = MarkovSource(np.array([[1 - leave_0, leave_0], [leave_1, 1 - leave_1]]))

    def binary(p):
        return -p * math.log(p) - (1 - p) * math.log(1 - p)

    share_0 = leave_1 / (leave_0 + leave_1)
    assert source.entropy == pytest.approx(share_0 * binary(leave_0) + (1 - share_0) * binary(leave_1))


def test_the_entropy_of_a_chain_that_goes_round_in_turns_is_that_of_its_middle():
    source = MarkovSource(np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))

    assert source.entropy == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_entropy_is_the_mean_surprise_of_a_long_text(order):
    source = make_markov_source(6, order=order, seed=order)

    assert source.loss(source.sample(100_000, seed=1)) == pytest.approx(source.entropy, rel=0.02)


@pytest.mark.parametrize("order", [1, 2])
def test_the_sampled_words_follow_the_transitions(order):
    source = make_markov_source(4, order=order, seed=0)
    text = source.sample(100_000, seed=3).numpy()

    counts = np.zeros(source.transitions.shape)
    np.add.at(counts, tuple(text[start : len(text) - order + start] for start in range(order + 1)), 1)

    shares = counts / counts.sum(axis=-1, keepdims=True)
    often = counts.sum(axis=-1) > 1000
    assert often.sum() >= 3
    np.testing.assert_allclose(shares[often], source.transitions[often], atol=0.05)


def test_equal_seeds_give_equal_texts_and_the_global_streams_are_left_alone():
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()

    texts = [make_markov_source(5, seed=1).sample(50, seed=2) for _ in range(2)]
    topics = [make_topic_text(50, seed=2) for _ in range(2)]

    assert torch.equal(*texts)
    assert torch.equal(topics[0].tokens, topics[1].tokens)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_more_likely_words_than_words_are_refused():
    with pytest.raises(ValueError, match="4 likely words of 3"):
        make_markov_source(3, num_likely=4, seed=0)


def test_words_of_a_topic_keep_company():
    text = make_topic_text(20_000, seed=0)
    topics = text.topics[text.tokens]

    assert (topics == -1).float().mean().item() == pytest.approx(0.3, abs=0.02)
    known = topics[topics >= 0]
    assert (known[1:] == known[:-1]).float().mean() > 0.9
    assert torch.bincount(known).min() > 0.05 * len(known)


@pytest.mark.parametrize("num_tokens", [0, 1, 2])
def test_a_text_that_is_no_longer_than_a_context_has_no_loss(num_tokens):
    source = make_markov_source(5, order=2, seed=0)

    with pytest.raises(ValueError, match=f"{num_tokens} tokens have none behind a context of 2"):
        source.loss(torch.zeros(num_tokens, dtype=torch.int64))
    assert source.loss(torch.zeros(3, dtype=torch.int64)) == pytest.approx(-math.log(source.transitions[0, 0, 0]))


# -- windows


def test_rows_of_following_windows_go_on_and_labels_are_one_ahead():
    text = torch.arange(100)

    tokens, labels = continued_windows(text, batch_size=4, length=6)

    batches = tokens.view(-1, 4, 6)
    assert torch.equal(labels, tokens + 1)
    assert torch.equal(batches[1:, :, 0], batches[:-1, :, -1] + 1)
    assert len(batches) == 99 // 24


def test_a_text_that_is_too_short_for_a_window_is_refused():
    with pytest.raises(ValueError, match="24 tokens do not fill 4 windows of 6"):
        continued_windows(torch.arange(24), batch_size=4, length=6)
    with pytest.raises(ValueError, match="4 tokens have no word with 2 others"):
        context_windows(torch.arange(4), window=2)


def test_contexts_are_the_words_around_the_centre():
    contexts, centres = context_windows(torch.arange(10, 20), window=2)

    assert contexts[0].tolist() == [10, 11, 13, 14]
    assert centres.tolist() == list(range(12, 18))
