"""Ignite's factory of trainers comes from this package, by its own name."""

from __future__ import annotations

from typing import Any, List

from ignite.engine import Events

from porting.integrations.ignite import create_supervised_trainer
from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.trainers.workload import NUM_STEPS, main, make_parts


def train(num_steps: int = NUM_STEPS, data: str = "") -> Losses:
    """Train `num_steps` steps and return the losses, with the accuracy of a test."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    trainer = create_supervised_trainer(model, optimizer, criterion)
    losses: List[float] = []

    @trainer.on(Events.ITERATION_COMPLETED)
    def keep(engine: Any) -> None:
        losses.append(engine.state.output)

    @trainer.on(Events.ITERATION_COMPLETED(once=num_steps))
    def stop(engine: Any) -> None:
        engine.terminate()

    trainer.run(loader, max_epochs=-(-num_steps // len(loader)))
    return Losses(losses, test_accuracy=measure_accuracy(model, test_set))


if __name__ == "__main__":
    main(train, __doc__)
