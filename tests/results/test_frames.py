"""Runs as DataFrames: the files say the same, what has no value is null, and damaged runs are left out by name."""

import json
import subprocess
import sys
import tomllib

import pytest
from run_folders import comparison, evaluate_clients, fill, record

import fedmim
from fedmim.errors import UserError
from fedmim.experiments.archive import Archive
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder

pd = pytest.importorskip("pandas")
ENTRIES = [
    ("fedavg", None, {"local_steps": 4}),
    ("fedmim", "two steps", {"lr": 0.3}),
    ("fedmim", "none", {"alpha": [], "beta": [0.5]}),
    ("feddyn+leap", None, {"alpha": 0.02, "leap.alpha": [0.3, 0.2]}),
]


@pytest.fixture
def folders(tmp_path):
    return comparison(tmp_path / "runs", ENTRIES, seeds=(0, 1), rounds=12, target=0.6, clip_norm=None)


def files(folder):
    """The configuration and the records of a run, read without fedmim."""
    config = tomllib.loads((folder.path / "config.toml").read_text())
    return config, [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]


def plain(row):
    """A row as a dictionary, with None for null."""
    return {name: None if pd.isna(value) else value for name, value in row.items()}


def test_each_round_of_each_run_is_a_row_with_what_its_files_say(folders, tmp_path):
    frame = fedmim.load_runs(tmp_path)
    assert len(frame) == 8 * 12
    assert frame.columns.is_unique
    for folder in folders:
        config, records = files(folder)
        own = frame[frame["folder"] == str(folder.path)]
        assert own["round"].tolist() == list(range(1, 13))
        for row, known in zip(map(plain, own.to_dict("records")), records, strict=True):
            assert row["took_part"] == len(known.pop("clients"))
            assert row["round_lr"] == known.pop("lr")
            assert {name: row[name] for name in known} == known
            for name, value in config.items():
                if not isinstance(value, dict):  # a table: the hyper-parameters
                    assert row[name] == (None if value == "none" and name != "label" else value), name


def test_methods_without_a_hyper_parameter_have_null_there(folders, tmp_path):
    runs = fedmim.load_summary(tmp_path).set_index(["label", "seed"])
    assert runs["fedmim.alpha"].isna().tolist() == [True, False, False, True] * 2
    assert runs.loc[("two steps", 0), "fedmim.alpha"] == "0.6,0.3"
    assert runs.loc[("none", 1), "fedmim.alpha"] == ""  # no weights, which is not the same as no hyper-parameter
    assert runs.loc[("none", 1), "fedmim.beta"] == "0.5"
    assert runs["feddyn.alpha"].dropna().tolist() == [0.02, 0.02]
    assert runs["leap.alpha"].dropna().tolist() == ["0.3,0.2", "0.3,0.2"]


def test_dtypes_do_not_depend_on_which_values_are_missing(folders, tmp_path):
    both = fedmim.load_summary(tmp_path), fedmim.load_summary(folders[0].path, target=0.99)
    for runs in both:
        kinds = runs.dtypes.astype(str)
        assert set(kinds[["local_steps", "image_size", "rounds_to_target", "last_ten_evaluations"]]) == {"Int64"}
        assert set(kinds[["seed", "rounds", "rounds_done"]]) == {"int64"}
        assert set(kinds[["clip_norm", "server_lr", "epsilon", "lr", "final_accuracy"]]) == {"float64"}
        assert set(kinds[["augment", "drop_last", "finished", "diverged"]]) == {"bool"}
        assert set(kinds[["method", "label", "data", "data_dir", "folder"]]) == {"string"}
    assert both[1]["rounds_to_target"].isna().all()
    assert both[1]["clip_norm"].isna().all()
    rounds = fedmim.load_runs(tmp_path).dtypes.astype(str)
    assert set(rounds[["round", "bytes_up", "bytes_down", "refused"]]) == {"int64"}
    assert set(rounds[["test_accuracy", "consistency", "round_lr", "epsilon"]]) == {"float64"}


def test_each_run_is_a_row_with_its_metrics(folders, tmp_path):
    runs = fedmim.load_summary(tmp_path / "runs")
    assert runs[["label", "seed"]].values.tolist() == [
        [folder.run.label, folder.run.config.settings.seed] for folder in folders
    ]
    for folder, row in zip(folders, map(plain, runs.to_dict("records")), strict=True):
        _, records = files(folder)
        accuracies = [each["test_accuracy"] for each in records]
        reached = next((each["round"] for each in records if each["test_accuracy"] >= 0.6), None)
        assert row["target"] == 0.6  # of the comparison
        assert row["rounds_to_target"] == reached
        assert row["final_accuracy"] == accuracies[-1]
        assert row["best_accuracy"] == max(accuracies)
        assert row["last_ten_accuracy"] == pytest.approx(sum(accuracies[8:]) / 4)  # the last third of twelve rounds
        assert row["last_ten_evaluations"] == 4
        assert row["bytes_up"] == sum(each["bytes_up"] for each in records)
        assert row["bytes_to_target"] == sum(each["bytes_up"] + each["bytes_down"] for each in records[:reached])
        assert row["seconds"] == pytest.approx(sum(each["seconds"] for each in records))
        assert (row["rounds_done"], row["finished"], row["diverged"]) == (12, True, False)


def test_a_run_in_progress_and_one_that_diverged_say_so(tmp_path):
    for name, records in {
        "begun": [record(1, 0.5)],
        "lost": [record(t, 0.1, refused=10) | {"train_loss": None} for t in range(1, 7)],
        "new": [],
    }.items():
        values = defaults("digits") | {"rounds": 6}
        fill(RunFolder.create(tmp_path / name, Run.make("fedavg", values, name)), records)
    runs = fedmim.load_summary(tmp_path).set_index("label")
    assert runs["rounds_done"].to_dict() == {"begun": 1, "lost": 6, "new": 0}
    assert runs["finished"].to_dict() == {"begun": False, "lost": True, "new": False}
    assert runs["diverged"].to_dict() == {"begun": False, "lost": True, "new": False}
    assert runs["final_accuracy"].isna().to_dict() == {"begun": False, "lost": True, "new": True}
    assert runs["refused"].to_dict() == {"begun": 0, "lost": 60, "new": 0}
    assert len(fedmim.load_runs(tmp_path)) == 7


def test_an_archived_run_has_null_where_the_archive_keeps_nothing(tmp_path):
    run = Run.make("fedavg", defaults("digits") | {"rounds": 2})
    (tmp_path / "runs").mkdir()
    Archive(tmp_path / "runs")._write(run.name(), run.to_toml(), [record(1, None), record(2, 0.5)])
    frame = fedmim.load_runs(tmp_path)
    assert frame["test_accuracy"].isna().tolist() == [True, False]
    assert frame[["round_lr", "took_part", "failed", "epsilon"]].isna().all(axis=None)


def test_a_users_own_method_is_read_without_its_code(tmp_path):
    folder = comparison(tmp_path, [("fedavg", "own", {})], rounds=2)[0]
    path = folder.path / "config.toml"
    text = path.read_text().replace('method = "fedavg"', 'method = "gone.py:Slow"').replace("[fedavg]", "")
    path.write_text(text + '["gone.py:Slow"]\nfactor = 0.5\nsteps = [1, 2]\nlimit = "none"\nloud = true\n')
    (row,) = fedmim.load_summary(folder.path).to_dict("records")
    assert (row["method"], row["Slow.factor"], row["Slow.steps"]) == ("gone.py:Slow", 0.5, "1,2")
    assert row["Slow.loud"] is True
    assert pd.isna(row["Slow.limit"])


@pytest.mark.parametrize("load", [fedmim.load_runs, fedmim.load_summary])
def test_a_damaged_run_is_left_out_with_a_warning_that_names_it(load, folders, tmp_path):
    (folders[1].path / "metrics.jsonl").write_text("{]\n")
    (folders[2].path / "config.toml").write_text("lr = ")
    with pytest.warns(UserWarning, match="skipped") as told:
        frame = load(tmp_path)
    messages = sorted(str(each.message) for each in told)
    assert len(messages) == 2
    assert any(str(folders[1].path) in each for each in messages)
    assert any(str(folders[2].path) in each for each in messages)
    assert frame["folder"].nunique() == 6


def test_a_path_without_runs_and_no_path_are_errors(tmp_path):
    with pytest.raises(UserError, match="there are no runs here"):
        fedmim.load_runs(tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        fedmim.load_summary(tmp_path / "missing")
    with pytest.raises(UserError, match="paths: give at least one"):
        fedmim.load_runs()


def test_without_pandas_one_line_names_the_extra(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for load in (fedmim.load_runs, fedmim.load_summary):
        with pytest.raises(UserError, match=r"requires pandas: pip install 'fedmim\[pandas\]'"):
            load(folders[0].path)


def test_pandas_is_imported_only_when_it_is_used():
    program = "import sys, fedmim; fedmim.load_runs; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_each_evaluation_of_each_client_is_a_row(folders, tmp_path):
    evaluate_clients(folders[1], (6, [0.5, None, 1], None), (12, [0.25, None, 0.75], [0.5, None, 1]))
    frame = fedmim.load_clients(tmp_path)
    assert len(frame) == 6
    assert frame["folder"].unique().tolist() == [str(folders[1].path)]
    assert set(frame["folder"]) < set(fedmim.load_summary(tmp_path)["folder"])
    assert plain(frame.iloc[5]) == {
        "method": folders[1].run.method,
        "label": folders[1].run.label,
        "seed": folders[1].run.config.settings.seed,
        "round": 12,
        "client": 2,
        "name": "<b>c</b>",
        "size": 400,
        "evaluated_on": "test",
        "metric": 0.75,
        "personal": 1.0,
        "folder": str(folders[1].path),
    }
    assert plain(frame.iloc[2])["personal"] is None
    assert plain(frame.iloc[4])["metric"] is None
    assert [str(each) for each in frame.dtypes] == [
        *("string", "string", "int64", "int64", "int64", "string", "int64", "string", "float64", "float64", "string")
    ]


def test_runs_without_evaluated_clients_give_an_empty_frame_and_damage_is_named(folders, tmp_path):
    empty = fedmim.load_clients(tmp_path)
    assert len(empty) == 0
    evaluate_clients(folders[0], (6, [0.5, 0.5, 1], None))
    evaluate_clients(folders[1], (6, [0.5], None))
    with pytest.warns(UserWarning, match=r"skipped: .*per_client.jsonl: line 2 is damaged"):
        frame = fedmim.load_clients(tmp_path)
    assert list(frame.columns) == list(empty.columns)
    assert frame.dtypes.equals(empty.dtypes)
    assert len(frame) == 3
