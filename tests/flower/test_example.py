"""The example app's configuration, as `flwr run --run-config` passes it."""

from __future__ import annotations

import sys
import tomllib

import pytest
import torch
from flwr.app import Context, RecordDict
from flwr.common.config import parse_config_args
from loopback import Loopback, LoopbackNode
from PIL import Image
from safetensors.torch import load_file

import fedmim
from fedmim.errors import UserError
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.flower.new import template

DEFAULTS = tomllib.loads((template() / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def run_config(text):
    """The run's configuration with the text after --run-config."""
    asked = parse_config_args([text])
    assert asked.keys() <= DEFAULTS.keys()  # Flower accepts no others
    return {**DEFAULTS, **asked}


@pytest.fixture
def read(monkeypatch):
    """Reads the text after --run-config."""
    monkeypatch.setattr(sys, "path", [str(template()), *sys.path])
    from fedmim_app import task

    def read(text=""):
        context = Context(1, 1, {}, RecordDict(), run_config(text))
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


def test_a_model_in_the_folder_of_the_app_is_found_from_anywhere(read, tmp_path, monkeypatch):
    (tmp_path / "fedmim_app").mkdir()
    (tmp_path / "fedmim_app" / "net.py").write_text(
        "import torch\ndef net(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    monkeypatch.setattr("fedmim_app.task.APP", tmp_path)
    _, _, task = read("model='fedmim_app/net.py:net'")
    assert sum(each.numel() for each in task.model.parameters()) == 650
    with pytest.raises(UserError, match=r"other\.py is not a file"):
        read("model='fedmim_app/other.py:net'")


def test_own_model_and_data_are_accepted(read, tmp_path):
    (tmp_path / "own.py").write_text(
        "import fedmim, torch\n"
        "def net(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
        "def make(seed): return fedmim.Task(net(), [(torch.randn(5, 64), torch.arange(5))] * 3, "
        "(torch.randn(9, 64), torch.arange(9)))\n"
    )
    first, second = (read(f"model='{tmp_path}/own.py:net' seed={seed}")[2] for seed in (1, 1))
    assert len(first.clients) == 10
    assert torch.equal(first.model[1].weight, second.model[1].weight)
    own = f"data='{tmp_path}/own.py:make'"
    assert len(read(f"{own} split='natural' clients=0 model='own'")[2].clients) == 3
    with pytest.raises(UserError, match="split: does not apply to own"):
        read(own)


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


@pytest.fixture
def run_app(monkeypatch, tmp_path):
    """Runs the whole app in this process."""
    monkeypatch.setattr(sys, "path", [str(template()), *sys.path])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    from fedmim_app.client_app import app as client
    from fedmim_app.server_app import app as server

    def run(text, rounds=2):
        config = run_config(f"clients=3 participation=1.0 rounds={rounds} local-epochs=1 {text}")
        nodes = {
            100 + i: LoopbackNode(client, {"partition-id": i, "num-partitions": 3, "state-dir": str(tmp_path)}, config)
            for i in range(3)
        }
        server(Loopback(nodes), Context(7, 1, {}, RecordDict(), config))

    return run


def test_without_a_folder_the_final_model_is_saved_and_the_log_says_where(run_app, tmp_path, capsys):
    run_app("method='fedavg'")
    path = tmp_path / "state" / "fedmim" / "runs" / "7" / "model.safetensors"
    assert f"the model is in {path}" in capsys.readouterr().out
    assert load_file(path).keys() == simulated("fedavg").keys()


def simulated(method, rounds=2):
    run = Run.make(
        method,
        {"data": "digits", "split": "dirichlet:0.1", "clients": 3, "model": "mlp", "participation": 1.0, "lr": 0.1}
        | {"rounds": rounds, "local_epochs": 1, "batch_size": 5, "seed": 0, "engine": "serial"},
    )
    config = run.config
    return fedmim.simulate(run.algorithm, config.task(), config.settings, config.execution).model.state_dict()


def test_with_a_folder_the_run_is_a_run_folder_and_resumes_to_the_simulators_model(run_app, tmp_path):
    folder = tmp_path / "run"
    run_app(f"method='scaffold' folder='{folder}'")
    assert RunFolder.open(folder).finished
    with pytest.raises(UserError, match="there is already a run; use resume=True"):
        run_app(f"method='scaffold' folder='{folder}'", rounds=3)
    run_app(f"method='scaffold' folder='{folder}' resume=true", rounds=3)
    records = RunFolder.open(folder).metrics()
    assert [record["round"] for record in records] == [1, 2, 3]
    assert all(record["test_accuracy"] is not None for record in records)
    found = load_file(folder / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in simulated("scaffold", 3).items())


def test_client_state_at_the_server_writes_nothing_to_the_clients_disks(run_app, tmp_path):
    run_app(f"method='scaffold' folder='{tmp_path / 'run'}' client-state='server'")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_colour_image_size_and_augmentation_reach_the_clients_of_a_run(run_app, tmp_path):
    """A run with each of them gives a different model from the same start."""
    folder = tmp_path / "images"
    generator = torch.Generator().manual_seed(0)
    for label in (0, 1):
        (folder / str(label)).mkdir(parents=True)
        for number in range(15):
            pixels = torch.randint(0, 256, (8, 8, 3), dtype=torch.uint8, generator=generator)
            Image.fromarray(pixels.numpy()).save(folder / str(label) / f"{number}.png")
    models = []
    for options in ("augment=false", "augment=true", "augment=false, colour=0.9", "augment=false, image_size=6"):
        out = tmp_path / f"run-{len(models)}"
        run_app(f"method='fedavg({options})' data='folder:{folder}' split='iid' model='logistic' folder='{out}'")
        models.append(torch.cat([value.flatten() for value in load_file(out / "model.safetensors").values()]))
    plain, augmented, coloured, small = models
    assert len(small) == 2 * (3 * 6 * 6) + 2
    assert not torch.equal(plain, augmented)
    assert not torch.equal(plain, coloured)
    run_app(f"method='fedavg(validation=0.5)' split='iid' folder='{tmp_path / 'half'}'")
    run_app(f"method='fedavg' split='iid' folder='{tmp_path / 'full'}'")
    half, full = (RunFolder.open(tmp_path / name).metrics()[-1] for name in ("half", "full"))
    assert half["test_loss"] != full["test_loss"]
