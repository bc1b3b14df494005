import torch
import torch.nn.functional as F
from tqdm import tqdm

from dice_score import dice_coeff


@torch.inference_mode()
def evaluate(net, dataloader, device, amp):
    net.eval()  # finds: D014
    num_val_batches = len(dataloader)
    dice_score = 0
    with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=amp):  # finds: P013
        for batch in tqdm(dataloader, total=num_val_batches, desc="Validation round", unit="batch", leave=False):
            image, mask_true = batch["image"], batch["mask"]
            image = image.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            mask_true = mask_true.to(device=device, dtype=torch.long)
            mask_pred = net(image)
            mask_pred = F.one_hot(mask_pred.argmax(dim=1), net.n_classes).permute(0, 3, 1, 2).float()
            dice_score += dice_coeff(mask_pred, mask_true)
    net.train()
    return dice_score / max(num_val_batches, 1)
