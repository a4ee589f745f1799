"""The grids of the paper's tables and figures, at both scales and narrowed."""

import pytest
from tests.helpers.tuned import in_all_columns

from fedmim.algorithms import PAPER, FedMIM
from fedmim.errors import UserError
from fedmim.reproduction.experiment import ABLATIONS, OF_THE_PAPER, PaperExperiment, experiments_named, narrowed
from fedmim.reproduction.plan import cells, in_order
from fedmim.reproduction.scale import Scale


def grid(name, scale="paper", overrides=None, best=None, **narrow):
    experiment = narrowed(PaperExperiment.read(name), **narrow)
    scale = Scale.read(scale)
    known = {(data, row.label): {} for data in experiment.data for row in experiment.rows}
    tuned = in_all_columns(experiment, known if best is None else best)
    return cells(experiment, scale, overrides or {}, scale.seeds, tuned)


def runs(*arguments, **options):
    return [run for cell in grid(*arguments, **options) for run in cell.runs]


def test_the_papers_scale_has_the_papers_settings():
    for run in runs("table1"):
        config = run.config
        assert (
            config.problem.model,
            config.problem.clients,
            config.settings.participation,
            config.settings.rounds,
        ) == ("resnet18", 100, 0.1, 1000)
        assert (
            config.settings.local_epochs,
            config.settings.batch_size,
            config.settings.lr,
            config.settings.lr_decay,
        ) == (5, 50, 0.1, 0.998)
        assert (
            config.settings.weight_decay,
            config.settings.clip_norm,
            config.settings.server_lr,
            config.problem.colour,
        ) == (1e-3, 10.0, None, 0.0)
        assert config.problem.augment
        assert config.problem.validation == 0
    defaults = {run.method: run.algorithm for run in runs("table1")}
    assert defaults["fedmim"] == FedMIM((0.6, 0.3), (0.9, 0.1))
    assert (defaults["fedcm"].alpha, defaults["feddyn"].alpha, defaults["fedsam"].radius) == (0.1, 0.1, 0.1)
    assert defaults["fedadam"].default_server_lr == 0.1


@pytest.mark.parametrize(
    ("name", "places"),
    [("table1", 7 * 9 * 2), ("table2", 7 * 9 * 2), ("table3", 9 * 2), ("participation", 28), ("consistency", 28)],
)
@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_every_experiment_has_all_its_places_both_ways_three_seeds_each(name, places, scale):
    made = grid(name, scale)
    assert len(made) == places
    assert {len(cell.runs) for cell in made} == {3}
    assert {cell.fair for cell in made} == {"common", "own"}


def test_the_columns_are_those_of_the_paper():
    splits = {cell.column.label: cell.runs[0].config.problem.split for cell in grid("table1")}
    assert splits == {"IID.": "iid", "DIR.3": "dirichlet:0.3", "DIR.1": "dirichlet:0.1"}
    epochs = {cell.column.label: cell.runs[0].config.settings.local_epochs for cell in grid("table2")}
    assert epochs == {"E = 1": 1, "E = 5": 5, "E = 10": 10}
    (table3,) = {
        (cell.runs[0].config.settings.rounds, cell.runs[0].config.settings.local_epochs) for cell in grid("table3")
    }
    assert table3 == (500, 5)
    shares = {cell.column.label: cell.runs[0].config.settings.participation for cell in grid("participation")}
    assert shares == {"5 %": 0.05, "20 %": 0.2}
    assert {run.config.problem.split for run in runs("participation")} == {"dirichlet:0.1"}
    assert {run.config.problem.data for run in runs("consistency")} == {"cifar10", "cifar100"}


def test_columns_are_narrowed_by_their_heads():
    assert {run.config.settings.local_epochs for run in runs("table2", columns=("E = 10", "E = 1"))} == {1, 10}
    assert {run.config.settings.lr for run in runs("inertia", columns=("lr 1",))} == {1.0}
    assert {run.config.problem.split for run in runs("table1", columns=("DIR.3",))} == {"dirichlet:0.3"}
    narrow = {"columns": ("5 %",), "splits": ("iid",)}
    assert {
        (run.config.problem.split, run.config.settings.participation) for run in runs("participation", **narrow)
    } == {("iid", 0.05)}


def test_the_cpu_scale_differs_in_what_it_says_and_in_nothing_else():
    small, large = (cell.runs[0].config.flat() for cell in (grid("table1", "cpu")[0], grid("table1")[0]))
    differ = {name for name in large if small[name] != large[name]}
    assert differ == {"model", "rounds", "local_epochs"}
    cpu, paper = Scale.read("cpu"), Scale.read("paper")
    assert (cpu.tune.settings["rounds"], paper.tune.settings["rounds"]) == (100, 300)
    assert (cpu.tune.trials, paper.tune.trials) == (12, 16)
    assert len(cpu.shrunk) == 4
    rounds = {cell.column.label: cell.runs[0].config.settings.rounds for cell in grid("table2", "cpu")}
    assert rounds == {"E = 1": 300, "E = 5": 100, "E = 10": 50}


def test_decay_outside_the_gradients_weight_is_decay_by_its_inverse_inside():
    decays = {cell.row.label: cell.runs[0] for cell in grid("decay")}
    for name, weight in (("FedCM", 0.1), ("FedMIM", 1 - 0.6 - 0.3)):
        inside, outside = (decays[f"{name}, {where}"].config.settings.weight_decay for where in ("inside", "outside"))
        assert outside == pytest.approx(inside / weight)


def test_the_inertia_ablation_has_equal_weights_that_add_up_to_nine_tenths():
    steps = [cell.row.settings for cell in grid("inertia") if cell.row.label.startswith("J")]
    counts = {len(settings["alpha"]) for settings in steps}
    assert counts == {0, 1, 2, 3, 5, 10}
    for settings in steps:
        assert len(set(settings["alpha"])) <= 1
        assert sum(settings["alpha"]) == pytest.approx(0.9 if settings["alpha"] else 0)
    betas = [sum(cell.row.settings["beta"]) for cell in grid("inertia") if cell.row.label.startswith("beta")]
    assert sorted(set(betas)) == pytest.approx([-2, -1, 0, 1, 2])


def test_an_experiment_can_be_narrowed_and_taken_elsewhere():
    made = grid("table1", data=("cifar10",), splits=("dirichlet:0.1",), methods="fedavg,fedmim", fair=("common",))
    assert [(cell.row.label, cell.column.label) for cell in made] == [("FedAvg", "DIR.1"), ("FedMIM", "DIR.1")]
    other = grid("table1", data=("digits",), splits=("dirichlet:0.5",), methods="fedprox,fedmim(lr=0.5)")
    assert {cell.row.label for cell in other} == {"FedProx", "FedMIM (lr=0.5)"}
    assert {cell.runs[0].config.problem.split for cell in other} == {"dirichlet:0.5"}
    assert {cell.runs[0].config.problem.split for cell in grid("table3", splits=("iid",))} == {"iid"}


def test_flags_win_over_the_scale_but_not_over_what_varies():
    made = grid("table2", "cpu", overrides={"rounds": 7, "local_epochs": 3, "lr": 0.5}, data=("cifar10",))
    assert {cell.runs[0].config.settings.rounds for cell in made} == {7}
    assert {cell.runs[0].config.settings.lr for cell in made} == {0.5}
    assert {cell.runs[0].config.settings.local_epochs for cell in made} == {1, 5, 10}


def test_own_best_settings_reach_their_own_row_and_data_set_alone():
    best = {("cifar10", "FedMIM"): {"lr": 1.5, "alpha": [0.9]}, ("cifar10", "FedAvg"): None}
    made = {(cell.row.label, cell.fair): cell for cell in grid("table1", best=best, data=("cifar10",))}
    tuned = made["FedMIM", "own"].runs[0]
    assert (tuned.config.settings.lr, tuned.algorithm.alpha, tuned.algorithm.beta) == (1.5, (0.9,), (0.9, 0.1))
    assert made["FedMIM", "common"].runs[0].config.settings.lr == 0.1
    assert made["FedAvg", "own"].runs == ()
    assert len(made["FedAvg", "common"].runs) == 3


def test_runs_come_seed_by_seed():
    seeds = [run.config.settings.seed for run in in_order(grid("table1", "cpu"))]
    assert seeds == sorted(seeds)


def test_a_method_with_settings_adds_a_row_to_fixed_ones():
    rows = narrowed(PaperExperiment.read("decay"), methods="fedcm,fedavg(lr=0.01),fedavg(lr=0.3)").rows
    assert [(row.label, row.method, row.settings.get("lr")) for row in rows] == [
        ("FedCM, inside", "fedcm", None),
        ("FedCM, outside", "fedcm", None),
        ("FedAvg (lr=0.01)", "fedavg", 0.01),
        ("FedAvg (lr=0.3)", "fedavg", 0.3),
    ]
    (alone,) = narrowed(PaperExperiment.read("decay"), methods="fedavg(lr=0.01)").rows
    assert (alone.label, alone.settings) == ("FedAvg (lr=0.01)", {"lr": 0.01})


def test_words_name_one_experiment_or_several():
    assert [experiment.name for experiment in experiments_named("all")] == list(OF_THE_PAPER)
    assert [experiment.name for experiment in experiments_named("ablations")] == list(ABLATIONS)
    assert [row.method for row in experiments_named("table1")[0].rows] == list(PAPER)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: experiments_named("tabel1"), "did you mean 'table1'"),
        (lambda: Scale.read("cpuu"), "did you mean 'cpu'"),
        (lambda: Scale.read("none/such.toml"), "there is no such file"),
        (lambda: grid("table3", methods="fedavg"), "table3 has fixed rows, and none of them is fedavg"),
        (lambda: grid("table3", splits=("iid", "dirichlet:1")), "table3 uses one split"),
        (lambda: grid("rates", fair=("own",)), "rates supports only common"),
        (lambda: grid("table2", columns=("E = 2",)), "columns: 'E = 2' is not known.*Known: E = 1, E = 5, E = 10"),
        (lambda: grid("table1", columns=("IID.",), splits=("iid",)), "columns: the splits are the columns of table1"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_a_scale_of_ones_own_is_read_and_its_mistakes_are_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('seeds = [5]\n[settings]\nmodel = "mlp"\nrounds = 3\n[tune]\ntrials = 2\n')
    scale = Scale.read(str(path))
    assert (scale.name, scale.seeds, scale.tune.trials) == ("mine", (5,), 2)
    path.write_text("seeds = [5]\nsettngs = {}\n")
    with pytest.raises(UserError, match=r"mine.toml: setting: 'settngs' is not known; did you mean 'settings'"):
        Scale.read(str(path))
