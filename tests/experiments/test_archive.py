"""The archive of finished runs: one folder each, found by its full configuration alone."""

import hashlib

import pytest

from fedmim.errors import UserError
from fedmim.experiments.archive import Archive
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder

RECORDS = [
    {
        "round": 1,
        "test_accuracy": None,
        "test_loss": None,
        "train_loss": 2.345678912,
        "consistency": 1.5e-7,
        "lr": 0.1,
        "clients": [1, 2],
        "bytes_up": 123456789,
        "bytes_down": 5,
        "refused": 1,
        "seconds": 0.25,
    },
    {
        "round": 2,
        "test_accuracy": 0.5123,
        "test_loss": 1.25,
        "train_loss": None,
        "consistency": None,
        "lr": 0.1,
        "clients": [0, 3],
        "bytes_up": 4,
        "bytes_down": 5,
        "refused": 2,
        "seconds": 12.0,
    },
]


def run_of(method="fedmim", label=None, **settings):
    return Run.make(method, defaults("digits") | settings, label)


def test_a_run_comes_back_as_it_went_in(tmp_path):
    archive, run = Archive(tmp_path / "runs"), run_of(beta=[], clip_norm=None)
    assert archive.records(run) is None
    archive.add(run, RECORDS)
    first, second = archive.records(run)
    assert first == {
        "round": 1,
        "test_accuracy": None,
        "test_loss": None,
        "train_loss": 2.34568,
        "consistency": 1.5e-7,
        "bytes_up": 123456789,
        "bytes_down": 5,
        "refused": 1,
        "seconds": 0.25,
    }
    assert (second["test_accuracy"], second["train_loss"], second["seconds"]) == (0.5123, None, 12.0)


def test_a_run_of_the_archive_is_a_run_folder(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run, RECORDS)
    folder = RunFolder.open(tmp_path / run.name())
    assert folder.run == run
    assert folder.metrics() == archive.records(run)
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.toml", "metrics.jsonl"]


def test_what_a_kill_left_half_written_is_no_run_and_is_written_anew(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    part = tmp_path / f".{run.name()}.part"
    part.mkdir()
    (part / "config.toml").write_text("half")
    assert archive.records(run) is None
    archive.add(run, RECORDS)
    assert len(archive.records(run)) == 2
    assert not part.exists()


@pytest.mark.parametrize(
    "change", [{"lr": 0.2}, {"seed": 1}, {"rounds": 7}, {"beta": [0.9]}, {"eval_every": 2}, {"validation": 0.1}]
)
def test_any_other_setting_is_another_run(tmp_path, change):
    archive = Archive(tmp_path)
    archive.add(run_of(), RECORDS)
    assert archive.records(run_of(**change)) is None


def test_another_method_with_the_same_settings_is_another_run():
    assert run_of("fedavg").identity() != run_of("scaffold").identity()


def test_label_machine_and_engine_do_not_matter_and_no_path_of_the_machine_is_kept(tmp_path):
    archive = Archive(tmp_path)
    archive.add(run_of(data_dir="/home/someone/data"), RECORDS)
    assert archive.records(run_of(label="other", workers=3, engine="serial", device="cuda")) is not None
    assert "someone" not in (tmp_path / run_of().name() / "config.toml").read_text()


def test_a_setting_that_is_new_and_at_its_default_makes_no_other_run(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run, RECORDS)
    path = tmp_path / run.name() / "config.toml"
    older = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith("validation")]
    path.write_text("".join(older))  # as before there was such a setting
    assert archive.records(run) is not None
    assert "validation" not in run.identity()
    assert run_of(validation=0.5).name() != run.name()


def test_the_identity_of_a_run_is_the_text_that_archived_runs_are_known_by():
    """The names of archived runs have its hash in them, so it may never change."""
    run = run_of("fedmim", lr=1.0, clip_norm=None, workers=3, seed=2)
    expected = '["fedmim", {}, {"batch_size": 5, "clip_norm": null, "lr": 1.0, "rounds": 200, "seed": 2}]'
    assert run.identity() == expected
    assert (
        run.name()
        == f"digits-dirichlet-0.1-fedmim-seed2-{hashlib.blake2b(expected.encode(), digest_size=4).hexdigest()}"
    )


def test_a_folder_is_not_believed_by_its_name(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run_of(lr=0.7), RECORDS)
    (tmp_path / run_of(lr=0.7).name()).rename(tmp_path / run.name())
    with pytest.raises(UserError, match="contains a different run than its name says"):
        archive.records(run)


OLDER = """\
# # fedmim 0.1.0, torch 2.13.0+cpu
# method = "fedmim"
# label = "FedMIM"
# rounds = 2
# data = "digits"
# workers = 1
#
# [fedmim]
# alpha = [
#     0.5,
# ]
round,test_accuracy,test_loss,train_loss,consistency,bytes_up,bytes_down,refused,seconds
1,,,2.34568,1.5e-07,123456789,5,1,0.25
2,0.5123,1.25,,,4,5,2,12
"""


def test_files_of_an_earlier_version_become_run_folders_with_the_same_identity(tmp_path):
    archive, run = Archive(tmp_path), Run.make("fedmim", {"rounds": 2, "alpha": [0.5]})
    (tmp_path / f"{run.name()}.csv").write_text(OLDER)
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    archive.convert()
    first, second = archive.records(run)
    assert (first["train_loss"], first["consistency"], first["bytes_up"]) == (2.34568, 1.5e-7, 123456789)
    assert (second["test_accuracy"], second["train_loss"], second["refused"]) == (0.5123, None, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([run.name(), "notes.csv"])
    archive.convert()  # there is nothing left to do
    (tmp_path / "broken.csv").write_text(OLDER.replace("round,", "rund,"))
    with pytest.raises(UserError, match=r"broken.csv: not a run of this archive"):
        archive.convert()


def test_converting_runs_no_code_that_a_file_names(tmp_path):
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    own = f"{tmp_path / 'own.py'}:Mine"
    text = OLDER.replace('method = "fedmim"', f'method = "{own}"').replace("[fedmim]", f'["{own}"]')
    (tmp_path / "digits-own-seed0-0badcafe.csv").write_text(text)
    Archive(tmp_path).convert()
    folder = RunFolder.open(tmp_path / "digits-own-seed0-0badcafe")
    assert (folder.run.method, folder.run.hyper_parameters(), len(folder.metrics())) == (own, {"alpha": [0.5]}, 2)
    assert not (tmp_path / "ran").exists()


def test_names_can_be_read():
    run = run_of("fedcm", split="dirichlet:0.3", seed=2)
    assert run.name().startswith("digits-dirichlet-0.3-fedcm-seed2-")
    assert run.name() != run.replace(lr=0.11).name()
