"""The plan of a reproduction: one search for each row and data set, or for each cell."""

from pathlib import Path

import pytest

from fedmim.errors import UserError
from fedmim.experiments.sweep import Sweep
from fedmim.reproduction.experiment import BEYOND, PaperExperiment, TableRow
from fedmim.reproduction.plan import ReproductionPlan, search_for
from fedmim.reproduction.scale import Scale


def test_a_scale_searches_once_for_all_columns_on_other_seeds_than_its_runs():
    scale = Scale.read("cpu")
    search = search_for(TableRow("FedMIM", "fedmim", {}), "cifar10", scale, {})
    assert search.run.config.settings.seed not in scale.seeds
    assert (search.run.config.problem.split, search.run.config.problem.validation, search.trials) == (
        "dirichlet:0.1",
        0.1,
        12,
    )
    rate_alone = search_for(TableRow("0.9 | -", "fedmim", {"alpha": [0.9], "beta": []}), "cifar10", scale, {})
    assert set(rate_alone.space) == {"lr"}
    assert rate_alone.trials == scale.tune.rate_trials
    assert rate_alone.name != search.name


def test_early_stopping_is_for_the_runs_and_not_for_their_searches():
    row, scale = TableRow("FedAvg", "fedavg", {}), Scale.read("cpu")
    usual, stopping = (search_for(row, "cifar10", scale, own) for own in ({}, {"until": 0.5, "patience": 3}))
    assert stopping == usual


def plan_of(name, scale):
    experiment = scale.fitted(PaperExperiment.read(name))
    return experiment, ReproductionPlan((experiment,), scale, scale.seeds, {}, Sweep(Path("nowhere")))


def test_each_column_has_its_own_search_with_its_settings_where_the_scale_says_so():
    experiment, plan = plan_of("family", Scale.read("mnist1d"))
    tuners = plan.tuners(experiment)
    assert len(plan.searches()) == len(tuners) == len(experiment.rows) * len(experiment.columns)
    for column in experiment.columns:
        config = tuners["mnist1d", column.label, "FedDyn + leap"].run.config
        assert {name: config.flat()[name] for name in column.settings} == column.settings
    assert {tuner.search.trials for tuner in tuners.values()} == {12}  # however many hyper-parameters


def test_all_methods_of_the_family_have_the_same_number_of_trials_on_cifar_too():
    experiment, plan = plan_of("family", Scale.read("cpu"))
    assert {tuner.search.trials for tuner in plan.tuners(experiment).values()} == {12}
    assert len(plan.searches()) == len(experiment.rows) * len(experiment.data)
    assert {column.settings["local_epochs"] for column in experiment.columns} == {1, 5}  # searched with 1
    folders = {row: tuner.folder.name for (data, _, row), tuner in plan.tuners(experiment).items() if data == "cifar10"}
    table1, usual = plan_of("table1", Scale.read("cpu"))
    shared = {row: tuner.folder.name for (data, _, row), tuner in usual.tuners(table1).items() if data == "cifar10"}
    assert folders["FedMIM"] == shared["FedMIM"]
    assert folders["FedAvg"] == f"{shared['FedAvg']}-12"  # the tables use six trials for the learning rate alone


@pytest.mark.parametrize("name", BEYOND)
def test_an_experiment_runs_only_at_the_scales_that_it_is_made_for(name):
    experiment = PaperExperiment.read(name)
    for scale in experiment.fits:
        assert Scale.read(scale).fitted(experiment).columns
    with pytest.raises(UserError, match=f"scale: {name} is not made for paper; give --scale"):
        Scale.read("paper").fitted(experiment)


def test_the_numbers_of_the_rows_are_their_look_ahead_in_increments():
    for row in PaperExperiment.read("look-ahead").rows:
        if row.method == "fedmim":
            assert row.settings["beta_unit"] == "round"  # whole increments
            beta = row.settings["beta"] or [0.0, 0.0]
            assert beta == pytest.approx([row.x * weight for weight in row.settings["alpha"]])
        else:
            assert row.settings["leap.ahead"] == row.x
