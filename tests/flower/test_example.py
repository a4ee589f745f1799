"""The example app's configuration, as `flwr run --run-config` passes it."""

from __future__ import annotations

import sys
import tomllib

import pytest
import torch
from flwr.app import Context, RecordDict
from flwr.common.config import parse_config_args
from PIL import Image

import fedmim
from fedmim.errors import UserError
from fedmim.flower.new import template


@pytest.fixture
def read(monkeypatch):
    """Reads the text after --run-config."""
    monkeypatch.setattr(sys, "path", [str(template()), *sys.path])
    from fedmim_app import task

    project = tomllib.loads((template() / "pyproject.toml").read_text())
    defaults = project["tool"]["flwr"]["app"]["config"]

    def read(text=""):
        asked = parse_config_args([text])
        assert asked.keys() <= defaults.keys()  # Flower accepts no others
        context = Context(1, 1, {}, RecordDict(), {**defaults, **asked})
        return task.algorithm(context), task.settings(context), task.task_for_partition(0, context)

    return read


def test_the_defaults_are_fedmim_on_digits(read):
    algorithm, settings, task = read()
    assert algorithm == fedmim.FedMIM()
    assert (settings.rounds, settings.participation, settings.batch_size) == (20, 0.5, 5)
    assert len(task.clients) == 10


def test_a_method_takes_its_options_and_any_other_setting(read):
    algorithm, settings, _ = read("method=\"fedmim(alpha=[0.5], history='catch-up', local_steps=7)\" lr=0.3 clients=4")
    assert algorithm == fedmim.FedMIM(alpha=(0.5,))
    assert (settings.local_steps, settings.lr, settings.history) == (7, 0.3, "catch-up")
    assert read("method='scaffold' model='logistic'")[0] == fedmim.Scaffold()


def test_the_settings_of_the_problem_reach_the_task(read):
    _, _, plain = read("method='fedavg(split=\"iid\")'")
    _, _, task = read("method='fedavg(split=\"iid\", validation=0.25)'")
    assert len(task.test[0]) == pytest.approx(0.25 * sum(map(plain.size, range(10))), abs=5)
    with pytest.raises(UserError, match="colour: needs uint8 images"):
        read("method='fedavg(colour=0.5)'")
    with pytest.raises(UserError, match="image_size: only folder:PATH supports it"):
        read("method='fedavg(image_size=32)'")


def test_images_are_augmented_unless_told(read, tmp_path):
    x = torch.zeros(20, 3, 8, 8, dtype=torch.uint8)
    folder = tmp_path / "images"
    for label in (0, 1):
        (folder / str(label)).mkdir(parents=True)
        for number in range(10):
            Image.fromarray(x[number].permute(1, 2, 0).numpy()).save(folder / str(label) / f"{number}.png")
    words = f"data='folder:{folder}' model='logistic' clients=2"
    assert read(words)[2].augment is not None
    assert read(f"{words} method='fedmim(augment=false)'")[2].augment is None


def test_a_mistake_names_the_setting(read):
    with pytest.raises(UserError, match="method: 'fedmin' is not known; did you mean 'fedmim'"):
        read("method='fedmin'")
    with pytest.raises(UserError, match="run config: setting: 'alpa' is not known"):
        read("method='fedmim(alpa=[0.5])'")
