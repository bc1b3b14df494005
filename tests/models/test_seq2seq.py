"""The translator does what a literal loop over words does, whatever the padding, and BLEU is what its paper says."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from porting import to_ipu
from porting.models.seq2seq import VARIANTS, bleu, build, cut_at_end, example_batch, loss


def cell_by_formulas(layer, x, hidden, cell):
    """Compute one place of one sentence: vectors in, vectors out."""
    gates = layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ hidden + layer.bias_hh_l0
    entry, forget, candidate, exit_gate = gates.chunk(4)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(candidate)
    return torch.sigmoid(exit_gate) * torch.tanh(cell), cell


def run_by_formulas(layers, x, states):
    """Run all layers for one word of one sentence."""
    after = []
    for layer, (hidden, cell) in zip(layers, states):
        x, cell = cell_by_formulas(layer, x, hidden, cell)
        after.append((x, cell))
    return x, after


def translate_by_formulas(model, source, targets):
    """Score what follows each of `targets`, for one sentence, word by word; without targets, write."""
    zeros = torch.zeros(model.config.width)
    states = [(zeros, zeros)] * model.config.num_layers
    for word in source:
        if word != model.config.padding:
            _x, states = run_by_formulas(model.encoder, model.source_embedding.weight[word], states)
    scores, written, word = [], [], model.config.end
    for place in range(model.config.max_length if targets is None else len(targets)):
        word = word if targets is None else targets[place]
        x, states = run_by_formulas(model.decoder, model.target_embedding.weight[word], states)
        scores.append(model.output.weight @ x + model.output.bias)
        word = int(scores[-1].argmax())
        written.append(word)
    return torch.stack(scores), written


@pytest.fixture
def batch():
    return example_batch(VARIANTS["small"], batch_size=5, seed=3)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build("small", width=24, num_layers=3, dropout=0.0)


def test_scores_are_those_of_a_literal_loop(model, batch):
    sources, targets, _labels = batch

    logits = model(sources, targets)

    for row, source, target in zip(logits, sources.tolist(), targets.tolist()):
        torch.testing.assert_close(row, translate_by_formulas(model, source, target)[0], rtol=1e-4, atol=1e-5)


def test_what_is_written_is_what_a_literal_loop_writes(model, batch):
    sources = batch[0]

    written = model(sources)

    assert written.tolist() == [translate_by_formulas(model, source, None)[1] for source in sources.tolist()]


def test_the_encoder_is_torchs_lstm_of_several_layers_where_nothing_is_padded(model):
    sources = torch.randint(2, 16, (4, 8), generator=torch.Generator().manual_seed(0))
    stacked = torch.nn.LSTM(24, 24, num_layers=3, batch_first=True)
    for number, layer in enumerate(model.encoder):
        for name, parameter in layer.named_parameters():
            getattr(stacked, name.replace("l0", f"l{number}")).data.copy_(parameter)

    states = model.encode(sources)

    _outputs, (hidden, cell) = stacked(model.source_embedding(sources))
    torch.testing.assert_close(torch.cat([state[0] for state in states]), hidden)
    torch.testing.assert_close(torch.cat([state[1] for state in states]), cell)


def test_padding_changes_neither_loss_nor_gradients(model, batch):
    sources, targets, labels = batch

    def gradients(*tensors):
        model.zero_grad()
        value = loss(model(tensors[0], tensors[1]), tensors[2])
        value.backward()
        return [value.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    expected = gradients(*batch)
    wider = gradients(*(torch.nn.functional.pad(t, (0, 4), value=v) for t, v in zip(batch, (0, 0, -100))))

    torch.testing.assert_close(wider, expected, rtol=1e-4, atol=1e-6)


def test_a_label_of_padding_counts_in_no_mean(model, batch):
    sources, targets, labels = batch
    logits = model(sources, targets)
    surprise = -logits.log_softmax(dim=2).gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)

    value = loss(logits, labels)

    torch.testing.assert_close(value, surprise[labels != -100].mean())


def test_the_wmt15_model_has_the_sizes_of_the_example():
    config = VARIANTS["wmt15"]

    with torch.device("meta"):
        model = build("wmt15")

    layer = 4 * (1024 * 1024 * 2 + 1024 * 2)
    expected = 2 * 40_000 * 1024 + 6 * layer + 1024 * 40_000 + 40_000
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert (config.num_layers, config.dropout) == (3, 0.1)


def test_the_device_writes_what_the_host_writes(model, batch):
    sources, targets, labels = batch
    ported = to_ipu(model, loss, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    ported(sources, targets, labels)

    written = ported.inference()(sources)

    assert written.tolist() == model.eval()(sources).tolist()


# -- metrics ----------------------------------------------------------------------------------------------------------


def bleu_by_the_paper(candidates, references):
    """Compute corpus BLEU with n-grams up to 4 as equation 2 and 3 of Papineni et al. read."""
    precisions = []
    for n in (1, 2, 3, 4):
        clipped = total = 0
        for candidate, reference in zip(candidates, references):
            grams = Counter(zip(*(candidate[i:] for i in range(n))))
            allowed = Counter(zip(*(reference[i:] for i in range(n))))
            clipped += sum(min(count, allowed[gram]) for gram, count in grams.items())
            total += sum(grams.values())
        precisions.append(clipped / total)
    length, wanted = sum(map(len, candidates)), sum(map(len, references))
    penalty = 1.0 if length > wanted else math.exp(1 - wanted / length)
    return penalty * math.exp(sum(0.25 * math.log(precision) for precision in precisions))


def test_bleu_is_that_of_its_paper():
    candidates = ["the cat sat on the mat today".split(), "a dog runs in the wide green park".split()]
    references = ["the cat sat on a mat today".split(), "a dog runs in the green park now and then".split()]

    assert bleu(candidates, references) == pytest.approx(bleu_by_the_paper(candidates, references))


def test_a_word_that_is_repeated_counts_as_often_as_in_the_reference():
    # the example of the paper's section 2.1: a modified precision of 2/7
    candidate = "the the the the the the the".split()
    reference = "the cat is on the mat now".split()

    assert bleu([candidate], [reference], max_order=1) == pytest.approx(2 / 7)


def test_short_sentences_can_be_perfect():
    assert bleu([[1, 2]], [[1, 2]]) == 1.0


def test_nothing_in_common_and_nothing_written_are_zero():
    assert bleu([[1, 2, 3]], [[4, 5, 6]]) == 0.0
    assert bleu([[]], [[4, 5]]) == 0.0


def test_a_corpus_of_other_length_is_refused():
    with pytest.raises(ValueError, match="1 candidates for 2 references"):
        bleu([[1]], [[1], [2]])


def test_a_sentence_without_an_end_is_kept_whole():
    assert cut_at_end(torch.tensor([[4, 5, 1], [4, 5, 6]]), end=1) == [[4, 5], [4, 5, 6]]
