"""Config: one dataclass for Python, TOML and flags; wrong values are named."""

import tomllib
from dataclasses import dataclass

import pytest
import tomli_w

from fedmim.errors import UserError
from fedmim.experiments.config import Config, defaults, field_docs, make, plain, read_toml


def test_a_config_survives_toml_with_its_nones():
    config = Config(clip_norm=None, batch_size=None, local_steps=7, lr=0.25, data="cifar10")
    assert make(Config, tomllib.loads(tomli_w.dumps(plain(config))), "file") == config


def test_defaults_depend_on_the_data_set():
    assert defaults("digits")["batch_size"] == 5
    assert defaults("cifar10")["model"] == "cnn"
    assert defaults("heart-disease") | {"split": "natural", "clients": 4} == defaults("heart-disease")
    for data in ("digits", "cifar10", "heart-disease", "folder:x", "tensors:y"):
        assert make(Config, defaults(data), data).data == data


def test_every_setting_is_documented():
    assert set(field_docs(Config)) == set(defaults("digits"))


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
        make(Config, values, "file")
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
