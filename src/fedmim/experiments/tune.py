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

import csv
import io
import json
import math
import shutil
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tomli_w

from fedmim.divergence import diverged
from fedmim.errors import BusyError, DivergedError, UserError, unknown
from fedmim.experiments.methods import split_name
from fedmim.experiments.run import Run, digest
from fedmim.experiments.run_folder import Records, RunFolder
from fedmim.experiments.sweep import unfinished
from fedmim.experiments.toml_values import make, plain, read_toml
from fedmim.experiments.works import Display, LostJobError, ThisProcess, WorkPool, answers_of
from fedmim.files import folder_lock, holding, make_folder, write_text, writing

if TYPE_CHECKING:
    import optuna

    from fedmim.simulation.record import Record

SPACES = Path(__file__).parent / "search_spaces.toml"
AT_ONCE, OUTCOME = "trials at once", "outcome"  # attributes in the journal
SEARCH, TRIALS, BEST = "search.toml", "trials.csv", "best.toml"


@dataclass(frozen=True)
class Range:
    """The search range of one setting: from low to high, or a list of choices."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    first: tuple[float, ...] = ()
    """Values to try before the search starts, with all other settings at their initial values."""

    def __post_init__(self) -> None:
        if not self.choices and not -math.inf < self.low <= self.high < math.inf:
            raise UserError(f"must have choices, or finite low <= high, got {self.low} and {self.high}")
        if not self.choices and self.log and self.low <= 0:
            raise UserError(f"low must be above 0 with log, got {self.low}")

    def suggest(self, trial: optuna.trial.Trial, name: str) -> Any:
        """The value for a trial."""
        if self.choices:
            return self.value(trial.suggest_categorical(name, list(map(json.dumps, self.choices))))
        return self.value(trial.suggest_float(name, self.low, self.high, log=self.log))

    def value(self, stored: Any) -> Any:
        """Convert a value from Optuna: numbers are rounded to three digits, choices are parsed."""
        return json.loads(stored) if self.choices else float(f"{stored:.3g}")

    def stored(self, value: Any) -> Any:
        """Convert a value for Optuna; None if it is outside the range."""
        if self.choices:
            text = json.dumps(value)
            return text if text in map(json.dumps, self.choices) else None
        return value if self.low <= value <= self.high else None


def space_of(method: str, without: set[str], path: Path | None = None) -> dict[str, Range]:
    """The search space of a method: the learning rate and its hyper-parameters, except those in `without`."""
    path = path or SPACES
    tables, (base, around) = read_toml(path), split_name(method)
    own = {name: tables.get(name, {}) for name in ("all", base, *around)}
    if not all(isinstance(each, dict) and all(isinstance(v, dict) for v in each.values()) for each in own.values()):
        raise UserError(f"{path}: each setting must be a table, as in [all.lr]")
    values = own["all"] | own[base]
    for name in around:
        values |= {f"{name}.{each}": value for each, value in own[name].items()}
    return {name: make(Range, value, f"{path}: {name}") for name, value in values.items() if name not in without}


@dataclass(frozen=True)
class Search:
    """The search for one method."""

    run: Run
    """The initial settings, used for the first trial. `validation` must be set."""
    space: dict[str, Range]
    trials: int

    def __post_init__(self) -> None:
        if not self.space:
            raise UserError(f"tune: no setting is left to search for {self.run.label}")
        if not self.run.config.problem.validation:
            raise UserError("validation: must be above 0, since settings must not be selected on the test data")
        if self.trials < 1:
            raise UserError(f"trials: must be at least 1, got {self.trials}")
        for name, each in self.space.items():
            if name not in self.run.plain():
                raise unknown("space: setting", name, self.run.plain())
            for value in (*(each.choices or (each.low, each.high)), *each.first):
                self.with_values({name: value})  # checks the value before anything is written

    @property
    def name(self) -> str:
        """A unique folder name. It does not depend on the number of trials."""
        own = self.run.method.split(":")[-1].lower()
        return f"{self.run.config.problem.data.split(':')[0]}-{own}-{digest(self._identity())}"

    def _identity(self) -> str:
        return self.run.identity() + json.dumps({name: vars(each) for name, each in self.space.items()}, sort_keys=True)

    def to_toml(self) -> str:
        """The search space and the initial settings as TOML text."""
        config = self.run.config
        start = plain(config.problem) | plain(config.settings)
        space = {name: {k: v for k, v in vars(each).items() if v} for name, each in self.space.items()}
        head = {"search": self.name, "method": self.run.method}
        return tomli_w.dumps({**head, **start, self.run.method: self.run.hyper_parameters(), "space": space})

    def first_trials(self) -> list[dict[str, Any]]:
        """The trials before the search starts: the initial settings, then each of the `first` values."""
        start, values = {}, self.run.plain()
        for name, each in self.space.items():
            value = values[name]
            if name == "server_lr" and value == "none":
                value = self.run.algorithm.default_server_lr
            value = each.stored(list(value) if isinstance(value, tuple) else value)
            if value is not None:
                start[name] = value
        return [start] + [start | {name: value} for name, each in self.space.items() for value in each.first]

    def with_values(self, values: dict[str, Any]) -> Run:
        """The run with these values."""
        return Run.make(self.run.method, self.run.plain() | values, self.run.label, where="tune")


@dataclass(frozen=True)
class Found:
    """The best result of a search so far."""

    settings: dict[str, Any]
    accuracy: float  # on the validation data
    finished: int  # number of trials that have ended


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
        path = self.folder / TRIALS
        if not path.is_file():
            return None
        trials = read_trials(path)
        whole = [trial for trial in trials if trial["state"] == "complete"]
        if not whole:
            return None
        best = max(whole, key=lambda trial: (trial["accuracy"], -trial["trial"]))
        if missing := [name for name in self.search.space if name not in best]:
            raise UserError(f"{path}: has no column {missing[0]}: remove the file, the search rewrites it")
        return Found({name: best[name] for name in self.search.space}, best["accuracy"], len(trials))

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
            study = self._study()
            if (at_once := self._at_once(study)) > 1:
                return self._search_at_once(study, at_once, pool, display)
            return self._search(study, display)

    def _search(self, study: optuna.Study, display: Display) -> Found:
        optuna = import_optuna()
        error: Exception | None = None
        while len(study.get_trials(deepcopy=False, states=ended())) < self.search.trials:
            trial = self._next(study)
            values = {name: each.suggest(trial, name) for name, each in self.search.space.items()}
            run = replace(self.search.with_values(values), label=f"{self.search.run.label}, trial {trial.number + 1}")
            folder = self.folder / "unfinished" / f"{trial.number:03d}"
            try:
                study.tell(trial, self._accuracy(trial, unfinished(folder, run), display))
            except optuna.TrialPruned:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                display.skip(run)
            except UserError as reason:
                error = reason
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                display.skip(run)
            self._write(study)
            shutil.rmtree(folder, ignore_errors=True)
        return self._end(study, error)

    def _end(self, study: optuna.Study, error: Exception | None) -> Found:
        self._write(study)  # in case the process was killed before the last trial was written
        shutil.rmtree(self.folder / "unfinished", ignore_errors=True)
        found = self.found()
        if found is None:
            why = error or "all were pruned or diverged; try smaller learning rates"
            raise UserError(f"tune: no trial of {self.search.run.label} was completed ({why})")
        return found

    def _at_once(self, study: optuna.Study) -> int:
        """The number of trials at once, recorded when the search started; 1 in searches of earlier versions."""
        if AT_ONCE not in study.user_attrs:
            started = study.get_trials(deepcopy=False, states=(*ended(), import_optuna().trial.TrialState.RUNNING))
            study.set_user_attr(AT_ONCE, 1 if started else self.at_once)
        return int(study.user_attrs[AT_ONCE])

    def _search_at_once(self, study: optuna.Study, size: int, pool: WorkPool, display: Display) -> Found:
        """Search with batches of this many trials. All results of a batch are recorded before the first is told."""
        error: Exception | None = None
        while (done := len(study.get_trials(deepcopy=False, states=ended()))) < self.search.trials:
            first = done // size * size
            numbers = range(first, min(first + size, self.search.trials))
            trials = [self._numbered(study, number) for number in numbers]
            left = [trial for trial in trials if trial is not None]
            new = [trial for trial in left if OUTCOME not in trial.user_attrs]
            error = self._train(study, first, new, pool, display) or error
            for trial in left:
                tell_outcome(study, trial)
            self._write(study)
            for number in numbers:
                shutil.rmtree(self._place(number), ignore_errors=True)
        return self._end(study, error)

    def _place(self, number: int) -> Path:
        return self.folder / "unfinished" / f"{number:03d}"

    def _numbered(self, study: optuna.Study, number: int) -> optuna.trial.Trial | None:
        """The trial of this number, asked for if it is new; None if it has ended."""
        optuna = import_optuna()
        study.sampler = self._sampler(number)
        trials = study.get_trials(deepcopy=False)
        if number < len(trials) and trials[number].state in ended():
            return None
        new = number >= len(trials) or trials[number].state == optuna.trial.TrialState.WAITING
        trial = study.ask() if new else optuna.trial.Trial(study, trials[number]._trial_id)
        for name, each in self.search.space.items():
            each.suggest(trial, name)
        return trial

    def _train(
        self, study: optuna.Study, first: int, trials: Sequence[optuna.trial.Trial], pool: WorkPool, display: Display
    ) -> Exception | None:
        """Train trials and record their outcomes; the error of one that failed. Other errors are raised at the end."""
        complete = study.get_trials(deepcopy=False, states=(import_optuna().trial.TrialState.COMPLETE,))
        # Of a batch that was told in part before a kill, no trial prunes another.
        known = tuple((each.value, each.intermediate_values) for each in complete if each.number < first)
        works = []
        for trial in trials:
            values = {name: each.value(trial.params[name]) for name, each in self.search.space.items()}
            run = replace(self.search.with_values(values), label=f"{self.search.run.label}, trial {trial.number + 1}")
            works.append(TrialWork(self._place(trial.number), run, self.every, known))
        trial_of = {id(work): trial for work, trial in zip(works, trials, strict=True)}
        failed: Exception | None = None
        raised: Exception | None = None
        for work, answer in answers_of(works, pool, display):
            if isinstance(answer, UserError) and not isinstance(answer, LostJobError | BusyError):
                failed, answer = answer, {"state": "FAIL", "accuracy": None, "reports": []}
                display.skip(work.run)
            if isinstance(answer, Exception):
                raised = answer
            else:
                trial_of[id(work)].set_user_attr(OUTCOME, answer)
        if raised:
            raise raised
        return failed

    def _sampler(self, number: int) -> optuna.samplers.TPESampler:
        seed = (self.search.run.config.settings.seed + number) % 2**32
        return import_optuna().samplers.TPESampler(seed=seed, n_startup_trials=3)  # type: ignore[no-any-return]

    def _study(self) -> optuna.Study:
        optuna = import_optuna()
        path = self.folder / SEARCH
        if path.exists() and read_toml(path).get("search") != self.search.name:
            raise UserError(f"{self.folder}: contains a different search; give another --out")
        write_text(path, self.search.to_toml())
        journal = self.folder / "journal.log"
        cut_torn_line(journal)
        try:
            study = optuna.create_study(
                storage=journal_storage(journal),
                study_name=self.search.name,
                direction="maximize",
                load_if_exists=True,
                pruner=median_pruner(self.search.run),
            )
        except OSError:
            raise
        except Exception as error:  # Optuna raises no specific error for a damaged journal
            raise UserError(
                f"{journal}: cannot be read ({type(error).__name__}: {error}): move {self.folder} away"
            ) from error
        for values in self.search.first_trials():
            study.enqueue_trial(values, skip_if_exists=True)
        return study  # type: ignore[no-any-return]

    def _next(self, study: optuna.Study) -> optuna.trial.Trial:
        """The trial that was interrupted, or a new one."""
        optuna = import_optuna()
        running = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        number = len(study.get_trials(deepcopy=False, states=ended()))
        study.sampler = self._sampler(number)
        return optuna.trial.Trial(study, running[0]._trial_id) if running else study.ask()

    def _accuracy(self, trial: optuna.trial.Trial, folder: RunFolder, display: Display) -> float:
        """Train to the end, or until the trial is pruned."""
        optuna = import_optuna()
        reported = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        recent: deque[float] | None = None  # the last evaluations, including those before a resume

        def watch(record: Record) -> None:
            nonlocal recent
            display.record(folder.run, record)
            if recent is None:
                earlier = (each for each in folder.metrics() if each["round"] < record.round)
                recent = deque(accuracies(earlier), maxlen=3)
            if record.test_accuracy is None:
                return
            recent.append(record.test_accuracy)
            if record.round not in reported:
                trial.report(statistics.fmean(recent), record.round)
            if trial.should_prune() and record.round < folder.run.config.settings.rounds:
                raise optuna.TrialPruned

        try:
            folder.train(folder.run.config.task(), watch, self.every)
        except DivergedError as error:
            raise optuna.TrialPruned from error
        records = folder.metrics()
        if diverged(records):  # its accuracy does not count
            raise optuna.TrialPruned
        return judged(records)

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


def judged(records: Records) -> float:
    """The objective: the mean accuracy over the last ten evaluations, as in the tables."""
    known = accuracies(records)
    if not known:
        raise UserError("tune: this data set has no accuracy to optimise")
    return statistics.fmean(known[-10:])


def accuracies(records: Iterable[Mapping[str, Any]]) -> list[float]:
    """The accuracies of the evaluated rounds."""
    return [record["test_accuracy"] for record in records if record["test_accuracy"] is not None]


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


def tell_outcome(study: optuna.Study, trial: optuna.trial.Trial) -> None:
    """Tell Optuna the recorded outcome of a trial."""
    outcome = trial.user_attrs[OUTCOME]
    there = study.get_trials(deepcopy=False)[trial.number].intermediate_values
    for round, value in outcome["reports"]:
        if round not in there:
            trial.report(value, round)
    study.tell(trial, outcome["accuracy"], state=import_optuna().trial.TrialState[outcome["state"]])


def median_pruner(run: Run) -> optuna.pruners.MedianPruner:
    """Prunes trials below the median of the complete ones, after a third of the rounds."""
    warm_up = run.config.settings.rounds // 3
    return import_optuna().pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=warm_up)  # type: ignore[no-any-return]


def best_toml(results: Sequence[tuple[Search, Found]]) -> str:
    """The best settings of several methods on one task, as TOML text for --config of `run` and `compare`."""
    config = results[0][0].run.config
    aside = {"validation", "seed", *(name for search, _ in results for name in search.space)}
    common = {k: v for k, v in (plain(config.problem) | plain(config.settings)).items() if k not in aside}
    head = (
        {"method": results[0][0].run.method} if len(results) == 1 else {"methods": [s.run.method for s, _ in results]}
    )
    tables = {
        search.run.method: {k: v for k, v in search.run.hyper_parameters().items() if k not in search.space}
        | found.settings
        for search, found in results
    }
    return tomli_w.dumps({**head, **common, **tables})


def write_trials(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write one line per trial. Values are JSON."""
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: v if name == "state" else json.dumps(v) for name, v in row.items()} for row in rows)
    write_text(path, text.getvalue())


def read_trials(path: Path) -> list[dict[str, Any]]:
    """Read trials.csv."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            trials = [
                {name: value if name == "state" else json.loads(value) for name, value in row.items()}
                for row in csv.DictReader(file)
            ]
        for trial in trials:
            scored = isinstance(trial["accuracy"], int | float)
            if type(trial["trial"]) is not int or (trial["state"] == "complete" and not scored):
                raise ValueError("a trial has no number or no accuracy")
        return trials
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error}): remove the file, the search rewrites it") from error


class NoLock:
    """Replaces Optuna's lock of the journal, which remains if the process is killed. The folder lock is enough."""

    def acquire(self) -> bool:
        """Always succeeds."""
        return True

    def release(self) -> None:
        """Does nothing."""


def journal_storage(path: Path) -> Any:
    """Optuna's storage in a file. Errors while writing name the file."""
    optuna = import_optuna()

    class Journal(optuna.storages.journal.JournalFileBackend):  # type: ignore[name-defined,misc]
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            with writing(path):
                super().append_logs(logs)

    return optuna.storages.JournalStorage(Journal(str(path), NoLock()))


def cut_torn_line(path: Path) -> None:
    """Remove a truncated last line, which Optuna cannot read."""
    if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def ended() -> tuple[optuna.trial.TrialState, ...]:
    """The states of trials that have ended."""
    states = import_optuna().trial.TrialState
    return states.COMPLETE, states.PRUNED, states.FAIL


def import_optuna() -> ModuleType:
    """Import Optuna, an optional dependency, with warnings only."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("tune: requires Optuna: pip install 'fedmim[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
