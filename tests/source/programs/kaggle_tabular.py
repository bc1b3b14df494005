# %% [markdown]
# # Baseline NN (5 folds)

# %%
import gc

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda"  # finds: D013
SEED = 42
torch.manual_seed(SEED)

# %%
train = pd.read_csv("../input/train.csv")
features = [c for c in train.columns if c not in ("id", "target")]
X = train[features].values.astype(np.float32)
y = train["target"].values.astype(np.float32)


# %%
class MLP(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


# %%
def train_fn(model, loader, optimizer, criterion):
    model.train()
    final_loss = 0
    for xb, yb in loader:
        xb, yb = xb.to(DEVICE), yb.to(DEVICE)
        optimizer.zero_grad()  # finds: O008
        preds = model(xb)
        loss = criterion(preds, yb)  # finds: L001
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        final_loss += loss.item()  # finds: D020
    return final_loss / len(loader)


def valid_fn(model, loader):
    model.eval()  # finds: D014
    preds = []
    for xb, yb in loader:
        with torch.no_grad():
            preds.append(model(xb.to(DEVICE)).sigmoid().cpu().numpy())  # finds: D020
    return np.concatenate(preds)


# %%
oof = np.zeros(len(train))
skf = StratifiedKFold(n_splits=5, shuffle=True, random_state=SEED)
for fold, (tr, va) in enumerate(skf.split(X, y)):
    ds_tr = TensorDataset(torch.from_numpy(X[tr]), torch.from_numpy(y[tr]))
    ds_va = TensorDataset(torch.from_numpy(X[va]), torch.from_numpy(y[va]))
    dl_tr = DataLoader(ds_tr, batch_size=1024, shuffle=True)  # finds: B010
    dl_va = DataLoader(ds_va, batch_size=1024)  # finds: B010
    model = MLP(len(features))
    model.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, epochs=20, steps_per_epoch=len(dl_tr)  # finds: B016
    )
    criterion = nn.BCEWithLogitsLoss()
    best = 0
    for epoch in range(20):
        loss = train_fn(model, dl_tr, optimizer, criterion)
        scheduler.step()  # finds: O013
        p = valid_fn(model, dl_va)
        auc = roc_auc_score(y[va], p)
        print(f"fold {fold} epoch {epoch} loss {loss:.4f} auc {auc:.4f}")
        if auc > best:
            best = auc
            oof[va] = p
            torch.save(model.state_dict(), f"fold{fold}.pth")
    del model
    gc.collect()
    torch.cuda.empty_cache()
print("CV", roc_auc_score(y, oof))
