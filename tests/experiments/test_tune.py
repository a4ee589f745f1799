"""Tuning: on held-out training data, resumable to the same search, its best settings as a file that others take."""

import errno
import json
import os
import sys
import tomllib

import optuna
import pytest

from fedmim import Task
from fedmim.cli import main
from fedmim.data import load
from fedmim.errors import BusyError, UserError
from fedmim.experiments import run_folder, tune
from fedmim.experiments.config import defaults
from fedmim.experiments.config_file import ConfigFile, new_comparison
from fedmim.experiments.jobs import JobPool
from fedmim.experiments.metrics_file import read_records
from fedmim.experiments.run import Run
from fedmim.experiments.search import Range, Search, space_of
from fedmim.experiments.search_journal import cut_torn_line
from fedmim.experiments.search_results import best_toml, read_trials, write_trials
from fedmim.experiments.tune import Tuner
from fedmim.files import LOCK, folder_lock, holding

SMALL = {"rounds": 9, "clients": 10, "local_epochs": 1, "model": "logistic", "validation": 0.2}


def search_of(method="fedmim", trials=7, fixed=(), **settings):
    run = Run.make(method, defaults("digits") | SMALL | settings)
    return Search(run, space_of(method, {*fixed, *settings}), trials)


class Watch:
    def __init__(self, stop_at=None):
        self.count, self.stop_at, self.skipped = 0, stop_at, []

    def record(self, run, record):
        self.count += 1
        if self.count == self.stop_at:
            raise KeyboardInterrupt

    def skip(self, run):
        self.skipped.append(run.label)


def test_a_search_that_was_stopped_is_the_one_that_was_not(tmp_path):
    search = search_of()
    whole = Tuner(search, tmp_path / "whole")
    found = whole(Watch())
    assert found.finished == 7
    parts = Tuner(search, tmp_path / "parts", every=0)
    for stop in (4, 20, 25):
        with pytest.raises(KeyboardInterrupt):
            parts(Watch(stop))
        with (tmp_path / "parts" / "journal.log").open("a") as journal:
            journal.write('{"op_code": 5, "study')  # a line cut off by a kill
    assert parts(Watch()) == found
    assert read_trials(tmp_path / "parts" / "trials.csv") == read_trials(tmp_path / "whole" / "trials.csv")
    assert parts.finished
    watch = Watch()
    assert parts(watch) == found
    assert watch.count == 0
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        LOCK,
        "best.toml",
        "journal.log",
        "search.toml",
        "trials.csv",
    ]


def test_the_records_of_a_trial_are_read_as_often_however_many_rounds_it_has(tmp_path, monkeypatch):
    reads = {}
    for rounds in (3, 12):
        read = []
        monkeypatch.setattr(run_folder, "read_records", lambda path, read=read: read.append(path) or read_records(path))
        Tuner(search_of(trials=1, rounds=rounds), tmp_path / str(rounds))(Watch())
        reads[rounds] = len(read)
    assert reads[12] == reads[3] <= 4


def test_one_process_at_a_time_searches(tmp_path):
    tuner = Tuner(search_of(trials=1), tmp_path)
    with holding(folder_lock(tmp_path)), pytest.raises(BusyError, match="another process"):
        tuner(Watch())
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert tuner(Watch()).finished == 1


def test_the_first_trials_are_the_start_and_the_ladder_of_rates_and_hopeless_trials_stop_early(tmp_path):
    search = search_of("fedavg", trials=8)
    watch = Watch()
    found = Tuner(search, tmp_path)(watch)
    trials = read_trials(tmp_path / "trials.csv")
    assert [trial["lr"] for trial in trials[:3]] == [0.1, 0.3, 1.0]
    assert len(trials) == 8
    pruned = [trial for trial in trials if trial["state"] == "pruned"]
    assert pruned
    assert all(3 <= trial["rounds"] < 9 for trial in pruned)
    assert [f"FedAvg, trial {trial['trial']}" for trial in pruned] == watch.skipped
    whole = [trial for trial in trials if trial["state"] == "complete"]
    assert found.accuracy == max(trial["accuracy"] for trial in whole)
    assert found.settings == {"lr": next(trial["lr"] for trial in whole if trial["accuracy"] == found.accuracy)}


def test_a_trial_is_judged_by_the_held_out_part_of_the_training_data(tmp_path):
    search = search_of("fedavg", trials=1)
    Tuner(search, tmp_path)(Watch())
    seen = search.run.config.task()
    held = len(seen.test[0])
    data = load("digits")
    assert held == pytest.approx(0.2 * len(data.train[0]), abs=5)
    assert sum(map(seen.size, range(10))) == len(data.train[0]) - held
    task = Task.named("digits", clients=10, model="logistic", validation=0.2)
    assert (task.test[0] == seen.test[0]).all()
    # And by nothing else: the accuracy of the only trial is a multiple of one held-out sample, averaged over 9 rounds.
    (trial,) = read_trials(tmp_path / "trials.csv")
    assert trial["accuracy"] * held * 9 == pytest.approx(round(trial["accuracy"] * held * 9), abs=1e-6)


def test_the_best_settings_are_a_file_that_run_and_compare_take(tmp_path):
    results = []
    for method in ("fedmim", "fedadam"):
        tuner = Tuner(search_of(method, trials=2), tmp_path / method)
        results.append((tuner.search, tuner(Watch())))
    found = results[0][1].settings
    file = ConfigFile.read(str(tmp_path / "fedmim" / "best.toml"))
    run = Run.make(file.command["method"], file.values("fedmim", None))
    assert (run.config.settings.lr, run.algorithm.alpha) == (found["lr"], tuple(found["alpha"]))
    assert (run.config.problem.model, run.config.settings.rounds, run.config.problem.validation) == ("logistic", 9, 0.0)
    both = tmp_path / "both.toml"
    both.write_text(best_toml(results))
    file = ConfigFile.read(str(both))
    runs = new_comparison(file, file.variants(), {}, {}, (0,), None).runs
    assert [(run.method, run.config.settings.lr) for run in runs] == [
        (search.run.method, found.settings["lr"]) for search, found in results
    ]
    assert runs[1].config.settings.server_lr == results[1][1].settings["server_lr"]
    assert runs[0].config.settings.server_lr is None


def test_a_search_keeps_to_its_folder(tmp_path):
    Tuner(search_of("fedavg", trials=1), tmp_path)(Watch())
    with pytest.raises(UserError, match="contains a different search"):
        Tuner(search_of("fedavg", trials=1, weight_decay=0.0), tmp_path)(Watch())
    more = Tuner(search_of("fedavg", trials=2), tmp_path)
    assert not more.finished
    watch = Watch()
    assert more(watch).finished == 2
    assert watch.count == 9


def test_settings_that_are_given_are_not_searched():
    assert set(space_of("fedmim", set())) == {"lr", "alpha", "beta"}
    assert set(space_of("fedmim", {"alpha", "beta"})) == {"lr"}
    with pytest.raises(UserError, match="no setting is left to search"):
        search_of("fedavg", fixed=["lr"])
    for name, value in {"until": 0.9, "patience": 3}.items():
        with pytest.raises(UserError, match=f"^{name}: must be none for tune"):
            search_of("fedavg", **{name: value})
    with pytest.raises(UserError, match="validation: must be above 0"):
        search_of("fedavg", validation=0.0)


def test_the_start_of_every_method_lies_within_its_space():
    for method in ("fedavg", "fedadam", "scaffold", "fedcm", "feddyn", "fedsam", "fedmim", "fedprox", "fedavgm"):
        search = search_of(method)
        start = search.first_trials()[0]
        assert set(start) == set(search.space), method
        values = {name: each.value(start[name]) for name, each in search.space.items()}
        moved = search.with_values(values)
        aside = {"server_lr"}  # the method's own, spelt out
        assert moved.algorithm == search.run.algorithm
        assert {k: v for k, v in moved.config.flat().items() if k not in aside} == {
            k: v for k, v in search.run.config.flat().items() if k not in aside
        }


def test_a_range_keeps_three_digits_and_knows_what_lies_outside():
    assert Range(low=0.01, high=1).value(0.123456) == 0.123
    assert Range(low=0.01, high=1).stored(2.0) is None
    choices = Range(choices=([0.9], [0.6, 0.3]))
    assert choices.value(choices.stored([0.6, 0.3])) == [0.6, 0.3]
    assert choices.stored([0.5]) is None


def test_a_torn_line_is_cut_and_a_whole_file_left_alone(tmp_path):
    path = tmp_path / "journal.log"
    for text, after in (("a\nb\nc", "a\nb\n"), ("a\n", "a\n"), ("a", ""), ("", "")):
        path.write_text(text)
        cut_torn_line(path)
        assert path.read_text() == after


def test_the_command_prints_toml_and_writes_a_picture(tmp_path, capsys):
    words = [
        "tune",
        "fedcm",
        "--trials",
        "3",
        "--rounds",
        "4",
        "--clients",
        "10",
        "--model",
        "logistic",
        "--alpha",
        "0.2",
        "--out",
    ]
    printed = []
    for _ in range(2):
        assert main([*words, str(tmp_path)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    values = tomllib.loads(printed[0])
    assert values["fedcm"]["alpha"] == 0.2
    assert 0.03 <= values["fedcm"]["lr"] <= 3
    (folder,) = tmp_path.iterdir()
    assert (folder / "search.png").stat().st_size > 10_000
    assert (folder / "search.svg").read_text().startswith("<?xml")
    assert json.loads((folder / "journal.log").read_text().splitlines()[0])


def test_without_optuna_the_remedy_is_named_and_no_folder_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'fedmim\[tune\]'"):
        Tuner(search_of("fedavg"), tmp_path / "search")(Watch())
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_with_the_data_shows_before_a_trial_is_spent(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "fedavg", "--data", "cifar10", "--data-dir", "nowhere", "--trials", "1"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all = 3", "each setting must be a table"),
        ("fedmim = 3", "each setting must be a table"),
        ("[all]\nlr = 3", "each setting must be a table"),
        ("[all.lr]\nlow = 1\nhigh = 0", "lr: must have choices, or finite low <= high"),
        ("[all.lr]\nlow = nan\nhigh = 1", "lr: must have choices, or finite low <= high"),
        ("[all.lr]\nlow = 0\nhigh = 1\nlog = true", "lr: low must be above 0 with log"),
        ("[all.lr]\nlow = -1\nhigh = 1", "lr: must be a finite number above 0, got -1"),
        ("[all.lr]\nchoices = ['fast']", "lr must be a number, got 'fast'"),
        ("[all.lr]\nlow = 0.1\nhigh = 1\nfirst = [-1.0]", "lr: must be a finite number above 0, got -1"),
        ("[all.speed]\nlow = 0\nhigh = 1", "'speed' is not known"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, capsys, text, message
):
    (tmp_path / "space.toml").write_text(text)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["tune", "fedmim", "--trials", "1", "--space", str(tmp_path / "space.toml")]) == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "here").iterdir())


def test_an_empty_method_is_refused(capsys):
    assert main(["tune", "fedmim,,fedavg"]) == 2
    assert "give the method" in capsys.readouterr().err


def test_choices_that_are_texts_come_back_from_the_list_of_trials(tmp_path):
    row = {"trial": 1, "state": "complete", "rounds": 2, "accuracy": 0.5, "weighting": "samples", "clip_norm": "none"}
    write_trials(tmp_path / "trials.csv", [row])
    assert read_trials(tmp_path / "trials.csv") == [row]


def test_a_lock_of_optunas_that_a_kill_left_behind_holds_nobody_up(tmp_path, monkeypatch):
    """The folder's own lock keeps others out, so Optuna takes none: it would wait half a minute for this one."""
    (tmp_path / "journal.log.lock").symlink_to(tmp_path / "journal.log")
    monkeypatch.setattr(os, "symlink", lambda *_: pytest.fail("a lock that a kill would leave behind"))
    assert Tuner(search_of(trials=1), tmp_path)(Watch()).finished == 1


def test_a_journal_that_the_disk_refuses_is_named_and_the_trial_is_not_lost(tmp_path, monkeypatch):
    tuner, append = Tuner(search_of(trials=1), tmp_path), optuna.storages.journal.JournalFileBackend.append_logs

    def full(journal, logs):
        if (tmp_path / "unfinished").exists():  # from the first report on
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(journal, logs)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
        with pytest.raises(OSError, match="No space left on device; free some space") as told:
            tuner(Watch())
    assert told.value.filename == str(tmp_path / "journal.log")
    assert tuner(Watch()).finished == 1
    assert [trial["state"] for trial in read_trials(tmp_path / "trials.csv")] == ["complete"]


def test_trials_at_once_are_the_same_however_many_are_trained_at_the_same_time_and_after_a_stop(tmp_path):
    search, whole = search_of("fedavg", trials=8), tmp_path / "whole"
    found = Tuner(search, whole, at_once=2)(Watch())
    assert found.finished == 8
    trials = read_trials(whole / "trials.csv")
    assert {trial["state"] for trial in trials} == {"complete", "pruned"}
    stopped = Tuner(search, tmp_path / "stopped", every=0, at_once=2)
    with pytest.raises(KeyboardInterrupt), JobPool(2) as pool:
        stopped(Watch(25), pool)  # in the second batch
    stopped.at_once = 3  # that of the first start counts
    with JobPool(2) as pool:
        assert stopped(Watch(), pool) == found
    assert read_trials(tmp_path / "stopped" / "trials.csv") == trials
    assert not (tmp_path / "stopped" / "unfinished").exists()


def test_a_batch_that_was_told_in_part_goes_on_with_the_recorded_outcomes(tmp_path, monkeypatch):
    search = search_of("fedavg", trials=6)
    found = Tuner(search, tmp_path / "whole", at_once=3)(Watch())
    tell, told = tune.tell_outcome, []

    def killed(study, trial):
        if len(told) == 4:
            raise KeyboardInterrupt
        told.append(tell(study, trial))

    with monkeypatch.context() as patch:
        patch.setattr(tune, "tell_outcome", killed)
        with pytest.raises(KeyboardInterrupt):
            Tuner(search, tmp_path / "part", at_once=3)(Watch())
    watch = Watch()
    assert Tuner(search, tmp_path / "part", at_once=3)(watch) == found
    assert watch.count == 0
    assert read_trials(tmp_path / "part" / "trials.csv") == read_trials(tmp_path / "whole" / "trials.csv")


def test_several_searches_at_once_have_the_trials_of_one_after_the_other(tmp_path, capsys):
    words = ["--trials", "2", "--rounds", "3", "--clients", "10", "--model", "logistic", "--data", "digits"]
    printed = []
    for jobs in ("1", "2"):
        assert main(["tune", "fedavg,fedprox", *words, "--jobs", jobs, "--out", str(tmp_path / jobs)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
