"""Tuning: search the learning rate and hyper-parameters of a method with Optuna, on held-out training data.

journal.log    Optuna's storage, from which a search is resumed; optuna-dashboard can read it
search.toml    the search space and the initial settings
trials.csv     one line per trial
best.toml      the best settings, for --config of `run` and `compare`

A trial is an ordinary run in its own folder: if the process is killed, only the rounds since the last checkpoint are
lost. The sampler is seeded by the number of the trial, so a resumed search gives the same result as an uninterrupted
one. A search can have several trials at once: it asks for N trials, trains them, and then tells their results, both in
the order of their numbers. Its trials depend on N, which is recorded in the journal, but not on how many of them are
trained at the same time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.errors import BusyError, UserError
from fedmim.experiments.run import Run
from fedmim.experiments.search import Search
from fedmim.experiments.search_journal import (
    OUTCOME,
    ended,
    import_optuna,
    numbered_trial,
    open_study,
    tell_outcome,
    trials_at_once,
)
from fedmim.experiments.search_results import TRIALS, Found, best_toml, best_trial, write_trials
from fedmim.experiments.toml_values import read_toml
from fedmim.experiments.trial_work import TrialWork
from fedmim.experiments.works import Display, LostJobError, ThisProcess, WorkPool, answers_of
from fedmim.files import folder_lock, holding, make_folder, write_text

if TYPE_CHECKING:
    import optuna

SEARCH, BEST = "search.toml", "best.toml"
FAILED: dict[str, Any] = {"state": "FAIL", "accuracy": None, "reports": []}


class Tuner:
    """A search in its folder."""

    def __init__(self, search: Search, folder: Path, every: float = 10.0, at_once: int = 1) -> None:
        self.search, self.folder, self.every = search, folder, every
        self.at_once = at_once  # trials that a new search asks for at once

    @property
    def run(self) -> Run:
        """The initial settings."""
        return self.search.run

    def found(self) -> Found | None:
        """The best result so far; None before the first trial is complete."""
        return best_trial(self.search, self.folder / TRIALS)

    @property
    def finished(self) -> bool:
        """Whether all trials have ended."""
        found = self.found()
        return found is not None and found.finished >= self.search.trials

    def __call__(self, display: Display, pool: WorkPool | None = None) -> Found:
        """Start or resume the search. Only one process at a time can run it. The pool trains trials at once."""
        import_optuna()  # before the folder is created
        make_folder(self.folder)
        with holding(folder_lock(self.folder)), pool or ThisProcess() as pool:  # it ends before the lock is released
            return self._search(pool, display)

    @contextmanager
    def claimed(self) -> Iterator[Tuner]:
        """Lock the folder."""
        make_folder(self.folder)
        with holding(folder_lock(self.folder)):
            yield self

    def moved(self, folder: Path) -> Tuner:
        """The same search in another folder."""
        return Tuner(self.search, folder, self.every, self.at_once)

    def _search(self, pool: WorkPool, display: Display) -> Found:
        """Search with batches of trials. All outcomes of a batch are recorded before the first is told."""
        path, error = self.folder / SEARCH, None
        if path.exists() and read_toml(path).get("search") != self.search.name:
            raise UserError(f"{self.folder}: contains a different search; give another --out")
        write_text(path, self.search.to_toml())
        study = open_study(self.search, self.folder)
        size = trials_at_once(study, self.at_once)
        while (done := len(study.get_trials(deepcopy=False, states=ended()))) < self.search.trials:
            first = done // size * size
            numbers = range(first, min(first + size, self.search.trials))
            trials = [numbered_trial(study, self.search, number) for number in numbers]
            left = [trial for trial in trials if trial is not None]
            error = self._train(study, first, left, pool, display) or error
            for trial in left:
                tell_outcome(study, trial)
            self._write(study)
            for number in numbers:
                shutil.rmtree(self._place(number), ignore_errors=True)
        return self._end(study, error)

    def _train(
        self, study: optuna.Study, first: int, trials: Sequence[optuna.trial.Trial], pool: WorkPool, display: Display
    ) -> Exception | None:
        """Train trials and record their outcomes; the error of one that failed. Other errors are raised at the end."""
        complete = study.get_trials(deepcopy=False, states=(import_optuna().trial.TrialState.COMPLETE,))
        # Of a batch that was told in part before a kill, no trial prunes another.
        known = tuple((each.value, each.intermediate_values) for each in complete if each.number < first)
        new = [trial for trial in trials if OUTCOME not in trial.user_attrs]
        works = [TrialWork(self._place(trial.number), self._run(trial), self.every, known) for trial in new]
        trial_of = {work.folder: trial for work, trial in zip(works, new, strict=True)}
        failed: Exception | None = None
        raised: Exception | None = None
        for work, answer in answers_of(works, pool, display):
            if isinstance(answer, UserError) and not isinstance(answer, LostJobError | BusyError):
                failed, answer = answer, FAILED
                display.skip(work.run)
            if isinstance(answer, Exception):
                raised = answer
            else:
                trial_of[work.folder].set_user_attr(OUTCOME, answer)
        if raised:
            raise raised
        return failed

    def _run(self, trial: optuna.trial.Trial) -> Run:
        values = {name: each.value(trial.params[name]) for name, each in self.search.space.items()}
        return replace(self.search.with_values(values), label=f"{self.run.label}, trial {trial.number + 1}")

    def _place(self, number: int) -> Path:
        return self.folder / "unfinished" / f"{number:03d}"

    def _end(self, study: optuna.Study, error: Exception | None) -> Found:
        self._write(study)  # in case the process was killed before the last trial was written
        shutil.rmtree(self.folder / "unfinished", ignore_errors=True)
        found = self.found()
        if found is None:
            why = error or "all were pruned or diverged; try smaller learning rates"
            raise UserError(f"tune: no trial of {self.run.label} was completed ({why})")
        return found

    def _write(self, study: optuna.Study) -> None:
        """Write the trials and the best settings."""
        rows = []
        for trial in study.get_trials(deepcopy=False, states=ended()):
            values = {name: each.value(trial.params[name]) for name, each in self.search.space.items()}
            rounds = max(trial.intermediate_values, default=0)
            last = trial.intermediate_values.get(rounds) if trial.value is None else trial.value
            rows.append(
                {
                    "trial": trial.number + 1,
                    "state": trial.state.name.lower(),
                    "rounds": rounds,
                    "accuracy": last,
                    **values,
                }
            )
        write_trials(self.folder / TRIALS, rows)
        if found := self.found():
            head = f"# {100 * found.accuracy:.2f} % on the validation data, best of {found.finished} trials.\n"
            write_text(self.folder / BEST, head + best_toml([(self.search, found)]))
