"""The work of training one trial of a search."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.divergence import diverged
from fedmim.errors import DivergedError, UserError
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import Records
from fedmim.experiments.search_journal import import_optuna
from fedmim.experiments.sweep import unfinished
from fedmim.experiments.works import Display
from fedmim.files import make_folder

if TYPE_CHECKING:
    import optuna

    from fedmim.simulation.record import Record

NO_ACCURACY = "tune: this task has no accuracy to optimise; give its Task a metric"


@dataclass(frozen=True)
class TrialWork:
    """Train a trial to the end, or until it is pruned by the trials of earlier batches."""

    folder: Path
    run: Run
    every: float
    known: tuple[tuple[float | None, dict[int, float]], ...]  # accuracy and reports of complete trials

    def __call__(self, display: Display) -> dict[str, Any]:
        """Train; the outcome, as JSON values."""
        optuna = import_optuna()
        folder, states = unfinished(self.folder, self.run), optuna.trial.TrialState
        study = optuna.create_study(direction="maximize")
        for value, reported in self.known:
            known = optuna.trial.create_trial(state=states.COMPLETE, value=value, intermediate_values=reported)
            study.add_trial(known)
        pruner, recent, reports = median_pruner(self.run), deque[float](maxlen=3), dict[int, float]()

        def report(record: Mapping[str, Any]) -> None:
            if record["test_accuracy"] is not None:
                recent.append(record["test_accuracy"])
                reports[record["round"]] = statistics.fmean(recent)

        earlier: list[Mapping[str, Any]] | None = None

        def watch(record: Record) -> None:
            nonlocal earlier
            display.record(self.run, record)
            if earlier is None:
                earlier = [each for each in folder.metrics() if each["round"] < record.round]
                for each in earlier:
                    report(each)
            report(vars(record))
            own = optuna.trial.create_trial(state=states.RUNNING, intermediate_values=dict(reports))
            evaluated = record.test_accuracy is not None and record.round < self.run.config.settings.rounds
            if evaluated and pruner.prune(study, own):
                raise optuna.TrialPruned

        state, accuracy = "PRUNED", None
        try:
            folder.train(self.run.config.task(), watch, self.every)
            if earlier is None:  # it had been trained to the end
                for each in folder.metrics():
                    report(each)
            if not diverged(records := folder.metrics()):
                state, accuracy = "COMPLETE", judged(records)
        except (optuna.TrialPruned, DivergedError):
            display.skip(self.run)
        return {"state": state, "accuracy": accuracy, "reports": list(reports.items())}

    def claimed(self) -> AbstractContextManager[TrialWork]:
        """The search has locked the folder."""
        make_folder(self.folder)
        return nullcontext(self)

    def moved(self, folder: Path) -> TrialWork:
        """The same work in another folder."""
        return replace(self, folder=folder)


def check_accuracy(run: Run) -> None:
    """Reject a task whose models have no accuracy, before any trial."""
    from fedmim.models import FlatModel
    from fedmim.simulation.evaluation import evaluate
    from fedmim.simulation.fit import check_fit

    task = run.config.task()
    model = FlatModel(task.model, task.loss)
    check_fit(model, task)
    if evaluate(model, task, model.params, model.buffers)[1] is None:
        raise UserError(NO_ACCURACY)


def median_pruner(run: Run) -> optuna.pruners.MedianPruner:
    """Prunes trials below the median of the complete ones, after a third of the rounds."""
    warm_up = run.config.settings.rounds // 3
    return import_optuna().pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=warm_up)  # type: ignore[no-any-return]


def judged(records: Records) -> float:
    """The objective: the mean accuracy over the last ten evaluations of a trial, or all if it has fewer.

    Tables leave out evaluations before the last third of the rounds, so they can average fewer.
    """
    known = accuracies(records)
    if not known:
        raise UserError(NO_ACCURACY)
    return statistics.fmean(known[-10:])


def accuracies(records: Iterable[Mapping[str, Any]]) -> list[float]:
    """The accuracies of the evaluated rounds."""
    return [record["test_accuracy"] for record in records if record["test_accuracy"] is not None]
