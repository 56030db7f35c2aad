"""What a run says of itself at its start: the graph, the workers, what is learned."""

from typing import TYPE_CHECKING

from weft.tasks.metrics import lower_is_better

if TYPE_CHECKING:
    from weft.train.saved.saving import Handover
    from weft.train.trainer import Trainer


def announce(trainer: "Trainer") -> None:
    """Write the events of a start, or of going on; and who trains from now on, where that changes."""
    events, strategy = trainer.events, trainer.strategy
    if trainer.start:
        events.write("resume", epoch=trainer.start, epochs=trainer.settings.epochs)
    else:
        parameters = sum(value.numel() for value in trainer.model.parameters()) + strategy.learned.size
        counts = trainer.graph.summary()
        events.write("graph", **counts)
        events.write(
            "start",
            epochs=trainer.settings.epochs,
            strategy=strategy.name,
            workers=strategy.group.processes,
            device=str(strategy.device),
            parameters=parameters,
            task=trainer.task.name,
            over=trainer.task.over,
            facts=trainer.task.facts(counts),
            targets=_sizes(trainer),
            metric=trainer.metric,
            lower_is_better=[name for name, metric in trainer.metrics.items() if lower_is_better(metric)],
            why=_why(strategy.group.processes, trainer.handover),
        )
    if trainer.handover is not None:
        events.write("generation", epoch=trainer.start, **trainer.handover.told())


def _sizes(trainer: "Trainer") -> dict[str, int]:
    """Return how many targets each split has; a pair is one, whatever stands beside it."""
    pairs = {split: len(some) for split, some in trainer.task.pairs.items()}
    return pairs or {split: some.count for split, some in trainer.strategy.targets.items()}


def _why(workers: int, handover: "Handover | None") -> str:
    if handover is not None:
        return f"{workers} to begin with, of --workers {handover.span}"
    return "one process, as no more were asked for" if workers == 1 else f"{workers} processes, as asked for"
