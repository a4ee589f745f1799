"""Layers: data set defaults, file, flags, and a method's own settings, the later ones winning."""

import pytest

from fedmim.algorithms import PAPER, FedMIM
from fedmim.errors import UserError
from fedmim.experiments.config import Problem
from fedmim.experiments.config_file import DEMO, ConfigFile, new_comparison

TEXT = """
data = "cifar10"
rounds = 7
lr = 0.2
methods = ["fedavg"]

[fedmim]
alpha = [0.9]
lr = 1.0

[[variants]]
method = "fedmim"
label = "two steps"
beta = []

[[variants]]
method = "fedmim"
label = "slow"
lr = 0.01
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(TEXT)
    return ConfigFile.read(str(path))


def runs(file, flags, method_flags=None):
    made = new_comparison(file, file.variants(), flags, method_flags or {}, (0,), None)
    return {run.label: run for run in made.runs}


def test_the_file_wins_over_the_data_sets_defaults(file):
    values = file.values(None, None)
    assert (values["data"], values["rounds"], values["model"]) == ("cifar10", 7, "cnn")


def test_a_flag_for_the_data_set_brings_its_defaults_below_the_file(file):
    values = file.values(None, "digits")
    assert (values["data"], values["rounds"], values["batch_size"]) == ("digits", 7, 5)


def test_a_method_table_wins_over_the_files_settings_and_a_variant_over_both(file):
    made = runs(file, {})
    assert made["FedAvg"].config.settings.lr == 0.2
    assert made["two steps"].config.settings.lr == 1.0
    assert made["two steps"].algorithm == FedMIM(alpha=(0.9,), beta=())
    assert made["slow"].config.settings.lr == 0.01


def test_a_flag_wins_over_tables_but_not_over_a_variants_own(file):
    made = runs(file, {"lr": 0.5}, {"fedmim": {"alpha": (0.1,)}})
    assert made["FedAvg"].config.settings.lr == 0.5
    assert made["two steps"].config.settings.lr == 0.5
    assert made["slow"].config.settings.lr == 0.01
    assert made["slow"].algorithm.alpha == (0.1,)


def test_the_papers_methods_are_compared_unless_told():
    assert [method for method, _ in ConfigFile().variants()] == list(PAPER)


def test_the_demo_has_a_tuned_learning_rate_for_each_method_and_flags_override_it():
    demo = ConfigFile.read(str(DEMO))
    methods = [method for method, _ in demo.variants()]
    assert set(PAPER) < set(methods)
    assert all("lr" in demo.tables[method] for method in methods)
    tuned = new_comparison(demo, demo.variants(), {}, {}, (0,), None)
    assert {run.method: run.config.settings.lr for run in tuned.runs} == {
        method: demo.tables[method]["lr"] for method in methods
    }
    assert all(run.config.problem == Problem(data="mnist1d", model="mlp2") for run in tuned.runs)
    shared = new_comparison(demo, demo.variants(), {"lr": 0.1}, {}, (0,), None)
    assert {run.config.settings.lr for run in shared.runs} == {0.1}


def test_the_target_depends_on_the_data_set_unless_told():
    assert new_comparison(ConfigFile(), [("fedavg", {})], {}, {}, (0,), None).target == 0.5
    assert new_comparison(ConfigFile(), [("fedavg", {})], {"data": "digits"}, {}, (0,), None).target == 0.9
    assert new_comparison(ConfigFile(), [("fedavg", {})], {}, {}, (0,), 0.4).target == 0.4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rouns = 3", "did you mean 'rounds'"),
        ("[fedmin]\nalpha = [0.1]", "did you mean 'fedmim'"),
        ("[[variants]]\nlr = 0.1", "each entry of [[variants]] must have a method"),
        ("methods = [1]", "methods must be a list of names"),
        ("variants = 3", "variants must be tables"),
        ("data = 0.5", "data must be a string, got 0.5"),
        ("[data]\nname = 1", "data must be a string"),
        ("seeds = -1", "seeds must be a list of whole numbers of at least 0, got -1"),
        ("seeds = [0, true]", "seeds must be a list of whole numbers"),
        ('target = "high"', "target must be a number, got 'high'"),
        ("method = 3", "method must be a string, got 3"),
        (f"rounds = {'9' * 5000}", "not valid TOML"),
        (f"rounds = {'[' * 3000}", "not valid TOML"),
    ],
)
def test_what_means_nothing_in_a_file_is_named(tmp_path, text, message):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"settings.toml: ") as caught:
        everything(path)
    assert message in str(caught.value)


def everything(path):
    """All that a file may tell."""
    file = ConfigFile.read(str(path))
    return file.variants(), file.values(None, None), file.seeds(), file.target(), file.method("fedmim")
