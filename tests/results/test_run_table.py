"""The table of all runs of a group."""

from run_folders import fill, record

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results
from fedmim.results.run_table import run_table


def test_the_rounds_of_a_run_say_where_it_stopped_or_how_many_it_has_left(tmp_path):
    folders = []
    for seed, accuracies in enumerate([(0.1, 0.5), (0.4, 0.3, 0.2, 0.4), (0.1, 0.2)]):
        values = defaults("digits") | {"rounds": 9, "seed": seed, "until": 0.5, "patience": 3}
        folders.append(RunFolder.create(tmp_path / str(seed), Run.make("fedavg", values)))
        fill(folders[-1], [record(t, accuracy) for t, accuracy in enumerate(accuracies, start=1)])
    (group,) = group_runs(load_results(folders))
    assert [row.rounds for row in run_table(group).rows] == [
        "2 (reached 0.5 in round 2)",
        "4 (stopped in round 4, no improvement since round 1)",
        "2 of 9",
    ]
