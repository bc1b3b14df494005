"""A loss becomes the function that it is, or one that is made of the loop's statements."""

from __future__ import annotations

from tests.convert.training_programs import HEAD, convert_idiomatic, read_reason, write_loop

STEP = ("optimizer.zero_grad()", "loss.backward()", "optimizer.step()")


def read_port(text):
    return text[text.index('if "PORT_DEVICE" in os.environ:\n') : text.index("for step in")]


def test_a_criterion_with_its_arguments_exchanged_is_a_lambda(tmp_path):
    head = HEAD.replace("nn.CrossEntropyLoss()", "lambda label, output: F.cross_entropy(output, label)")
    text = convert_idiomatic(tmp_path, write_loop("output = model(x)", "loss = criterion(y, output)", *STEP, head=head))
    assert "lambda output, y: criterion(y, output)" in read_port(text)


def test_parts_of_a_batch_are_labels_by_their_last_word(tmp_path):
    text = convert_idiomatic(
        tmp_path,
        write_loop(
            'batch = {"image": x, "label": y}',
            'output = model(batch["image"])',
            'loss = F.cross_entropy(output, batch["label"].view(-1))',
            *STEP,
        ),
    )
    assert "lambda output, label: F.cross_entropy(output, label.view(-1))" in read_port(text)
    assert "output, loss = model(batch[\"image\"], batch['label'])" in text


def test_several_labels_are_a_tuple_with_their_positions(tmp_path):
    text = convert_idiomatic(
        tmp_path,
        write_loop("w = torch.rand(8)", "loss = (w * F.cross_entropy(model(x), y, reduction='none')).mean()", *STEP),
    )
    assert "    w, y = labels\n" in read_port(text)
    assert "label=(1, 2)" in read_port(text)
    assert "output, loss = model(x, w, y)" in text


def test_statements_keep_their_order_and_moves_to_a_gpu_are_left_out(tmp_path):
    text = convert_idiomatic(
        tmp_path,
        write_loop("scores = model(x)", "scores = scores * 2", "loss = criterion(scores, y.cuda())", *STEP),
    )
    assert """\
    def compute_loss(scores, y):
        scores = scores * 2
        return criterion(scores, y)

""" in read_port(text)


def test_what_is_logged_beside_the_loss_is_computed_behind_the_call(tmp_path):
    text = convert_idiomatic(
        tmp_path,
        write_loop(
            "output = model(x)",
            "penalty = output.abs().mean()",
            "loss = criterion(output, y) + penalty",
            *STEP,
            "print(penalty)",
        ),
    )
    assert "        output, loss = model(x, y)\n        penalty = output.abs().mean()\n    else:" in text


def test_a_loss_of_the_output_alone_is_left(tmp_path):
    text = write_loop("loss = model(x).square().mean()", *STEP)
    assert read_reason(tmp_path, text) == "the loss reads nothing of the batch, and a port wants a label"
