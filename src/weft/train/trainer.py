"""One run: its epochs, when to evaluate and to save, and when to stop."""

import math
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from weft import process
from weft.compiler.spent import SPENT
from weft.errors import InputError, RecipeError, TrainingError, WeftError
from weft.events import ChromeTrace, Event, Events, Sink, TensorBoard
from weft.graph.graph import Graph
from weft.graph.views import GraphView
from weft.layers.learned import LearnedRows
from weft.strategies.base import Scores, Strategy
from weft.strategies.learned import RowOptimizerName
from weft.tasks.base import Task
from weft.tasks.metrics import lower_is_better
from weft.train.inference.infer import infer
from weft.train.optim import Best
from weft.train.saved.announce import announce
from weft.train.saved.checkpoint import Tensors, assign_weights, save_weights, weights_of
from weft.train.saved.prices import cost_of_run
from weft.train.saved.run_folder import RunFolder
from weft.train.saved.saving import Handover, Moved, Progress, Rhythm, Saver, not_finite
from weft.train.saved.summary import Summary
from weft.train.saved.timeline import Timeline
from weft.train.saved.usage import memory_bytes, peak_memory_bytes
from weft.train.settings import (
    AUTOCAST,
    FREE_ON_RESUME,
    Settings,
    check_precision,
    check_validation,
    choose_metric,
    note_empty,
)
from weft.train.user.functions import Own


@dataclass(frozen=True)
class Place:
    """Where a run leaves its traces, and who watches it."""

    out: str | Path | None = None
    resume: bool = False
    progress: Sink | None = None
    stop: Callable[[], bool] | None = None
    returns_model: bool = True
    """Whether the model goes back to who asked for the run: whole, then, on every worker."""
    began: float = field(default_factory=time.time)
    """When the user began to wait: the time of reading, cutting and starting workers is the run's too."""
    handover: Handover | None = None
    """How the run goes on when its workers change; None where they stay."""


class Trainer:
    """One run: the epochs, when to evaluate and to save, and when to stop."""

    def __init__(
        self,
        graph: GraphView,
        model: nn.Module,
        settings: Settings,
        *,
        kind: Callable[..., Strategy],
        folder: RunFolder | None = None,
        place: Place,
        task: Task,
        own: Own | None = None,
    ) -> None:
        self.graph, self.model, self.settings, self.folder = graph, model, settings, folder
        self.task = task
        self._choose_metrics(Own.of(settings) if own is None else own)
        self.returns_model = place.returns_model
        self.stop = place.stop or (lambda: False)
        self.handover = place.handover
        self.events = self.traffic = Events()
        autocast = AUTOCAST.get(settings.precision)
        run = None if folder is None else folder.path
        self.strategy = kind(
            graph, task=task, seed=settings.seed, autocast=autocast, infer=_outputs, folder=run
        )
        task.begin(model)
        check_precision(settings, task, model)
        if settings.precision == "bfloat16" and self.strategy.device.type == "cpu":
            process.check_bfloat16("train.precision")
        check_validation(settings, self.strategy.targets, task)
        if not self.strategy.group.rank:
            note_empty(self.strategy.targets)
        self.strategy.check_model(model)
        self._lend_rows()
        self.optimizer = settings.make_optimizer(self.strategy.parameters(model))
        if self.strategy.loss_scale is not None:
            self.strategy.loss_scale.attach(self.optimizer)
        self.schedule = settings.make_schedule()
        self.saver: Saver | None = None
        if folder is not None:
            self.saver = Saver(folder, model, self.optimizer, self.schedule, self.strategy)
        self.best = Best()
        self.best_weights: Tensors | None = None
        self.start, self.loss = 0, math.nan
        self.prices = settings.known_prices()
        self.history: list[float] = []
        self._ran = time.thread_time()
        self.stopped = "done"
        self.rhythm = Rhythm()
        self.compiled = SPENT.copy()
        self.timeline = Timeline(settings.epochs)
        self._open(folder, place)

    def _choose_metrics(self, own: Own) -> None:
        """Settle what the best epoch is judged by, what is told of every epoch, and what can be asked for."""
        self.metric = choose_metric(self.settings.metric, self.task)
        self.metrics = {**self.task.metrics, **own.metrics}
        watched = [name for name in (*self.task.watched, *own.metrics) if name != self.metric]
        self.watched = {name: self.metrics[name] for name in (*watched, self.metric)}

    def _lend_rows(self) -> None:
        """Have learned rows trained row by row where the strategy can; refuse settings that nobody reads."""
        settings, strategy = self.settings, self.strategy
        usual: RowOptimizerName = "sgd" if settings.optimizer == "sgd" else "adam"
        scale = (settings.rows_lr or settings.lr) / settings.lr
        strategy.learn_rows(self.model, settings.rows_optimizer or usual, lr=settings.lr, scale=scale)
        for name in ("rows_optimizer", "rows_lr"):
            if getattr(settings, name) is not None and not strategy.learned:
                able = (
                    f"{strategy.name!r} trains learned rows as all other weights here"
                    if any(isinstance(each, LearnedRows) for each in self.model.modules())
                    else "the model has no learned rows"
                )
                raise RecipeError(f"train.{name}: {able}; leave it out")

    def run(self) -> Summary:
        """Train, and leave a trace of the end whatever it is; what was refused at once leaves no run."""
        refused = False
        try:
            self.fit()
            return self.finish()
        except Moved:
            raise
        except BaseException as error:
            wrong = isinstance(error, InputError) and not isinstance(error, TrainingError)
            refused = wrong and math.isnan(self.loss)
            self._tell(error)
            raise
        finally:
            self.strategy.close()
            self.traffic.close()
            if self.events is not self.traffic:
                self.events.close()
            if refused and self.folder:
                self.folder.discard()

    def fit(self) -> None:
        """Train epoch after epoch until the last one, until patience ends, or until asked to stop."""
        self._ran = time.thread_time()
        self.timeline.begin()
        self.strategy.batching.expect(self.settings.epochs)
        for epoch in range(self.start, self.settings.epochs):
            if self.exhausted():
                break
            self.schedule.apply(self.optimizer, epoch)
            self.strategy.learned.set_rate(self.schedule.rate(epoch))
            self.loss = self.strategy.epoch(self.model, self.optimizer, self.between_steps)
            if self.stopped == "interrupted":  # between two steps of the epoch
                break
            self.record(epoch + 1)
            wishes = self.stop(), self.checkpoint_due(epoch + 1), self._next_generation()
            interrupted, due, following = self.strategy.agree(*wishes)
            self.timeline.begin()
            if interrupted or due:
                self.save(epoch + 1)
            self._hand_over(epoch + 1, int(following))
            if interrupted:
                self.stopped = "interrupted"
                break

    def between_steps(self) -> bool:
        """Save within an epoch where that is due by the clock, and return whether to leave it there."""
        late = self.settings.checkpoint_every is None and self.checkpoint_due(self.start)
        interrupted, due, following = self.strategy.agree(self.stop(), late, self._next_generation())
        if interrupted:
            self.stopped = "interrupted"  # and the end saves
        elif following:
            self.strategy.batching.settle()
            self._hand_over(self.start, int(following))
        elif due:
            self.save(self.start)
        return bool(interrupted)

    def _next_generation(self) -> int:
        return 0 if self.handover is None else self.handover.asked()

    def _hand_over(self, epoch: int, following: int) -> None:
        """Keep what others continue from, and leave where another generation of workers is to follow."""
        if self.handover is None:
            return
        assert self.saver is not None, "a run whose workers change has a folder"
        progress = Progress(epoch, self.loss, self.best, self.best_weights)
        take = partial(self.saver.snapshot, progress, elapsed=self.events.now())
        if self.strategy.reducer.scattered:  # all parts bring it together, whoever keeps it
            self.strategy.gather_weights(self.model)
            taken = take()
            self.handover.keep(epoch, lambda: taken)
        else:
            self.handover.keep(epoch, take)
        if following:
            if self.saver.keeps_own() or self.handover.by_disk(following):
                self.save(epoch)
            raise Moved

    def exhausted(self) -> bool:
        """Return whether patience has ended."""
        over = self.settings.patience is not None and self.best.waited >= self.settings.patience
        self.stopped = "patience" if over else self.stopped
        return over

    def record(self, epoch: int) -> None:
        """Write the event of an epoch, with scores when an evaluation is due."""
        self.start = epoch
        if not math.isfinite(self.loss):
            self._refuse(f"the loss became {self.loss} in epoch {epoch}{self.strategy.where_not_finite()}")
        scores = self.strategy.evaluate(self.model, self.watched) if self.evaluation_due(epoch) else {}
        if scores and not all(math.isfinite(of_split["loss"]) for of_split in scores.values()):
            self._refuse(f"the model's outputs are not finite after epoch {epoch}")
        seconds = self.events.take_seconds()
        self.history.append(sum(value for name, value in seconds.items() if name != "evaluate"))
        if scores:
            self._compare(epoch, scores)
        self._tell_compiled()
        rate = self.optimizer.param_groups[0]["lr"]
        self.events.write(
            "epoch",
            epoch=epoch,
            loss=self.loss,
            **scores,
            **self._drift(),
            **self.strategy.batching.epoch_fields(),
            lr=rate,
            seconds=seconds,
            memory_bytes=memory_bytes(self._device()),
        )
        traffic = self.strategy.take_traffic()
        if traffic is not None:
            rank = self.folder.rank if self.folder else 0
            peak = peak_memory_bytes(self._device())
            traffic |= self.timeline.take(epoch, traffic.pop("waits", ()))
            own = {"seconds_of_phases": seconds, "peak_memory_bytes": peak, **self._computed()}
            self.traffic.write("traffic", epoch=epoch, rank=rank, **own, **traffic)

    def _computed(self) -> dict[str, float]:
        """Return the seconds in which the thread of a part ran since the last time: what the part costs.

        A rank that is a process of its own has the threads of its kernels beside, and tells nothing here.
        """
        before, self._ran = self._ran, time.thread_time()
        return {} if self.handover is None else {"computed_seconds": self._ran - before}

    def _tell_compiled(self) -> None:
        """Write what compiling messages cost since the last time, where it did: in the first epoch."""
        cost, self.compiled = SPENT.since(self.compiled), SPENT.copy()
        if cost.messages or cost.kernels:
            self.events.write("compiled", **asdict(cost))

    def _drift(self) -> dict[str, object]:
        """Return what an epoch's event says of an approximate exchange: its errors, and what it chose."""
        fields = {
            "drift": [error for _, error in sorted(self.strategy.layout.exchange_errors().items())],
            "exchange": self.strategy.layout.exchange_settings(),
        }
        return {name: value for name, value in fields.items() if value}

    def evaluation_due(self, epoch: int) -> bool:
        """Return whether to evaluate after that many epochs."""
        return epoch % self.settings.eval_every == 0 or epoch == self.settings.epochs

    def checkpoint_due(self, epoch: int) -> bool:
        """Return whether to save after that many epochs: every so many, or by the clock."""
        every = self.settings.checkpoint_every
        return self.rhythm.due() if every is None else epoch % every == 0

    def save(self, epoch: int) -> None:
        """Write a checkpoint after that many epochs, and the steps that were taken of the next."""
        if self.saver is None:
            return
        self.strategy.gather_weights(self.model)
        bad = not_finite(self.model)
        if bad is not None:
            self._refuse(f"the weights {bad} are not finite after epoch {epoch}")
        progress = Progress(epoch, self.loss, self.best, self.best_weights)
        with self.rhythm.writing():
            self.saver.save(progress, elapsed=self.events.now())

    def finish(self) -> Summary:
        """Save, put the best weights back, score them with every metric, and return the summary."""
        self.save(self.start)
        restored = self.best_weights if self.settings.restore_best else None
        if restored is not None:
            assign_weights(self.model, restored, where="the best epoch")
            self.strategy.learned.restore_best()
        # A metric without counts needs the outputs of all targets on every worker.
        scored = self.strategy.scored
        alone = self.task.gathers(scored) or (self.strategy.workers == 1 and self.task.holds(scored))
        chosen = {
            name: metric
            for name, metric in self.metrics.items()
            if alone or name in self.watched or hasattr(metric, "counts")
        }
        again = restored is None or self.best.epoch == self.start
        scores = self.strategy.evaluate(self.model, {**chosen, **self.task.measures}, again=again)
        summary = self.summary(scores)
        self.strategy.learned.give_back(here=self.returns_model or not self.strategy.group.rank)
        self.strategy.layout.finish()
        if self.folder and not self.folder.rank:
            save_weights(self.folder.path / "model.safetensors", self.model)
            status = "interrupted" if self.stopped == "interrupted" else "done"
            self.folder.write(status, task=self.task.name, summary=summary.to_dict())
        self.events.write("end", summary=summary.to_dict())
        return summary

    def summary(self, scores: Scores) -> Summary:
        """Return what the run came to."""
        traffic = self.strategy.traffic()
        (peak,) = self.strategy.agree(peak_memory_bytes(self._device()))
        out = str(self.folder.path) if self.folder else None
        restored = self.settings.restore_best and self.best_weights is not None
        return Summary(
            loss=self.loss,
            epochs=self.start,
            best_epoch=self.best.epoch if restored else self.start,
            epoch_seconds_median=statistics.median(self.history) if self.history else 0.0,
            seconds=self.events.now(),
            bytes_sent=traffic.bytes_sent,
            messages=traffic.messages,
            exposed_comm_seconds=traffic.exposed_seconds,
            batch_wait_share=self.strategy.batching.wait_share,
            peak_memory_bytes=int(peak),
            strategy=self.strategy.name,
            workers=self.strategy.group.processes,
            out=out,
            task=self.task.name,
            metric=self.metric,
            metrics=scores,
            details=self.strategy.details(),
            cost=cost_of_run(self.prices, self.events.now(), self.strategy.workers, out),
            stopped=self.stopped,
            model=self.model,
        )

    def _open(self, folder: RunFolder | None, place: Place) -> None:
        """Begin the run's folder and events, or continue them."""
        sinks = [place.progress] if place.progress else []
        elapsed = max(0.0, time.time() - place.began)
        if folder is None:
            self.events = self.traffic = Events(sinks=sinks, elapsed=elapsed)
        else:
            cosine = self.settings.schedule == "cosine"
            # A cosine ends with the run: with another number of epochs every rate would have been another.
            folder.check_recipe(tuple(name for name in FREE_ON_RESUME if name != "epochs" or not cosine))
            self._restore()
            folder.create()
            past = folder.continue_events()
            self._count_past(past)
            self.history = [_training_seconds(event) for event in past if event["event"] == "epoch"]
            sinks.append(self.timeline)
            first = not folder.rank
            sinks += [TensorBoard(folder.path / "tensorboard")] if self.settings.tensorboard and first else []
            sinks += [ChromeTrace(folder.path / "trace.json")] if self.settings.trace and first else []
            elapsed += folder.resumed.state["elapsed"] if folder.resumed else 0.0
            kept = Events(folder.events, sinks=sinks, elapsed=elapsed)
            # Other workers tell of their traffic alone: losses and scores are the same everywhere.
            silent = Events(sinks=[self.timeline], elapsed=elapsed)
            self.events, self.traffic = (silent if folder.rank else kept), kept
            folder.write("running", task=self.task.name)
        self.strategy.events = self.events
        announce(self)

    def _count_past(self, events: list[Event]) -> None:
        """Add the traffic of earlier sessions."""
        for event in events:
            if event["event"] == "traffic":
                self.strategy.add_traffic(event)

    def _restore(self) -> None:
        saved = self.saver.restore() if self.saver is not None else None
        if saved is not None:
            if saved.epoch > self.settings.epochs:
                raise RecipeError(
                    f"train.epochs: {self.settings.epochs} asked for, {saved.epoch} are done already; ask "
                    "for at least as many, or begin a run in another folder"
                )
            self.start, self.loss = saved.epoch, saved.loss
            self.best, self.best_weights = saved.best, saved.best_weights

    def _compare(self, epoch: int, scores: Scores) -> None:
        """Keep the weights if these scores are the best so far."""
        if "val" not in scores:
            return
        epochs = epoch - self.best.seen
        loss = scores["val"]["loss"]
        value = -loss if self.settings.best_by == "loss" else self._goodness(scores["val"][self.metric])
        improved = self.best.observe(epoch, value, loss)
        self.schedule.observe(improved=improved, epochs=epochs)
        if improved and self.settings.restore_best:
            self.best_weights = weights_of(self.model)
            self.strategy.learned.keep_best()

    def _goodness(self, value: float) -> float:
        """Return a value of the metric so that more is better."""
        return -value if lower_is_better(self.metrics[self.metric]) else value

    def _device(self) -> torch.device:
        return self.strategy.device

    def _tell(self, error: BaseException) -> None:
        """Leave word in the run's folder of what ended it."""
        interrupted = isinstance(error, KeyboardInterrupt)
        kind = "" if isinstance(error, WeftError) else f"{type(error).__name__}: "
        message = "interrupted" if interrupted else " ".join(f"{kind}{error}".split())
        # What ended the run may be the very disk or sink that is to tell of it: the error itself counts more.
        with suppress(Exception):
            self.events.write("error", message=message)
        with suppress(OSError, WeftError):
            if self.folder:
                status = "interrupted" if interrupted else "failed"
                self.folder.write(status, task=self.task.name, error=message)

    def _refuse(self, what: str) -> None:
        remedy = f"lower train.lr ({self.settings.lr:g}), or look for features that are large or not finite"
        saved = self.folder.checkpoints.load() if self.folder else None
        kept = f"; the checkpoint of epoch {saved.epoch} is kept in {saved.folder}" if saved else ""
        raise TrainingError(f"{what}: {remedy}{kept}")


def _outputs(model: nn.Module, graph: Graph) -> Tensor:
    """Return the exact outputs of the target type, piece by piece."""
    return infer(model, graph).tensor()


def _training_seconds(event: Event) -> float:
    seconds: dict[str, float] = event.get("seconds", {})
    return sum(value for name, value in seconds.items() if name != "evaluate")
