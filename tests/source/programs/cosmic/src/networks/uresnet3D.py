import torch
import torch.nn as nn


class UResNet3D(nn.Module):
    def __init__(self, params):
        nn.Module.__init__(self)
        self.initial_convolution = nn.Conv3d(1, params.n_initial_filters, kernel_size=(1, 5, 5), padding=(0, 2, 2))
        self.bottleneck = nn.Conv3d(params.n_initial_filters, 3, kernel_size=1)

    def forward(self, input_tensor):
        x = input_tensor.view(-1, 1, 3, 640, 1024)
        x = self.bottleneck(self.initial_convolution(x))
        return [t.squeeze(2) for t in torch.chunk(x, chunks=3, dim=2)]
