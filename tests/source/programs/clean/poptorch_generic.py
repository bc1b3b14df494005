import poptorch
import torch


class ExampleModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(10, 10)
        self.loss = torch.nn.MSELoss()

    def forward(self, x, labels=None):
        out = self.fc(x)
        if self.training:
            return out, self.loss(out, labels)
        return out


class ExampleDataset(torch.utils.data.Dataset):
    def __init__(self, shape, length):
        super().__init__()
        self._shape = shape
        self._length = length

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        return torch.randn(self._shape), torch.ones(self._shape)


model = ExampleModel()
opts = poptorch.Options()
opts.deviceIterations(10)
training_data = poptorch.DataLoader(opts, dataset=ExampleDataset([10], 1000), batch_size=4, shuffle=True)
poptorch_model = poptorch.trainingModel(model, options=opts, optimizer=torch.optim.AdamW(model.parameters(), lr=0.001))
for x, labels in training_data:
    out, loss = poptorch_model(x, labels)
    print("Loss:", loss)
model.eval()
poptorch_inf = poptorch.inferenceModel(model, options=opts)
for x, _labels in training_data:
    torch.testing.assert_close(poptorch_inf(x).shape, x.shape)
    break
