from __future__ import print_function

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 51)
        self.lstm2 = nn.LSTMCell(51, 51)
        self.linear = nn.Linear(51, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 51, dtype=torch.double)  # finds: C011, C044
        c_t = torch.zeros(input.size(0), 51, dtype=torch.double)  # finds: C011, C044
        h_t2 = torch.zeros(input.size(0), 51, dtype=torch.double)  # finds: C011, C044
        c_t2 = torch.zeros(input.size(0), 51, dtype=torch.double)  # finds: C011, C044

        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=15)
    opt = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    data = torch.load("traindata.pt")
    input = torch.from_numpy(data[3:, :-1])
    target = torch.from_numpy(data[3:, 1:])
    test_input = torch.from_numpy(data[:3, :-1])
    test_target = torch.from_numpy(data[:3, 1:])
    seq = Sequence()
    seq.double()  # finds: C044
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8)  # finds: O001
    for i in range(opt.steps):
        print("STEP: ", i)

        def closure():
            optimizer.zero_grad()  # finds: O008
            out = seq(input)
            loss = criterion(out, target)  # finds: L001
            print("loss:", loss.item())  # finds: D020
            loss.backward()  # finds: L010
            return loss

        optimizer.step(closure)  # finds: O004
        with torch.no_grad():
            future = 1000
            pred = seq(test_input, future=future)  # finds: D014
            loss = criterion(pred[:, :-future], test_target)
            print("test loss:", loss.item())  # finds: D020
            y = pred.detach().numpy()  # finds: D020
