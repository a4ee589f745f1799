"""The cost of a run is put together from what was measured: rounds, evaluations, bytes."""

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.reproduction.dry_run import CostMeter


def run_of(method="fedavg", **settings):
    return Run.make(method, defaults("digits") | {"clients": 20, "model": "logistic"} | settings)


def test_a_run_takes_its_rounds_and_its_evaluations():
    clock = CostMeter()
    clock._measure = lambda run: (2.0, 5.0, 77)
    cost = clock(run_of(rounds=25, eval_every=10))
    assert cost.seconds == 25 * 2 + 3 * 5  # evaluations at 10, 20 and 25
    assert cost.in_progress == 77
    assert cost.kept > 25 * 40


def test_runs_that_differ_only_in_seed_rate_split_or_rounds_are_measured_once():
    clock, measured = CostMeter(), []
    clock._measure = lambda run: measured.append(run) or (1.0, 1.0, 1)
    for settings in ({}, {"seed": 1}, {"lr": 0.3}, {"split": "iid"}, {"rounds": 9}, {"eval_every": 3}):
        clock(run_of(**settings))
    assert len(measured) == 1
    for settings in ({"local_epochs": 2}, {"participation": 0.5}, {"model": "mlp"}, {"method": "fedsam"}):
        clock(run_of(**settings))
    assert len(measured) == 5


def test_a_measurement_trains_for_real_and_knows_what_the_method_keeps():
    clock = CostMeter()
    avg, scaffold = clock(run_of()), clock(run_of("scaffold"))
    assert avg.seconds > 0
    model = (64 + 1) * 10 * 4
    assert avg.in_progress == model
    assert scaffold.in_progress == 2 * model + 20 * model  # the server's control variate, and every client's


def test_own_data_with_its_own_clients_is_measured_too(tmp_path):
    (tmp_path / "task.py").write_text(
        "import fedmim, torch\n"
        "def make_task():\n"
        "    client = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])\n"
        "    return fedmim.Task(torch.nn.Linear(2, 2), [client] * 3, client)\n"
    )
    data = f"{tmp_path / 'task.py'}:make_task"
    assert CostMeter()(Run.make("fedavg", defaults(data))).seconds > 0
