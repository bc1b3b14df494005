"""transformers' Trainer on a device: its own arguments, evaluation, checkpoints and resumption, losses of the CPU."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch
import transformers
from torch import nn

from porting.diagnostics import BatchError, OptionError, PortingError
from porting.integrations import transformers as on_device
from porting.integrations.transformers import FixedLength, Seq2SeqTrainer, Trainer

# what torch's loaders and the library say of a machine without a GPU, and of models without a tokenizer
pytestmark = pytest.mark.filterwarnings("ignore::Warning:(torch|transformers|accelerate).*")


@pytest.fixture(autouse=True)
def _quiet():
    transformers.utils.logging.set_verbosity_error()


SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GPT2 = {
    "vocab_size": 50,
    "n_positions": 32,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}


def make_bert():
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, num_labels=3))


def make_gpt():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **NO_DROPOUT))


def make_t5():
    config = transformers.T5Config(**T5, decoder_start_token_id=0, pad_token_id=0)
    return transformers.T5ForConditionalGeneration(config)


def make_samples(kind, count=54, tokens=12):
    generator = torch.Generator().manual_seed(1)
    samples = []
    for _ in range(count):
        ids = torch.randint(1, 50, (tokens,), generator=generator)
        labels = int(torch.randint(3, (), generator=generator)) if kind is make_bert else ids
        samples.append({"input_ids": ids, "labels": labels})
    return samples


def make_trainer(cls, make_model, folder, *, trainer_settings=(), samples=None, **settings):
    torch.manual_seed(0)
    arguments = transformers.Seq2SeqTrainingArguments if "Seq2Seq" in cls.__name__ else transformers.TrainingArguments
    samples = samples or make_samples(make_model)
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_train_epochs": 3,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    own = {"device": "sim"} if hasattr(cls, "device_calls") else {}
    return cls(
        model=make_model(),
        args=arguments(**{**defaults, **settings}),
        train_dataset=samples,
        eval_dataset=samples[:10],
        **own,
        **dict(trainer_settings),
    )


def read_losses(trainer, name="loss"):
    return [line[name] for line in trainer.state.log_history if name in line]


def make_gpt_with_dropout():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))


MODELS = {"BERT": make_bert, "GPT-2": make_gpt, "GPT-2 with Dropout": make_gpt_with_dropout}


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings(r"ignore:warning\[C021\]")
@pytest.mark.parametrize("make_model", MODELS.values(), ids=MODELS)
def test_twenty_steps_with_ragged_epochs_and_evaluations_are_those_on_the_cpu(make_model, tmp_path):
    trainer = make_trainer(Trainer, make_model, tmp_path, eval_strategy="epoch")
    plain = make_trainer(transformers.Trainer, make_model, tmp_path, eval_strategy="epoch")

    for each in (trainer, plain):
        torch.manual_seed(1)
        each.train()

    assert len(read_losses(plain)) == 21
    assert read_losses(trainer) == read_losses(plain)
    assert read_losses(trainer, "eval_loss") == read_losses(plain, "eval_loss")
    assert trainer.device_calls.list_device_modules() == [type(trainer.model).__name__]


ARGUMENTS = {
    "accumulated": {"gradient_accumulation_steps": 3},
    "clipped": {"max_grad_norm": 0.01},
    "scheduled": {"lr_scheduler_type": "cosine", "warmup_steps": 5},
    "Adafactor": {"optim": "adafactor"},
    "smoothed": {"label_smoothing_factor": 0.1},
    "weight decay, dropped last": {"weight_decay": 0.1, "dataloader_drop_last": True},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("settings", ARGUMENTS.values(), ids=ARGUMENTS)
def test_training_arguments_work_as_on_the_cpu(settings, tmp_path):
    trainer = make_trainer(Trainer, make_bert, tmp_path, num_train_epochs=1, **settings)
    plain = make_trainer(transformers.Trainer, make_bert, tmp_path, num_train_epochs=1, **settings)

    trainer.train()
    plain.train()

    assert read_losses(trainer) == read_losses(plain)


@pytest.mark.slow
def test_a_training_that_is_resumed_from_a_checkpoint_goes_on_as_if_it_had_not_ended(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 9, "max_steps": 12}
    whole = make_trainer(Trainer, make_bert, tmp_path, **settings)
    whole.train()

    resumed = make_trainer(Trainer, make_bert, tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-9"))

    assert read_losses(resumed) == read_losses(whole)
    assert torch.equal(resumed.model.classifier.weight, whole.model.classifier.weight)


@pytest.mark.slow
def test_early_stopping_with_the_best_model_is_the_librarys(tmp_path):
    settings = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    callbacks = {"callbacks": [transformers.EarlyStoppingCallback(1, early_stopping_threshold=10.0)]}

    trainer = make_trainer(Trainer, make_bert, tmp_path, trainer_settings=callbacks, **settings)
    trainer.train()

    assert trainer.state.epoch == 2.0
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-14")


def test_metrics_and_predictions_are_those_on_the_cpu(tmp_path):
    metrics = {
        "compute_metrics": lambda found: {"right": float((found.predictions.argmax(1) == found.label_ids).mean())}
    }
    trainer = make_trainer(Trainer, make_bert, tmp_path, trainer_settings=metrics)
    plain = make_trainer(transformers.Trainer, make_bert, tmp_path, trainer_settings=metrics)

    measured, expected = trainer.predict(trainer.eval_dataset), plain.predict(plain.eval_dataset)

    assert (measured.predictions == expected.predictions).all()
    assert measured.metrics["test_right"] == expected.metrics["test_right"]


def test_a_trainer_with_a_loss_of_its_own_runs_it_on_the_host(tmp_path):
    class Weighted(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **_count):
            labels = inputs.pop("labels")
            outputs = model(**inputs)
            loss = nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 2.0, 3.0]))
            return (loss, outputs) if return_outputs else loss

    plain_class = type("Weighted", (transformers.Trainer,), {"compute_loss": Weighted.compute_loss})
    trainer, plain = make_trainer(Weighted, make_bert, tmp_path), make_trainer(plain_class, make_bert, tmp_path)

    trainer.train()
    plain.train()

    assert read_losses(trainer) == read_losses(plain)


@pytest.mark.slow
def test_a_sequence_to_sequence_trainer_generates_on_the_host(tmp_path):
    settings = {"predict_with_generate": True, "generation_max_length": 6}
    trainer = make_trainer(Seq2SeqTrainer, make_t5, tmp_path, num_train_epochs=1, **settings)
    plain = make_trainer(transformers.Seq2SeqTrainer, make_t5, tmp_path, num_train_epochs=1, **settings)

    trainer.train()
    plain.train()

    # T5 adds up three gradients of its one embedding, here in another order
    assert read_losses(trainer) == pytest.approx(read_losses(plain), rel=1e-6)
    predictions = trainer.predict(trainer.eval_dataset).predictions
    assert (predictions == plain.predict(plain.eval_dataset).predictions).all()


@pytest.mark.slow
def test_an_interrupt_leaves_everything_usable(tmp_path):
    class Interrupts(transformers.TrainerCallback):
        def on_step_end(self, _args, state, _control, **_rest):
            if state.global_step == 7:
                raise KeyboardInterrupt

    trainer = make_trainer(Trainer, make_bert, tmp_path, trainer_settings={"callbacks": [Interrupts()]})

    with pytest.raises(KeyboardInterrupt):
        trainer.train()

    assert not any("forward" in vars(part) for part in trainer.model.modules())
    trainer.remove_callback(Interrupts)
    trainer.train()
    assert read_losses(trainer)[-1] < read_losses(trainer)[0]


@pytest.mark.slow
def test_the_model_is_saved_and_copied_as_the_librarys_own(tmp_path):
    trainer = make_trainer(Trainer, make_bert, tmp_path, max_steps=2)
    trainer.train()

    trainer.save_model(str(tmp_path / "saved"))

    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.classifier.weight, trainer.model.classifier.weight)
    assert torch.equal(pickle.loads(pickle.dumps(trainer.model)).classifier.weight, trainer.model.classifier.weight)


@pytest.mark.slow
def test_a_model_is_made_anew_for_each_training_by_model_init(tmp_path):
    trainer = make_trainer(
        Trainer,
        lambda: None,
        tmp_path,
        samples=make_samples(make_bert),
        max_steps=2,
        trainer_settings={"model_init": make_bert},
    )

    trainer.train()
    model, losses = trainer.model, read_losses(trainer)
    trainer.train()

    assert trainer.model is not model
    assert read_losses(trainer) == losses
    assert trainer.device_calls.model is trainer.model


REFUSED = {
    "bf16": {"bf16": True},
    "torch_compile": {"torch_compile": True},
    "gradient_checkpointing": {"gradient_checkpointing": True},
    "bf16_full_eval": {"bf16_full_eval": True},
    "neftune_noise_alpha": {"neftune_noise_alpha": 5.0},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_belongs_to_other_devices_is_refused_by_name(name, tmp_path):
    with pytest.raises(OptionError, match=name) as caught:
        make_trainer(Trainer, make_bert, tmp_path, **REFUSED[name])

    assert caught.value.code == "P002"


@pytest.mark.slow
def test_padded_batches_need_one_executable_and_lose_nothing(tmp_path):
    tokens = [5, 9, 12, 7, 5, 9, 12, 7] * 4
    samples = [{"input_ids": torch.arange(1, n + 1), "labels": torch.arange(1, n + 1)} for n in tokens]

    def pad(values, fill):
        width = max(map(len, values))
        return torch.stack([nn.functional.pad(each, (0, width - len(each)), value=fill) for each in values])

    def collate(features):
        ids, labels = [each["input_ids"] for each in features], [each["labels"] for each in features]
        return {
            "input_ids": pad(ids, 0),
            "labels": pad(labels, -100),
            "attention_mask": pad([torch.ones_like(i) for i in ids], 0),
        }

    trainer, plain = (
        make_trainer(
            cls,
            make_gpt,
            tmp_path,
            samples=samples,
            per_device_train_batch_size=2,
            num_train_epochs=1,
            trainer_settings={"data_collator": collator},
        )
        for cls, collator in ((Trainer, FixedLength(collate, length=16)), (transformers.Trainer, collate))
    )

    trainer.train()
    plain.train()

    assert len(trainer.device_calls.reports()) == 1
    assert read_losses(trainer) == pytest.approx(read_losses(plain), rel=1e-4)


def test_a_sequence_that_is_too_long_is_named():
    collate = FixedLength(lambda rows: {"input_ids": torch.tensor(rows)}, length=3)

    with pytest.raises(BatchError, match="4 tokens, more than the length of 3") as caught:
        collate([[1, 2, 3, 4]])

    assert caught.value.code == "B001"


def test_without_accelerate_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.delitem(sys.modules, on_device.__name__)

    with pytest.raises(PortingError, match=r"ipu-porting\[transformers\]") as caught:
        __import__(on_device.__name__)

    assert caught.value.code == "X001"
