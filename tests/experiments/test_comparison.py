"""Comparisons: one folder a run, the same clients for all, finished runs kept."""

import pytest

from fedmim.errors import UserError
from fedmim.experiments.comparison import Comparison, folder_names, run_folders
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run

SMALL = {"rounds": 2, "clients": 20, "local_epochs": 1, "model": "logistic"}


def comparison_of(*methods, seeds=(0, 1), **settings):
    runs = [Run.make(method, defaults("digits") | SMALL | settings) for method in methods]
    return Comparison(tuple(runs), seeds, target=0.5)


def test_a_comparison_survives_its_folder(tmp_path):
    made = comparison_of("fedavg", "fedmim", clip_norm=None)
    run_folders(made, tmp_path / "out")
    assert Comparison.open(tmp_path / "out") == made


def test_each_method_has_a_folder_for_each_seed_one_seed_after_the_other():
    names = [name for name, _ in comparison_of("fedavg", "fedmim").jobs()]
    assert names == ["fedavg-seed0", "fedmim-seed0", "fedavg-seed1", "fedmim-seed1"]


def test_folder_names_are_safe_and_different():
    assert folder_names(["FedMIM (alpha=[0.9])", "../../etc", "A b", "a-B", "//"]) == [
        "fedmim-alpha-0.9",
        "etc",
        "a-b",
        "a-b-2",
        "run",
    ]


def test_all_methods_of_a_seed_train_the_same_clients_from_the_same_model(tmp_path):
    folders = run_folders(comparison_of("fedavg", "fedmim", "scaffold", seeds=(3,)), tmp_path / "out")
    for folder in folders:
        folder.train(folder.run.config.task())
    histories = [folder.metrics() for folder in folders]
    assert len({tuple(map(str, (record["clients"] for record in history))) for history in histories}) == 1
    assert len({history[0]["lr"] for history in histories}) == 1


def test_the_methods_of_a_seed_share_one_task_and_another_seed_has_another():
    tasks = [run.config.task() for _, run in comparison_of("fedavg", "fedmim").jobs()]
    assert tasks[0] is tasks[1]
    assert tasks[2] is tasks[3]
    assert tasks[0] is not tasks[2]


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        run_folders(comparison_of("fedavg"), tmp_path)
    run_folders(comparison_of("fedavg"), tmp_path / "out")
    with pytest.raises(UserError, match="add --resume"):
        run_folders(comparison_of("fedavg"), tmp_path / "out")
    with pytest.raises(UserError, match="no comparison to resume"):
        run_folders(comparison_of("fedavg"), tmp_path / "other", resume=True)


def test_resuming_with_other_settings_is_refused_and_with_more_methods_goes_on(tmp_path):
    out = tmp_path / "out"
    folders = run_folders(comparison_of("fedavg", seeds=(0,)), out)
    folders[0].train(folders[0].run.config.task())
    with pytest.raises(UserError, match="lr cannot change when a run is resumed"):
        run_folders(comparison_of("fedavg", seeds=(0,), lr=0.3), out, resume=True)
    more = run_folders(comparison_of("fedavg", "fedcm", seeds=(0,)), out, resume=True)
    assert [folder.finished for folder in more] == [True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seeds": ()}, "seeds: "), ({"seeds": (1, 1)}, "seeds: "), ({"target": 1.5}, "target: ")],
)
def test_impossible_comparisons_are_refused(change, message):
    run = Run.make("fedavg", defaults("digits"))
    with pytest.raises(UserError, match=message):
        Comparison(**({"runs": (run,)} | change))


def test_a_broken_comparison_file_is_named(tmp_path):
    (tmp_path / "comparison.toml").write_text("seeds = [0]\n")
    with pytest.raises(UserError, match=r"comparison.toml: not a comparison"):
        Comparison.open(tmp_path)


def test_a_comparison_in_whose_making_a_kill_came_is_made_anew(tmp_path):
    (tmp_path / ".comparison.toml.part").write_text("seeds = [")
    (tmp_path / ".lock").touch()
    assert len(run_folders(comparison_of("fedavg", seeds=(0,)), tmp_path)) == 1
