"""A Trainer with a loss of its own: weighted classes, focal terms and distillation from a teacher."""
import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

MAX_LENGTH = 256


class PooledClassifier(nn.Module):
    def __init__(self, name, num_labels, class_weights):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(self.backbone.config.hidden_size, num_labels)
        self.class_weights = class_weights
        self.register_buffer("prior", torch.full((num_labels,), 1.0 / num_labels))

    def forward(self, input_ids, attention_mask, labels=None):
        hidden = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        lengths = attention_mask.sum(1)
        if lengths.min() == 0:  # finds: C001
            raise ValueError("empty sample")
        longest = int(lengths.max())  # finds: C001
        mask = attention_mask[:, :longest].unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden[:, :longest] * mask).sum(1) / mask.sum(1).clamp(min=1)
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits, labels, weight=self.class_weights.to(logits.device))
        return {"loss": loss, "logits": logits}


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher=None, temperature=2.0, alpha=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.eval()
        self.temperature = temperature
        self.alpha = alpha

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        with torch.no_grad():
            teacher_logits = self.teacher(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        soft = F.kl_div(
            F.log_softmax(outputs["logits"] / self.temperature, dim=-1),
            F.softmax(teacher_logits / self.temperature, dim=-1),
            reduction="batchmean",
        )
        hard = self._focal(outputs["logits"], inputs["labels"])
        loss = self.alpha * hard + (1 - self.alpha) * self.temperature**2 * soft
        return (loss, outputs) if return_outputs else loss

    def _focal(self, logits, labels, gamma=2.0):
        ce = F.cross_entropy(logits, labels, reduction="none")
        hard = ce[ce > 0.01]  # finds: C002
        if hard.numel() == 0:
            return ce.mean()
        return ((1 - torch.exp(-hard)) ** gamma * hard).mean()


class Anneal(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer

    def on_epoch_end(self, args, state, control, **kwargs):
        self.trainer.alpha = min(1.0, self.trainer.alpha + 0.1)


def main():
    tokenizer = AutoTokenizer.from_pretrained("distilbert-base-uncased")
    data = load_dataset("emotion").map(
        lambda b: tokenizer(b["text"], truncation=True, max_length=MAX_LENGTH, padding="max_length"), batched=True
    )
    data = data.rename_column("label", "labels")
    teacher = AutoModelForSequenceClassification.from_pretrained("roberta-large", num_labels=6)
    if torch.cuda.is_available():
        teacher = teacher.cuda()
    weights = torch.tensor([1.0, 1.0, 3.0, 2.0, 2.0, 5.0])
    student = PooledClassifier("distilbert-base-uncased", 6, weights)
    args = TrainingArguments(
        output_dir="student",
        per_device_train_batch_size=32,
        gradient_accumulation_steps=2,
        learning_rate=5e-5,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=5,
        dataloader_drop_last=True,
        dataloader_num_workers=4,
        report_to="none",
    )
    trainer = DistillationTrainer(
        model=student,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=default_data_collator,
        teacher=teacher,
    )
    trainer.add_callback(Anneal(trainer))
    trainer.train()


if __name__ == "__main__":
    main()
