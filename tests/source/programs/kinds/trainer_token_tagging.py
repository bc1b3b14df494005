"""Named entities with the Trainer of transformers: aligned labels, a collator with dynamic padding."""
from dataclasses import dataclass, field
from typing import Optional

import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    EarlyStoppingCallback,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="bert-base-cased")
    max_length: int = field(default=128)
    label_all_tokens: bool = field(default=False)
    pad_to_max_length: bool = field(default=False, metadata={"help": "Whether to pad all samples to max_length."})


@dataclass
class DataArguments:
    dataset_name: str = field(default="conll2003")
    max_train_samples: Optional[int] = field(default=None)


def main():
    model_args, data_args = HfArgumentParser((ModelArguments, DataArguments)).parse_args_into_dataclasses()
    set_seed(42)
    raw = load_dataset(data_args.dataset_name)
    labels = raw["train"].features["ner_tags"].feature.names
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, use_fast=True)
    model = AutoModelForTokenClassification.from_pretrained(
        model_args.model_name_or_path, num_labels=len(labels), id2label=dict(enumerate(labels))
    )
    padding = "max_length" if model_args.pad_to_max_length else False

    def tokenize_and_align(examples):
        tokens = tokenizer(
            examples["tokens"], truncation=True, max_length=model_args.max_length, padding=padding, is_split_into_words=True
        )
        aligned = []
        for i, tags in enumerate(examples["ner_tags"]):
            previous, row = None, []
            for word in tokens.word_ids(batch_index=i):
                if word is None:
                    row.append(-100)
                elif word != previous or model_args.label_all_tokens:
                    row.append(tags[word])
                else:
                    row.append(-100)
                previous = word
            aligned.append(row)
        tokens["labels"] = aligned
        return tokens

    tokenized = raw.map(tokenize_and_align, batched=True, remove_columns=raw["train"].column_names)
    train_set = tokenized["train"]
    if data_args.max_train_samples is not None:
        train_set = train_set.select(range(data_args.max_train_samples))
    metric = evaluate.load("seqeval")

    def compute_metrics(p):
        predictions = np.argmax(p.predictions, axis=2)
        true = [[labels[l] for l in row if l != -100] for row in p.label_ids]
        pred = [[labels[q] for q, l in zip(a, b) if l != -100] for a, b in zip(predictions, p.label_ids)]
        results = metric.compute(predictions=pred, references=true)
        return {"f1": results["overall_f1"], "accuracy": results["overall_accuracy"]}

    training_args = TrainingArguments(
        output_dir="ner",
        evaluation_strategy="epoch",
        save_strategy="epoch",
        learning_rate=3e-5,
        per_device_train_batch_size=16,
        num_train_epochs=3,
        weight_decay=0.01,
        fp16=True,  # finds: P013
        optim="adafactor",  # finds: O001
        load_best_model_at_end=True,
        metric_for_best_model="f1",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=tokenized["validation"],
        tokenizer=tokenizer,
        data_collator=DataCollatorForTokenClassification(tokenizer),  # finds: B018
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
