import poptorch
import torch
import transformers
from torch.utils.data import TensorDataset


class PipelinedBert(transformers.BertForSequenceClassification):
    def parallelize(self, layers_per_ipu):
        self.bert.embeddings = poptorch.BeginBlock(self.bert.embeddings, "Embedding", ipu_id=0)
        for index, layer in enumerate(self.bert.encoder.layer):
            ipu = min(index // layers_per_ipu, 3)
            self.bert.encoder.layer[index] = poptorch.BeginBlock(layer, f"Encoder{index}", ipu_id=ipu)
            print(f"layer {index} --> IPU {ipu}")
        self.classifier = poptorch.BeginBlock(self.classifier, "Classifier", ipu_id=3)
        return self

    def forward(self, input_ids, attention_mask, token_type_ids, labels=None):
        output = super().forward(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, labels=labels
        )
        if self.training:
            final_loss = poptorch.identity_loss(output.loss, reduction="none")
            return final_loss, output.logits
        return output.logits


tokenizer = transformers.BertTokenizer.from_pretrained("bert-base-uncased")
texts, labels = ["good", "bad"] * 64, [1, 0] * 64
encoded = tokenizer(texts, padding="max_length", max_length=128, truncation=True, return_tensors="pt")
dataset = TensorDataset(
    encoded["input_ids"], encoded["attention_mask"], encoded["token_type_ids"], torch.tensor(labels)
)
config = transformers.BertConfig.from_pretrained("bert-base-uncased", num_labels=2)
model = PipelinedBert.from_pretrained("bert-base-uncased", config=config).parallelize(3).half().train()
options = poptorch.Options()
options.Training.gradientAccumulation(16)
options.Precision.setPartialsType(torch.float16)
options.enableExecutableCaching("cache")
loader = poptorch.DataLoader(options, dataset, batch_size=2, shuffle=True, drop_last=True)
optimizer = poptorch.optim.AdamW(
    model.parameters(), lr=2e-5, loss_scaling=64.0, first_order_momentum_accum_type=torch.float16
)
scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 10, 100)
training = poptorch.trainingModel(model, options, optimizer)
for step, batch in enumerate(loader):
    loss, logits = training(*batch)
    scheduler.step()
    training.setOptimizer(optimizer)
    total = loss.mean().item() / options.Training.gradient_accumulation
    print(f"{step}: {total} {scheduler.get_last_lr()[0]}")
model.save_pretrained("out")
