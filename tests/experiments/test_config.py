"""Config: three parts, flat in TOML and flags; wrong values are named."""

import re
import tomllib
from dataclasses import dataclass, fields

import pytest
import tomli_w
import torch

from fedmim import Execution, Settings, Task
from fedmim.algorithms import METHODS
from fedmim.errors import UserError
from fedmim.experiments.config import Config, Problem, defaults
from fedmim.experiments.toml_values import make, read_toml
from fedmim.flags import show_options
from fedmim.report.wording import describe_configs


def test_a_config_survives_toml_with_its_nones():
    config = Config().replace(clip_norm=None, batch_size=None, local_steps=7, lr=0.25, data="cifar10", workers=3)
    assert Config.of(tomllib.loads(tomli_w.dumps(config.plain())), "file") == config
    assert config.settings == Settings(clip_norm=None, batch_size=None, local_steps=7, lr=0.25)
    assert config.problem == Problem(data="cifar10")
    assert config.execution == Execution(workers=3)


def test_defaults_depend_on_the_data_set():
    assert defaults("digits")["batch_size"] == 5
    assert defaults("cifar10")["model"] == "cnn"
    assert defaults("heart-disease") | {"split": "natural", "clients": 4} == defaults("heart-disease")
    for data in ("digits", "cifar10", "heart-disease", "folder:x", "tensors:y"):
        assert Config.of(defaults(data), data).problem.data == data


def test_all_clients_of_the_data_can_be_asked_for_only_with_its_natural_split():
    config = Config.of(defaults("shakespeare"), "shakespeare")
    assert (config.problem.split, config.problem.clients) == ("natural", 0)
    assert "lstm, all clients of the data, 1.6% per round, 1 epoch" in describe_configs([config])
    with pytest.raises(UserError, match="clients: must be a whole number of at least 1, got 0"):
        config.replace(split="iid")


def undocumented(part, capsys):
    """The flags that the help shows with their default and nothing else."""
    show_options(part())
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(each.name.replace("_", "-") in shown for each in fields(part))
    return re.findall(r"--([a-z0-9-]+)(?: \S+)? \(default:", shown)


@pytest.mark.parametrize("part", [Problem, Settings, Execution, *METHODS.values()])
def test_every_field_is_explained_in_the_help(part, capsys):
    assert undocumented(part, capsys) == []


@dataclass(frozen=True)
class HalfExplained:
    first: float = 0.5
    a_second_one_with_a_longer_name: int | None = None
    third: bool = False
    fourth: float = 0.5
    """Explained."""


def test_a_field_without_a_docstring_is_found_by_that_test(capsys):
    assert undocumented(HalfExplained, capsys) == ["first", "a-second-one-with-a-longer-name", "third"]


def test_no_field_has_two_homes_and_flat_names_find_their_part():
    names = [field.name for part in (Problem, Settings, Execution) for field in fields(part)]
    assert len(names) == len(set(names)) == len(Config().flat())
    changed = Config().replace(lr=0.5, workers=2, clients=7)
    assert (changed.settings.lr, changed.execution.workers, changed.problem.clients) == (0.5, 2, 7)


def test_a_problem_makes_its_task_and_keeps_the_last_one():
    problem = Problem(clients=20, model="logistic")
    task = problem.task(seed=3)
    assert problem.task(seed=3) is task
    assert Config().replace(clients=20, model="logistic", seed=3, workers=2).task() is task
    assert problem.task(seed=4) is not task
    expected = Task.named("digits", split="dirichlet:0.1", clients=20, model="logistic", seed=3)
    assert all(torch.equal(ours[0], theirs[0]) for ours, theirs in zip(task.clients, expected.clients, strict=True))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rouns": 3}, "did you mean 'rounds'"),
        ({"rounds": "many"}, "file: rounds must be a whole number, got 'many'"),
        ({"rounds": True}, "file: rounds must be a whole number, got True"),
        ({"rounds": 2.5}, "file: rounds must be a whole number, got 2.5"),
        ({"augment": 1}, "file: augment must be true or false, got 1"),
        ({"lr": "fast"}, "file: lr must be a number, got 'fast'"),
        ({"engine": "warp"}, "file: engine must be one of auto, serial, vectorised, processes"),
        ({"lr": -1}, "file: lr: must be a finite number above 0, got -1.0"),
        ({"participation": 0.0}, "file: participation: must be above 0 and at most 1, got 0.0"),
        ({"clients": 0}, "file: clients: must be a whole number of at least 1, got 0"),
        ({"colour": 2.0}, "file: colour: must be between 0 and 1, got 2.0"),
    ],
)
def test_a_wrong_value_names_the_place_the_setting_and_what_it_should_be(values, message):
    with pytest.raises(UserError, match=r"^file: ") as caught:
        Config.of(values, "file")
    assert message in str(caught.value)


def test_whole_numbers_serve_as_numbers_and_lists_as_tuples():
    @dataclass(frozen=True)
    class Example:
        weight: float = 0.5
        several: tuple[float, ...] = ()

    assert make(Example, {"weight": 1, "several": [1, 0.5]}, "file") == Example(1.0, (1.0, 0.5))


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent.toml: there is no such file"):
        read_toml(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("rounds = = 3")
    with pytest.raises(UserError, match=r"broken.toml: not valid TOML"):
        read_toml(broken)
