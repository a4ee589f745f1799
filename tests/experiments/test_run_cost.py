"""The order in which runs start when several are trained at once."""

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_cost import longest_first


def run_of(method="fedavg", data="digits", **settings):
    return Run.make(method, defaults(data) | settings)


def test_runs_with_more_rounds_or_more_gradients_per_step_start_first():
    runs = [run_of(), run_of("fedsmoo"), run_of(rounds=1), run_of("fedmim"), run_of("fedavg+sharp")]
    assert longest_first(runs) == [1, 4, 0, 3, 2]


def test_a_data_set_and_a_seed_are_complete_before_the_next():
    runs = [
        run_of(seed=1),
        run_of("fedsam", data="mnist1d"),
        run_of("fedsam", seed=0),
        run_of("fedsam", seed=1),
        run_of("fedavg", data="mnist1d"),
    ]
    assert longest_first(runs) == [3, 0, 1, 4, 2]
