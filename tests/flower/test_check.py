"""`fedmim flower check DIR`: mistakes in an app's configuration are found without a federation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib

import pytest

from fedmim.cli import main
from fedmim.flower.new import template


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    """Every check imports the app anew."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.split(".")[0] == "fedmim_app"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_good_configuration_is_shown_with_what_follows_from_it(capsys):
    assert main(["flower", "check", str(template()), "--run-config", "method='scaffold' clients=4"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Scaffold(")
    assert "rounds=20" in shown
    assert "4 clients" in shown


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("metod='fedavg'", "run config: setting: 'metod' is not known; did you mean 'method'?"),
        ("method='fedmin'", "method: 'fedmin' is not known; did you mean 'fedmim'?"),
        ("method='fedavg,fedmim'", "run config: method must be one method, got 2"),
        ("method=''", "method"),
        ("lr='fast'", "run config: lr must be a number, got 'fast'"),
        ("rounds=0", "run config: rounds: must be a whole number of at least 1, got 0"),
        ("participation=2.0", "run config: participation: must be above 0 and at most 1, got 2.0"),
        ("resume='yes'", "run config: resume must be true or false, got 'yes'"),
        ("resume=true", "run config: resume: needs the folder of the run to resume; set folder"),
        ("wait=0", "run config: wait: must be a number of seconds above 0, got 0"),
        ("timeout='long'", "run config: timeout must be a number, got 'long'"),
        ("client-state='disk'", "run config: client_state must be one of node, server, got 'disk'"),
        ("data='nothing'", "data: 'nothing' is not known"),
        ("split='dirichlet:x'", "split"),
        ("method='fedavg(colour=0.5)'", "colour: needs uint8 images"),
        ("lr 0.3", "run config: 'lr 0.3' is not of the form name=value, and Flower would ignore it"),
        ("lr=0.3.1", "run config: The provided configuration string is in an invalid format"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_setting(given, told, capsys):
    assert main(["flower", "check", str(template()), "-c", given]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_mistake_in_pyproject_toml_is_found(tmp_path, capsys):
    app = tmp_path / "app"
    shutil.copytree(template(), app)
    text = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(text.replace('method = "fedmim"', 'method = "fedmim"\nepochs = 3'))
    assert main(["flower", "check", str(app)]) == 2
    assert "run config: setting: 'epochs' is not known" in capsys.readouterr().err


def test_own_model_and_data_are_files_of_the_app(tmp_path, capsys, monkeypatch):
    """Named by their place in the app, from any folder."""
    app = tmp_path / "app"
    shutil.copytree(template(), app)
    (app / "fedmim_app" / "mine.py").write_text(
        "import torch, fedmim\n"
        "def make_task():\n"
        "    client = torch.zeros(2, 4), torch.tensor([0, 1])\n"
        "    return fedmim.Task(torch.nn.Linear(4, 2), [client] * 3, client)\n"
        "def make_net(input_shape, classes):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    data = "data='fedmim_app/mine.py:make_task' split='natural' clients=0 model='own'"
    for given, clients in (("model='fedmim_app/mine.py:make_net'", 10), (data, 3)):
        assert main(["flower", "check", str(app), "-c", given]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out.endswith(f", {clients} clients\n")


def test_what_is_no_app_or_has_no_check_is_told(tmp_path, capsys):
    assert main(["flower", "check", str(tmp_path)]) == 2
    assert "is not a Flower app" in capsys.readouterr().err
    app = tmp_path / "app"
    shutil.copytree(template(), app)
    server = app / "fedmim_app" / "server_app.py"
    server.write_text(server.read_text().replace("def check(", "def other("))
    assert main(["flower", "check", str(app)]) == 2
    assert "add a function check(context)" in capsys.readouterr().err


def test_the_server_checks_before_it_touches_the_grid(monkeypatch):
    """The grid is None: using it would raise AttributeError instead."""
    from flwr.app import Context, RecordDict

    monkeypatch.syspath_prepend(str(template()))
    from fedmim_app.server_app import app

    config = tomllib.loads((template() / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    for mistake in ({"lr": "fast"}, {"client-state": "disk"}, {"method": "fedmin"}, {"epochs": 3}):
        with pytest.raises(ValueError, match=next(iter(mistake)).replace("-", "_")):
            app(None, Context(1, 1, {}, RecordDict(), config | mistake))


def test_without_flower_the_check_says_what_to_install():
    program = (
        "import sys; sys.modules['flwr'] = None\nfrom fedmim.cli import main; sys.exit(main(['flower', 'check', '.']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'fedmim[flower]'" in done.stderr
