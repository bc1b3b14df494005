"""The losses of the real classes are those of eager PyTorch, and what is frozen neither moves nor has a state."""

from __future__ import annotations

import torch
from transformers import get_linear_schedule_with_warmup

import porting
from porting.recipe_chain import chain_of_equal_losses, close_losses, demand, holds, measured, reaches
from porting.recipes.fine_tune_bert import workload

NUM_STEPS = 20


def frozen_stay(_step: object) -> str:
    """Train a model on its device and check the frozen weights, in the model and in the optimizer."""
    torch.manual_seed(0)
    model = workload.make_model()
    optimizer = workload.make_optimizer(model)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    ported = porting.to_ipu(model, optimizer=optimizer)
    data = workload.Sentences(32, seed=0)
    for _step in range(3):
        ported(input_ids=data.tokens, attention_mask=data.masks, labels=data.labels)
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    demand(moved == trained, f"moved although frozen, or not moved: {sorted(moved ^ trained)}")
    num_states = sum(len(group["params"]) for group in optimizer.param_groups)
    demand(num_states == len(trained), f"the optimizer has {num_states} parameters, {len(trained)} are trained")
    return f"{len(before) - len(trained)} parameters stay, {len(trained)} move"


def schedule_arrives(_step: object) -> str:
    """Compare the device's learning rate with the schedule's after each step of the warm-up."""
    model = workload.make_model()
    optimizer = workload.make_optimizer(model)
    ported = porting.to_ipu(model, optimizer=optimizer)
    plain = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=6)
    scheduler = ported.scheduler(plain)
    data = workload.Sentences(8, seed=0)
    rates, moved = [], []
    for _step in range(6):
        before = model.classifier.weight.detach().clone()
        ported(input_ids=data.tokens, attention_mask=data.masks, labels=data.labels)
        rates.append(plain.get_last_lr()[0])
        moved.append(float((model.classifier.weight.detach() - before).abs().max()))
        scheduler.step()
    # the steps of Adam are as long as the learning rate, at first
    follows = moved[0] == 0 and moved[1] < moved[2] < moved[3] > moved[5]
    demand(follows, f"learning rates {rates}, but the weights moved by {moved}")
    return "learning rate 0 moves nothing, a larger one more: " + ", ".join(f"{rate:.4f}" for rate in rates)


CHECKS = (
    *chain_of_equal_losses(1, 3),
    holds(1, "frozen parameters stay, all others move", frozen_stay),
    holds(1, "the schedule reaches the device", schedule_arrives),
    close_losses(4, like=3, relative=0.4, because="Dropout draws its numbers for 8 sentences at a time"),
    close_losses(5, like=4, relative=0.02, because="halves have 11 bits"),
    *(
        reaches(step, "test accuracy", at_least=0.9, measure=measured("test_accuracy", 240), slow=step > 0)
        for step in (0, 3, 4, 5)
    ),
)
