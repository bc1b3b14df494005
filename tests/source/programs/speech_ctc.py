import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data as data
import torchaudio

train_audio_transforms = nn.Sequential(
    torchaudio.transforms.MelSpectrogram(sample_rate=16000, n_mels=128),
    torchaudio.transforms.FrequencyMasking(freq_mask_param=30),
)
valid_audio_transforms = torchaudio.transforms.MelSpectrogram()


def data_processing(data, data_type="train"):
    spectrograms = []
    labels = []
    input_lengths = []
    label_lengths = []
    for waveform, _, utterance, _, _, _ in data:
        spec = train_audio_transforms(waveform).squeeze(0).transpose(0, 1)
        spectrograms.append(spec)
        label = torch.Tensor([ord(c) for c in utterance.lower()])
        labels.append(label)
        input_lengths.append(spec.shape[0] // 2)
        label_lengths.append(len(label))
    spectrograms = nn.utils.rnn.pad_sequence(spectrograms, batch_first=True).unsqueeze(1).transpose(2, 3)  # finds: B018
    labels = nn.utils.rnn.pad_sequence(labels, batch_first=True)  # finds: B018
    return spectrograms, labels, input_lengths, label_lengths


class BidirectionalGRU(nn.Module):
    def __init__(self, rnn_dim, hidden_size, dropout, batch_first):
        super(BidirectionalGRU, self).__init__()
        self.BiGRU = nn.GRU(rnn_dim, hidden_size, num_layers=1, batch_first=batch_first, bidirectional=True)
        self.layer_norm = nn.LayerNorm(rnn_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = F.gelu(self.layer_norm(x))
        x, _ = self.BiGRU(x)
        return self.dropout(x)


class SpeechRecognitionModel(nn.Module):
    def __init__(self, rnn_dim, n_class, n_feats, stride=2, dropout=0.1):
        super(SpeechRecognitionModel, self).__init__()
        self.cnn = nn.Conv2d(1, 32, 3, stride=stride, padding=3 // 2)
        self.fully_connected = nn.Linear(n_feats // 2 * 32, rnn_dim)
        self.birnn = BidirectionalGRU(rnn_dim, rnn_dim, dropout, True)
        self.classifier = nn.Linear(rnn_dim * 2, n_class)

    def forward(self, x):
        x = self.cnn(x)
        sizes = x.size()
        x = x.view(sizes[0], sizes[1] * sizes[2], sizes[3]).transpose(1, 2)
        return self.classifier(self.birnn(self.fully_connected(x)))


def train(model, device, train_loader, criterion, optimizer, scheduler, epoch):
    model.train()
    for batch_idx, _data in enumerate(train_loader):
        spectrograms, labels, input_lengths, label_lengths = _data
        spectrograms, labels = spectrograms.to(device), labels.to(device)
        optimizer.zero_grad()  # finds: O008
        output = model(spectrograms)
        output = F.log_softmax(output, dim=2).transpose(0, 1)
        loss = criterion(output, labels, input_lengths, label_lengths)  # finds: L001
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        scheduler.step()  # finds: O013
        if batch_idx % 100 == 0:
            print("Train Epoch: {}\tLoss: {:.6f}".format(epoch, loss.item()))


def test(model, device, test_loader, criterion):
    model.eval()  # finds: D014
    test_loss = 0
    with torch.no_grad():
        for _data in test_loader:
            spectrograms, labels, input_lengths, label_lengths = _data
            output = model(spectrograms.to(device))
            output = F.log_softmax(output, dim=2).transpose(0, 1)
            loss = criterion(output, labels.to(device), input_lengths, label_lengths)
            test_loss += loss.item() / len(test_loader)  # finds: D020
    print("Test set: Average loss: {:.4f}".format(test_loss))


def main(learning_rate=5e-4, batch_size=20, epochs=10):
    use_cuda = torch.cuda.is_available()
    torch.manual_seed(7)
    device = torch.device("cuda" if use_cuda else "cpu")
    if not os.path.isdir("./data"):
        os.makedirs("./data")
    train_dataset = torchaudio.datasets.LIBRISPEECH("./data", url="train-clean-100", download=True)
    test_dataset = torchaudio.datasets.LIBRISPEECH("./data", url="test-clean", download=True)
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    train_loader = data.DataLoader(  # finds: B010
        dataset=train_dataset, batch_size=batch_size, shuffle=True, collate_fn=lambda x: data_processing(x, "train"), **kwargs
    )
    test_loader = data.DataLoader(  # finds: B010
        dataset=test_dataset, batch_size=batch_size, collate_fn=lambda x: data_processing(x, "valid"), **kwargs
    )
    model = SpeechRecognitionModel(512, 29, 128).to(device)
    optimizer = optim.AdamW(model.parameters(), learning_rate)
    criterion = nn.CTCLoss(blank=28).to(device)
    scheduler = optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=learning_rate, steps_per_epoch=int(len(train_loader)), epochs=epochs  # finds: B016
    )
    for epoch in range(1, epochs + 1):
        train(model, device, train_loader, criterion, optimizer, scheduler, epoch)
        test(model, device, test_loader, criterion)


if __name__ == "__main__":
    main()
