"""The journal of a search: Optuna's storage in a file, from which the search is resumed."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedmim.errors import UserError
from fedmim.experiments.search import Search
from fedmim.files import writing

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
AT_ONCE, OUTCOME = "trials at once", "outcome"  # attributes in the journal


def open_study(search: Search, folder: Path) -> optuna.Study:
    """Create the study of a search or read it from the journal."""
    path = folder / JOURNAL
    cut_torn_line(path)
    try:
        study: optuna.Study = import_optuna().create_study(
            storage=journal_storage(path), study_name=search.name, direction="maximize", load_if_exists=True
        )
    except OSError:
        raise
    except Exception as error:  # Optuna raises no specific error for a damaged journal
        raise UserError(f"{path}: cannot be read ({type(error).__name__}: {error}): move {folder} away") from error
    for values in search.first_trials():
        study.enqueue_trial(values, skip_if_exists=True)
    return study


def trials_at_once(study: optuna.Study, new: int) -> int:
    """The number of trials at once, recorded when the search started: `new` then, 1 in searches of earlier versions."""
    if AT_ONCE not in study.user_attrs:
        started = study.get_trials(deepcopy=False, states=(*ended(), import_optuna().trial.TrialState.RUNNING))
        study.set_user_attr(AT_ONCE, 1 if started else new)
    return int(study.user_attrs[AT_ONCE])


def numbered_trial(study: optuna.Study, search: Search, number: int) -> optuna.trial.Trial | None:
    """The trial of this number, with its values, asked for if it is new; None if it has ended."""
    optuna = import_optuna()
    seed = (search.run.config.settings.seed + number) % 2**32
    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=3)
    trials = study.get_trials(deepcopy=False)
    if number < len(trials) and trials[number].state in ended():
        return None
    new = number >= len(trials) or trials[number].state == optuna.trial.TrialState.WAITING
    trial = study.ask() if new else optuna.trial.Trial(study, trials[number]._trial_id)
    for name, each in search.space.items():
        each.suggest(trial, name)
    return trial


def tell_outcome(study: optuna.Study, trial: optuna.trial.Trial) -> None:
    """Tell Optuna the recorded outcome of a trial."""
    outcome = trial.user_attrs[OUTCOME]
    there = study.get_trials(deepcopy=False)[trial.number].intermediate_values
    for round, value in outcome["reports"]:
        if round not in there:
            trial.report(value, round)
    study.tell(trial, outcome["accuracy"], state=import_optuna().trial.TrialState[outcome["state"]])


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
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "IProgress not found")  # tqdm's in notebooks; no bar of Optuna is used
            import optuna
    except ImportError as error:
        raise UserError("tune: requires Optuna: pip install 'fedmim[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
