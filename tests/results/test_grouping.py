"""Groups of runs: which of them are compared, and under which names."""

import pytest
from run_folders import comparison, fill, record

from fedmim.errors import UserError
from fedmim.experiments.archive import Archive
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.report.wording import group_title
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results, natural_order


def lone(path, method="fedavg", rounds=3, accuracies=(0.1, 0.2, 0.3), label=None, **settings):
    folder = RunFolder.create(path, Run.make(method, defaults("digits") | {"rounds": rounds} | settings, label))
    fill(folder, [record(t, accuracy) for t, accuracy in enumerate(accuracies, start=1)])
    return folder


def found(*paths):
    return load_results(find_runs(paths, pytest.fail))


def labels(group):
    return [line.label for line in group.lines]


def test_a_comparison_keeps_its_order_and_its_target(tmp_path):
    comparison(tmp_path / "a", [("fedmim", "z", {}), ("fedavg", "a", {})], seeds=(1, 0), target=0.66)
    (group,) = group_runs(found(tmp_path / "a"))
    assert labels(group) == ["z", "a"]
    assert group.lines[0].seeds == (1, 0)
    assert group.target == 0.66
    assert group_runs(found(tmp_path), target=0.4)[0].target == 0.4


def test_runs_are_found_at_any_depth_and_each_once(tmp_path):
    lone(tmp_path / "deep" / "er" / "run", clients=5)
    lone(tmp_path / "other", seed=1, clients=5)
    folders = found(tmp_path, tmp_path / "deep", tmp_path / "other")
    assert sorted(folder.path.name for folder in folders) == ["other", "run"]
    (group,) = group_runs(folders)
    assert sorted(group.lines[0].seeds) == [0, 1]


def test_loose_runs_come_in_the_order_of_the_paper(tmp_path):
    for name in ("fedmim", "fedadam", "fedavg"):
        lone(tmp_path / name, name)
    assert labels(group_runs(found(tmp_path))[0]) == ["FedAvg", "FedAdam", "FedMIM"]


def test_another_data_set_is_another_problem(tmp_path):
    comparison(tmp_path / "a", [("fedavg", None, {}), ("fedmim", None, {"data": "cifar10"})])
    first, second = group_runs(found(tmp_path))
    assert (group_title(first), group_title(second)) == ("digits, dirichlet:0.1", "cifar10, dirichlet:0.1")


def test_what_goes_with_the_data_set_is_not_part_of_a_title(tmp_path):
    for number, split in enumerate(("iid", "dirichlet:0.1")):
        lone(tmp_path / f"digits-{number}", model="mlp", split=split)
        lone(tmp_path / f"cifar-{number}", model="cnn", split=split, data="cifar10")
    titles = [group_title(group) for group in group_runs(found(tmp_path))]
    assert sorted(titles) == ["cifar10, dirichlet:0.1", "cifar10, iid", "digits, dirichlet:0.1", "digits, iid"]


def test_a_setting_of_the_problem_splits_only_where_one_label_has_both(tmp_path):
    own = [("fedavg", "few", {"participation": 0.1}), ("fedavg", "many", {"participation": 0.5})]
    comparison(tmp_path / "told", own)
    assert labels(group_runs(found(tmp_path / "told"))[0]) == ["few", "many"]
    lone(tmp_path / "loose" / "few", participation=0.1)
    lone(tmp_path / "loose" / "many", participation=0.5)
    apart = group_runs(found(tmp_path / "loose"))
    assert [group_title(group) for group in apart] == ["digits, 10% per round", "digits, 50% per round"]


def test_runs_of_one_label_that_differ_in_the_method_become_variants(tmp_path):
    lone(tmp_path / "a", "fedmim", lr=0.1)
    lone(tmp_path / "b", "fedmim", lr=0.3)
    lone(tmp_path / "c", "fedmim", lr=0.3, alpha=[0.5])
    expected = ["lr=0.1, alpha=[0.6,0.3]", "lr=0.3, alpha=[0.6,0.3]", "lr=0.3, alpha=[0.5]"]
    assert labels(group_runs(found(tmp_path))[0]) == [f"FedMIM ({each})" for each in expected]


def test_what_leaves_the_result_alone_does_not_split_a_line(tmp_path):
    lone(tmp_path / "a", engine="serial")
    lone(tmp_path / "b", engine="vectorised", seed=1)
    (line,) = group_runs(found(tmp_path))[0].lines
    assert line.seeds == (0, 1)


def test_the_same_run_twice_is_told_apart_by_its_folder(tmp_path):
    lone(tmp_path / "x" / "a")
    lone(tmp_path / "y" / "a")
    assert labels(group_runs(found(tmp_path))[0]) == ["FedAvg (x/a)", "FedAvg (y/a)"]


def test_a_label_of_ones_own_is_not_mixed_up_with_one_that_was_extended(tmp_path):
    lone(tmp_path / "a" / "1", lr=0.1)
    lone(tmp_path / "a" / "2", lr=0.3)
    lone(tmp_path / "b" / "3", lr=0.3, label="FedAvg (lr=0.3)", clip_norm=1.0)
    lines = group_runs(found(tmp_path))[0].lines
    assert [line.label for line in lines] == ["FedAvg (lr=0.1)", "FedAvg (lr=0.3)", "FedAvg (lr=0.3) in b"]


def test_runs_in_progress_stay_out_of_the_mean_until_they_catch_up(tmp_path):
    lone(tmp_path / "a", accuracies=(0.1, 0.2, 0.3))
    lone(tmp_path / "b", accuracies=(0.9,), seed=1)
    lone(tmp_path / "c", accuracies=(), seed=2)
    (group,) = group_runs(found(tmp_path))
    assert group.lines[0].over_seeds("final_accuracy") == (0.3, 0.0)
    assert [run.seed for run in group.behind] == [1]
    assert [run.seed for run in group.waiting] == [2]
    assert group.count == (1, 3)


def test_a_run_that_cannot_be_read_is_named_and_left_out(tmp_path):
    lone(tmp_path / "good")
    lone(tmp_path / "bad")
    (tmp_path / "bad" / "config.toml").write_text("method = 3 = 4")
    told = []
    assert [folder.path.name for folder in find_runs([tmp_path], told.append)] == ["good"]
    assert len(told) == 1
    assert "bad/config.toml" in told[0]


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_without_runs_is_an_error_that_names_it(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        find_runs([tmp_path / name], pytest.fail)


def test_numbers_in_names_sort_by_value():
    assert sorted(["run-10", "run-9", "a", "run-9b"], key=natural_order) == ["a", "run-9", "run-9b", "run-10"]


def test_the_archive_of_a_sweep_is_read_as_run_folders_are(tmp_path):
    source = comparison(tmp_path / "a", [("fedavg", None, {}), ("fedmim", None, {})], seeds=(0, 1), rounds=3)
    archive = Archive(tmp_path / "sweep" / "runs")
    for folder in source:
        archive.add(folder.run, folder.metrics())
    (tmp_path / "sweep" / "table1.csv").write_text("data,method\n")  # not a run
    (expected,) = group_runs(load_results(source))
    (archived,) = group_runs(found(tmp_path / "sweep"))
    assert labels(archived) == ["FedAvg", "FedMIM"]
    for line, other in zip(archived.lines, expected.lines, strict=True):
        assert line.seeds == other.seeds
        assert line.over_seeds("last_ten_accuracy") == pytest.approx(other.over_seeds("last_ten_accuracy"), abs=1e-6)
        assert [len(each) for each in line.records] == [3, 3]


def test_seeds_that_stopped_in_different_rounds_are_one_finished_line(tmp_path):
    lone(tmp_path / "0", rounds=9, accuracies=(0.1, 0.5), until=0.5)
    lone(tmp_path / "1", rounds=9, accuracies=(0.1, 0.2, 0.3, 0.6), until=0.5, seed=1)
    (group,) = group_runs(found(tmp_path))
    (line,) = group.lines
    assert [run.stopped for run in line.runs] == ["reached 0.5 in round 2", "reached 0.5 in round 4"]
    assert (group.behind, group.count) == ((), (2, 2))
    lone(tmp_path / "2", rounds=9, accuracies=(0.1, 0.2, 0.3), until=0.5, seed=2)  # still trains
    (group,) = group_runs(found(tmp_path))
    assert [run.seed for run in group.behind] == [2]
    assert group.count == (2, 3)
