"""What the vendor's documentation does, one after the other."""
import poptorch
import torch
from torch.utils.data import DataLoader, TensorDataset


class ExampleModelWithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(10, 10)
        self.loss = torch.nn.MSELoss()
        self.register_buffer("counter", torch.zeros(1))

    def forward(self, input, target=None):
        self.counter += 1
        out = self.fc(input) + torch.ones(10)
        if self.training:
            return out, self.loss(out, target)
        return out


torch.manual_seed(0)
model = ExampleModelWithLoss()
poptorch_model = poptorch.trainingModel(model)
input = torch.randn(10)
target = torch.randn(10)
for _ in range(100):
    _, loss = poptorch_model(input=input, target=target)
print(f"Final loss: {loss}")
native_out = model.eval()(input)
model.train()
opt = poptorch.optim.SGD(model.parameters(), lr=0.01, loss_scaling=1.0, use_combined_accum=False)
poptorch_model = poptorch.trainingModel(model, poptorch.Options(), opt)
poptorch_model(input, target)
poptorch_model.setOptimizer(poptorch.optim.SGD(model.parameters(), lr=0.02, loss_scaling=1.0, use_combined_accum=False))
poptorch_model(input, target)

model_batch_size = 2
opts = poptorch.Options()
opts.deviceIterations(10)
opts.replicationFactor(2)
opts.Training.gradientAccumulation(4)
training_data = DataLoader(
    dataset=TensorDataset(torch.randn(10000, 10), torch.randn(10000, 10)),
    batch_size=model_batch_size * opts.device_iterations * opts.replication_factor,
    shuffle=True,
    drop_last=True,
)
poptorch_model = poptorch.trainingModel(model, options=opts)
for batch_number, (data, labels) in enumerate(training_data):
    output, loss = poptorch_model(data, labels)
    print(f"{labels[-1]}, {output}, {loss}")

inference_model = poptorch.inferenceModel(model.eval())
with torch.no_grad():
    out = inference_model(input)
    print(out)
poptorch_model.save("my_model.poptorch", save_rng_state=True)
torch.save(model.state_dict(), "weights.pt")
