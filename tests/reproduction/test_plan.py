"""The plan of a reproduction: one search for each row and data set."""

from fedmim.reproduction.experiment import TableRow
from fedmim.reproduction.plan import search_for
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
