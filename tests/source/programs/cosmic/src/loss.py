import torch


class LossCalculator(torch.nn.Module):
    def __init__(self, balance_type):
        torch.nn.Module.__init__(self)
        self.balance_type = balance_type
        self._criterion = torch.nn.CrossEntropyLoss(reduction="none")

    def forward(self, labels_image, logits_image):
        losses = []
        for plane, label in zip(logits_image, labels_image):
            plane_loss = self._criterion(plane, label)
            weight = (1 - torch.exp(-plane_loss.detach())) ** 2
            losses.append(torch.sum(weight * plane_loss) / torch.sum(weight))
        return sum(losses)
