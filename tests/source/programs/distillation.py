import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torchvision
from torch.utils.data import DataLoader
from torchvision import transforms

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,))])
train_set = torchvision.datasets.CIFAR10("data", train=True, download=True, transform=transform)
train_loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=2, drop_last=True)  # finds: B014

teacher = torchvision.models.resnet50(num_classes=10).to(device)
teacher.load_state_dict(torch.load("teacher.pth", map_location=device))
teacher.eval()
for p in teacher.parameters():
    p.requires_grad_(False)
student = torchvision.models.resnet18(num_classes=10).to(device)


def kd_loss(student_logits, teacher_logits, labels, T=4.0, alpha=0.9):
    soft = F.kl_div(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1), reduction="batchmean")
    hard = F.cross_entropy(student_logits, labels)
    return alpha * T * T * soft + (1 - alpha) * hard


optimizer = optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
for epoch in range(30):
    student.train()
    for step, (images, labels) in enumerate(train_loader):
        images, labels = images.to(device), labels.to(device)
        with torch.no_grad():
            teacher_logits = teacher(images)
        student_logits = student(images)
        loss = kd_loss(student_logits, teacher_logits, labels)  # finds: L001
        optimizer.zero_grad()  # finds: O008
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
    lr = 0.05 * (0.1 ** (epoch // 10))
    for g in optimizer.param_groups:
        g["lr"] = lr  # finds: O013
    print("epoch", epoch, "loss", loss.item())
torch.save({"epoch": epoch, "model": student.state_dict()}, "student.pth")
