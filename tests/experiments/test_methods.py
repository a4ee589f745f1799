"""Methods by name, with settings and labels of their own; users' own methods from a file."""

import tomllib

import pytest

from fedmim.algorithms import FedAvg, FedMIM
from fedmim.errors import UserError
from fedmim.experiments.config import defaults
from fedmim.experiments.methods import find_callback, find_method, label_all, parse_list
from fedmim.experiments.run import Run

OWN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from fedmim import Algorithm

@dataclass(frozen=True)
class Halved(Algorithm):
    title: ClassVar[str] = "Halved"
    factor: float = 0.5
"""


def test_hyper_parameters_and_settings_are_told_apart():
    run = Run.make("fedmim", defaults("digits") | {"alpha": [0.9], "beta": [], "lr": 0.5})
    assert run.algorithm == FedMIM(alpha=(0.9,), beta=())
    assert run.config.settings.lr == 0.5
    assert run.label == "FedMIM"


def test_a_run_survives_toml():
    run = Run.make("fedmim", defaults("digits") | {"alpha": [0.9], "beta": [], "clip_norm": None}, "one step")
    assert Run.from_toml(tomllib.loads(run.to_toml()), "config.toml") == run


def test_a_run_configuration_that_lacks_its_method_is_refused():
    with pytest.raises(UserError, match="'method' is missing"):
        Run.from_toml({"rounds": 3}, "config.toml")


def test_a_list_of_methods_may_hold_settings_with_commas():
    text = 'fedavg, fedmim(alpha=[0.6,0.3], lr=0.5),fedmim(label="a, b")'
    assert parse_list(text) == [
        ("fedavg", {}),
        ("fedmim", {"alpha": [0.6, 0.3], "lr": 0.5}),
        ("fedmim", {"label": "a, b"}),
    ]


@pytest.mark.parametrize(
    "text", ["fedmim(alpha=)", "fedmim(", "", "fedavg,,fedmim", "fedmim(alpha=[0.1)", f"fedmim(alpha={'[' * 3000})"]
)
def test_a_list_that_cannot_be_read_is_refused(text):
    with pytest.raises(UserError, match=r"^methods: "):
        parse_list(text)


def test_an_entry_without_a_label_shows_what_is_its_own():
    entries = parse_list("fedavg,fedavg(lr=0.3),fedmim(alpha=[0.9,0.05])")
    assert label_all(entries) == ["FedAvg", "FedAvg (lr=0.3)", "FedMIM (alpha=[0.9,0.05])"]


def test_two_entries_of_one_label_are_refused():
    with pytest.raises(UserError, match="'FedAvg' is listed twice"):
        label_all(parse_list("fedavg,fedavg"))


def test_an_unknown_method_gets_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'fedmim'"):
        find_method("fedmin")


def test_a_users_own_method_comes_from_its_file(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    run = Run.make(f"{file}:Halved", defaults("digits") | {"factor": 0.25})
    assert run.label == "Halved"
    assert run.algorithm.factor == 0.25
    assert not isinstance(run.algorithm, FedAvg)
    assert Run.from_toml(tomllib.loads(run.to_toml()), "config.toml").to_toml() == run.to_toml()
    with pytest.raises(UserError, match="has no Algorithm named 'Other'"):
        find_method(f"{file}:Other")
    with pytest.raises(UserError, match="is not a file"):
        find_method("nowhere.py:Halved")
    broken = tmp_path / "broken.py"
    broken.write_text("def broken(:")
    with pytest.raises(UserError, match=r"broken.py cannot be imported \(SyntaxError"):
        find_method(f"{broken}:Halved")


@pytest.mark.parametrize("name", ["lr", "data", "seed", "workers", "label", "method"])
def test_a_field_of_an_own_method_that_is_also_a_setting_is_named(tmp_path, name):
    (tmp_path / "own.py").write_text(OWN.replace("factor", name))
    with pytest.raises(UserError, match=f"the field '{name}' of .*own.py:Halved has the name of a setting: rename it"):
        find_method(f"{tmp_path / 'own.py'}:Halved")


def test_a_field_without_a_default_is_named_unless_it_is_given(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace(" = 0.5", ""))
    method = f"{tmp_path / 'own.py'}:Halved"
    with pytest.raises(UserError, match="factor is missing: set it, or give the field of Halved a default"):
        Run.make(method, defaults("digits"))
    assert Run.make(method, defaults("digits") | {"factor": 0.25}).algorithm.factor == 0.25


def test_a_field_of_an_unknown_type_is_an_error_of_its_method(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace("factor: float", "factor: flaot"))
    with pytest.raises(UserError, match=r"the field types of .*own.py:Halved cannot be resolved.*flaot"):
        find_method(f"{tmp_path / 'own.py'}:Halved")


def test_a_file_that_ends_the_program_is_an_error_of_its_method(tmp_path):
    (tmp_path / "own.py").write_text("raise SystemExit(0)")
    with pytest.raises(UserError, match=r"own\.py cannot be imported"):
        find_method(f"{tmp_path / 'own.py'}:Halved")


@pytest.mark.parametrize("body", ["def __init__(self, path): ...", "def __init__(self): raise OSError('no key')"])
def test_a_callback_that_cannot_be_made_is_named(tmp_path, body):
    (tmp_path / "own.py").write_text(f"import fedmim\nclass Mine(fedmim.Callback):\n    {body}\n")
    with pytest.raises(UserError, match=r"^callback: Mine of .*own.py cannot be created without arguments"):
        find_callback(f"{tmp_path / 'own.py'}:Mine")
