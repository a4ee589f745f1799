"""The archive of finished runs: one file each, found by its full configuration alone."""

import csv
from dataclasses import replace

import pytest

from fedmim.errors import UserError
from fedmim.experiments.archive import Archive, identity, name_of, read
from fedmim.experiments.config import defaults
from fedmim.experiments.methods import Run

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
    assert read(archive.file(run))[0] == run


def test_the_rest_of_a_file_is_plain_csv(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run, RECORDS)
    lines = [line for line in archive.file(run).read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert [row["round"] for row in rows] == ["1", "2"]
    assert rows[1]["test_accuracy"] == "0.5123"


@pytest.mark.parametrize(
    "change", [{"lr": 0.2}, {"seed": 1}, {"rounds": 7}, {"beta": [0.9]}, {"eval_every": 2}, {"validation": 0.1}]
)
def test_any_other_setting_is_another_run(tmp_path, change):
    archive = Archive(tmp_path)
    archive.add(run_of(), RECORDS)
    assert archive.records(run_of(**change)) is None


def test_another_method_with_the_same_settings_is_another_run():
    assert identity(run_of("fedavg")) != identity(run_of("scaffold"))


def test_label_machine_and_engine_do_not_matter_and_no_path_of_the_machine_is_kept(tmp_path):
    archive = Archive(tmp_path)
    archive.add(run_of(data_dir="/home/someone/data"), RECORDS)
    assert archive.records(run_of(label="other", workers=3, engine="serial", device="cuda")) is not None
    assert "someone" not in archive.file(run_of()).read_text()


def test_a_setting_that_is_new_and_at_its_default_makes_no_other_run(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run, RECORDS)
    path = archive.file(run)
    older = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith("# validation")]
    path.write_text("".join(older))  # as before there was such a setting
    assert archive.records(run) is not None
    assert "validation" not in identity(run)
    assert archive.file(run_of(validation=0.5)) != path


def test_a_file_is_not_believed_by_its_name(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run_of(lr=0.7), RECORDS)
    archive.file(run_of(lr=0.7)).rename(archive.file(run))
    with pytest.raises(UserError, match="holds another run than its name says"):
        archive.records(run)


def test_damage_is_named(tmp_path):
    archive, run = Archive(tmp_path), run_of()
    archive.add(run, RECORDS)
    text = archive.file(run).read_text()
    for damaged in (text.replace("round,", "rund,"), text.replace("0.5123", "half"), "round\n1\n"):
        archive.file(run).write_text(damaged)
        with pytest.raises(UserError, match="not a run"):
            archive.records(run)


def test_names_can_be_read():
    run = run_of("fedcm", split="dirichlet:0.3", seed=2)
    assert name_of(run).startswith("digits-dirichlet-0.3-fedcm-seed2-")
    assert name_of(run) != name_of(replace(run, config=replace(run.config, lr=0.11)))
