"""The command line, from its words to what it prints and writes."""

import io
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from urllib.request import urlopen

import pytest
from safetensors.torch import load_file

from fedmim.cli import main
from fedmim.flags import show_options

SMALL = ["--rounds", "3", "--clients", "20", "--local-epochs", "1", "--model", "logistic"]
OWN = """
from dataclasses import dataclass
from typing import ClassVar
from fedmim import Algorithm, Plan

@dataclass(frozen=True)
class Slow(Algorithm):
    title: ClassVar[str] = "Slow"
    factor: float = 0.5
    def plan(self, local):
        return Plan(start=local.down["params"], rate=self.factor * local.lr)
"""


def command(*words):
    return [sys.executable, "-m", "fedmim", *map(str, words)]


@contextmanager
def started(*words, **pipes):
    """A command under way that an interrupt reaches, also where the tests themselves run deaf to it; it is not left."""
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen(command(*words), text=True, preexec_fn=heed, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def program(*words, **options):
    """The command as a program of its own."""
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=120, **options)


def fedmim(*words):
    """The command within this process, which saves the import of torch."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main(list(map(str, words)))
        except SystemExit as stop:
            code = stop.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def model_bytes(folder):
    return (folder / "model.safetensors").read_bytes()


def test_help_names_the_commands_without_importing_torch():
    code = "import sys; from fedmim.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("compare", "run", "methods", "data"))


def test_the_help_of_run_lists_every_setting_and_the_methods_own_without_importing_torch():
    code = (
        "import sys; from fedmim.cli import main\n"
        "try: main(['run', '--help', '--method', 'fedmim', '--data', 'cifar10'])\n"
        "except SystemExit as stop: sys.exit(stop.code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(flag in done.stdout for flag in ("--alpha", "--split", "--clip-norm", "--resume"))
    assert "that returns a torch.nn.Module and may │" in done.stdout  # lines are full, wherever the source breaks them
    text = " ".join(done.stdout.replace("│", " ").split())
    assert "Network: logistic, mlp, mlp2, cnn, lenet, resnet18; for text: lstm, transformer. Or your own" in text
    assert "may take the arguments input_shape, classes and tokens. (default: cnn)" in text
    assert "--augment, --no-augment Augment training images with random crops" in text  # not --no-augment alone
    assert "--no-resume" not in text


@dataclass(frozen=True)
class WithList:
    weights: list[int] = field(default_factory=lambda: [1, 2])
    """What each client
    counts."""


def test_the_help_of_a_field_with_a_list_has_its_docstring_on_one_line(capsys):
    show_options(WithList())
    printed = capsys.readouterr().out
    assert "What each client counts." in printed
    assert "1 2" in printed


def test_in_a_notebook_there_are_plain_lines_and_no_frames(tmp_path):
    """`!fedmim` in a notebook runs on a terminal of its own, with these variables."""
    kernel = {"JPY_PARENT_PID": "1", "FORCE_COLOR": "1", "TERM": "xterm-color", "MPLBACKEND": "module://not.installed"}
    ours, theirs = pty.openpty()
    words = command("compare", "--methods", "fedavg", "--data", "digits", *SMALL, "--out", tmp_path / "a")
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **kernel}) as process:
        os.close(theirs)
        text = ""
        with suppress(OSError):  # Linux reports the end of a terminal as an error
            while piece := os.read(ours, 10_000):
                text += piece.decode()
    os.close(ours)
    assert process.returncode == 0, text
    assert "FedAvg, seed 0: round 3 of 3, accuracy" in text
    assert not re.findall(r"\x1b\[\d*[AKJ]|\x1b\[\?25", text)  # nothing moves the cursor, clears a line or hides it


def test_run_writes_its_folder_and_resume_finds_it_finished(tmp_path):
    out = tmp_path / "a"
    done = fedmim("run", "--method", "fedmim", "--data", "digits", *SMALL, "--seed", 0, "--out", out)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir() if path.name[0] != ".") == [
        "checkpoint.safetensors",
        "clients.json",
        "config.toml",
        "metrics.jsonl",
        "model.safetensors",
    ]
    assert [record["round"] for record in metrics(out)] == [1, 2, 3]
    assert "FedMIM" in done.stdout
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    again = fedmim("run", "--resume", "--out", out)
    assert again.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_a_killed_run_resumes_to_the_bits_of_one_that_was_not(tmp_path):
    words = ["run", "--method", "scaffold", *SMALL[2:], "--rounds", "60", "--checkpoint-seconds", "0"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(command(*words, "--out", killed), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (killed / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done_before = len((killed / "metrics.jsonl").read_text().splitlines())
    assert 0 < done_before < 60
    resumed = program("run", "--resume", "--out", killed)
    assert resumed.returncode == 0, resumed.stderr
    assert fedmim(*words, "--out", whole, "--checkpoint-seconds", "100").returncode == 0
    assert metrics(killed) == metrics(whole)
    assert model_bytes(killed) == model_bytes(whole)
    assert load_file(killed / "checkpoint.safetensors").keys() == load_file(whole / "checkpoint.safetensors").keys()
    states = [newest_states(folder / "clients") for folder in (killed, whole)]
    assert states[0] == states[1]


def newest_states(folder):
    """The state of each client; where it trained since the checkpoint before, its state of then is there too."""
    return {path.name.partition("-")[0]: path.read_bytes() for path in sorted(folder.iterdir())}


def test_an_interrupt_saves_a_checkpoint_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "a"
    words = ["run", *SMALL[2:], "--rounds", "100000", "--out", out]
    with started(*words, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (out / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert (out / "checkpoint.safetensors").exists()


def test_a_full_disk_ends_the_run_in_one_line_and_loses_nothing(tmp_path):
    out = tmp_path / "a"
    assert fedmim("run", *SMALL, "--out", out).returncode == 0
    checkpoint, lines = (out / "checkpoint.safetensors").read_bytes(), (out / "metrics.jsonl").read_bytes()
    longer = ["run", "--resume", "--rounds", 6, "--out", out]
    limit = len(checkpoint) - 1  # no file may grow to the size of a checkpoint
    full = program(*longer, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert full.returncode == 1
    assert "File too large" in full.stderr
    assert "Traceback" not in full.stderr
    assert (out / "checkpoint.safetensors").read_bytes() == checkpoint
    assert (out / "metrics.jsonl").read_bytes().startswith(lines)
    assert not list(out.glob(".*.part"))
    assert fedmim(*longer).returncode == 0
    other = tmp_path / "b"
    assert fedmim("run", *SMALL, "--rounds", 6, "--out", other).returncode == 0
    assert model_bytes(out) == model_bytes(other)


def test_compare_writes_a_table_a_picture_and_results_that_agree_with_the_metrics(tmp_path):
    out = tmp_path / "b"
    listed = "fedavg,fedmim(alpha=[0.5],label='one step'),fedmim(lr=0.3)"
    done = fedmim("compare", "--methods", listed, *SMALL, "--seeds", "0,1", "--target", 0.1, "--out", out)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    assert [line["label"] for line in results["methods"]] == ["FedAvg", "one step", "FedMIM (lr=0.3)"]
    for line in results["methods"]:
        assert line["label"] in done.stdout
        for run in line["runs"]:
            records = metrics(out / run["folder"])
            assert run["final_accuracy"] == records[-1]["test_accuracy"]
            assert run["best_accuracy"] == max(record["test_accuracy"] for record in records)
            assert run["bytes_down"] == sum(record["bytes_down"] for record in records)
    assert (out / "comparison.png").stat().st_size > 10_000
    assert metrics(out / "fedavg-seed0")[0]["clients"] == metrics(out / "one-step-seed0")[0]["clients"]

    model = out / "fedavg-seed0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    (out / "one-step-seed1" / "model.safetensors").unlink()
    again = fedmim("compare", "--resume", "--out", out)
    assert again.returncode == 0, again.stderr
    assert model.stat().st_mtime_ns == before
    assert (out / "one-step-seed1" / "model.safetensors").exists()
    assert json.loads((out / "results.json").read_text())["methods"][0]["runs"] == results["methods"][0]["runs"]


def test_compare_ends_with_the_page_and_says_where(tmp_path):
    out = tmp_path / "b"
    done = fedmim("compare", "--methods", "fedavg,fedmim", *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    assert (out / "report.html").resolve().as_uri() in done.stdout
    text = (out / "report.html").read_text()
    assert "SCAFFOLD" not in text
    assert "--clients 20" in text
    again = fedmim("report", out / "fedavg-seed0", out / "fedmim-seed0", "-o", tmp_path / "r.html")
    assert again.returncode == 0, again.stderr
    assert "2 runs" in again.stdout
    drawn = fedmim("plot", out, "--out", tmp_path / "figures", "--y", "accuracy,clients", "--x", "bytes")
    assert drawn.returncode == 0, drawn.stderr
    files = ["accuracy-bytes.png", "accuracy-bytes.svg", "clients.png", "clients.svg"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == files


def test_json_is_all_that_is_printed_and_quiet_prints_nothing(tmp_path):
    words = ["compare", "--methods", "fedavg,fedmim", *SMALL]
    done = fedmim(*words, "--json", "--out", tmp_path / "a")
    results = json.loads(done.stdout)
    written = json.loads((tmp_path / "a" / "results.json").read_text())
    assert results == {"folder": str(tmp_path / "a"), **written}
    both = fedmim("compare", "--resume", "--json", "--quiet", "--out", tmp_path / "a")
    assert (json.loads(both.stdout), both.stderr) == (results, "")
    quiet = fedmim("run", *SMALL, "--quiet", "--out", tmp_path / "b")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    single = fedmim("run", "--resume", "--json", "--out", tmp_path / "b")
    assert json.loads(single.stdout)["methods"][0]["runs"][0]["folder"] == "b"


def test_callbacks_from_the_command_line_hear_of_every_run(tmp_path):
    own = "import fedmim\nclass Mine(fedmim.Callback):\n    def on_round(self, run, record):\n"
    own += f"        with open({str(tmp_path / 'heard')!r}, 'a') as file:\n"
    own += "            file.write(f'{run.name} {record.round}\\n')\n"
    (tmp_path / "own.py").write_text(own)
    words = ["--callback", tmp_path / "own.py:Mine", "--tensorboard", tmp_path / "board", "--out", tmp_path / "a"]
    done = fedmim("compare", "--methods", "fedavg,fedmim", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    names = ("fedavg-seed0", "fedmim-seed0")
    heard = (tmp_path / "heard").read_text().splitlines()
    assert heard == [f"{name} {number}" for name in names for number in (1, 2, 3)]
    assert sorted(path.name for path in (tmp_path / "board").iterdir()) == list(names)


def test_watch_serves_the_page_until_it_is_interrupted(tmp_path):
    assert fedmim("run", *SMALL, "--quiet", "--out", tmp_path / "a").returncode == 0
    with started("watch", tmp_path / "a", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        address = process.stdout.readline().split()[1]
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address, timeout=60) as answer:
            assert "FedMIM" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_compare_takes_hyper_parameters_by_flag_and_by_file_alike(tmp_path):
    (tmp_path / "settings.toml").write_text('methods = ["fedmim", "feddyn"]\nrounds = 2\n[fedmim]\nbeta = []\n')
    words = ["--config", tmp_path / "settings.toml", *SMALL[2:], "--feddyn.alpha", 0.5, "--fedmim.alpha", "0.2,0.1"]
    assert fedmim("compare", *words, "--out", tmp_path / "c").returncode == 0
    lines = json.loads((tmp_path / "c" / "results.json").read_text())["methods"]
    assert lines[0]["hyper_parameters"] == {"alpha": [0.2, 0.1], "beta": [], "beta_unit": "step"}
    assert lines[1]["hyper_parameters"] == {"alpha": 0.5}
    assert lines[0]["settings"]["rounds"] == 2


def test_a_users_own_method_runs_and_resumes_from_the_command_line(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    words = ["run", "--method", "own.py:Slow", "--factor", 0.1, *SMALL, "--out", "a"]
    done = fedmim(*words)
    assert done.returncode == 0, done.stderr
    assert "Slow" in done.stdout
    longer = fedmim("run", "--resume", "--rounds", 5, "--out", tmp_path / "a")
    assert longer.returncode == 0, longer.stderr
    assert len(metrics(tmp_path / "a")) == 5


def test_a_runs_configuration_makes_the_same_run_again(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    assert fedmim("run", *SMALL, "--alpha", "0.5", "--beta", "", "--clip-norm", "none", "--out", first).returncode == 0
    assert fedmim("run", "--config", first / "config.toml", "--out", second).returncode == 0
    assert model_bytes(first) == model_bytes(second)


def test_the_lists_of_methods_and_data_sets_are_shown(tmp_path):
    listed = fedmim("methods").stdout
    assert all(name in listed for name in ("fedavg", "scaffold", "fedmim", "server optimisers", "NAME+leap"))
    assert "z <- z - m1 - A eta grad f_i(z)" in fedmim("methods", "fedmim").stdout
    data = fedmim("data", "--data-dir", tmp_path).stdout
    assert all(name in data for name in ("digits", "cifar10", "heart-disease", "synthetic:A,B", "shakespeare"))
    assert data.count("no; `fedmim data fetch") == 7
    (tmp_path / "cifar-10-batches-py").mkdir()
    data = fedmim("data", "--data-dir", tmp_path).stdout
    assert data.count("no; `fedmim data fetch") == 6
    assert "incomplete" in data  # a folder that is there says what it lacks


def test_output_into_a_closed_pipe_is_no_error_message():
    shell = f"{sys.executable} -m fedmim methods | head -n 1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rum"], "did you mean 'run'"),
        (["run", "--lr", "1e300"], "lr: must be at most 1e+09"),
        (["run", "--lr-decay", "10", "--rounds", "400"], "lower lr_decay or rounds"),
        (["run", "--clients", str(10**12)], "clients: must be at most 4000, the number of training samples"),
        (["run", "--local-epochs", str(10**18)], "local_epochs: "),
        (["run", "--workers", str(10**10), "--engine", "processes"], "workers: must be a whole number of at most"),
        (["run", "--image-size", "100000"], "image_size: must be a number of pixels from 1 to 10,000"),
        (["run", "--device", "meta"], "device: 'meta' is not available"),
        (["run", "--config", "/"], "/: cannot be read (Is a directory)"),
        (["compare", "--seeds", "0,-1"], "seeds: must be distinct whole numbers of at least 0"),
        (["compare", "--methods", "fedmim(label=3)"], "a label must be a string"),
        (["run", "--method", "fedmin"], "did you mean 'fedmim'"),
        (["run", "--data", "digit"], "did you mean 'digits'"),
        (["run", "--split", "dirichlett:0.1"], "did you mean 'dirichlet"),
        (["run", "--model", "lennet"], "did you mean 'lenet'"),
        (["run", "--participation", "0"], "participation: must be above 0"),
        (["run", "--clients", "5000"], "clients"),
        (["run", "--alpha", "0.7,0.3"], "alpha: the weights must sum to less than 1"),
        (["run", "--lr", "-1"], "lr: must be a finite number above 0"),
        (["run", "--rounds", "0"], "rounds: must be a whole number of at least 1"),
        (["run", "--method", "fedsam", "--radius", "0"], "radius: must be a finite number above 0"),
        (["run", "--method", "feddyn", "--server-lr", "0.5"], "server_lr: must be 1 for FedDyn"),
        (["run", "--device", "cuda:77"], "device: 'cuda:77'"),
        (["run", "--model", "lenet"], "model: lenet needs images of at least 16x16"),
        (["run", "--model", "cnn", "--split", "dirichlet:0"], "dirichlet"),
        (["run", "--data", "cifar10", "--data-dir", "nowhere"], "nowhere"),
        (["run", "--per-client", "all"], "per_client: must be one of off, global, personal, got 'all'"),
        (
            ["compare", "--engine", "fast"],
            "engine: must be one of auto, serial, vectorised, processes, ray, got",
        ),
        (["run", "--beta-unit", "week"], "beta_unit: must be one of step, round, got 'week'"),
        (["run", "--ray"], "ray: has no effect on one run with engine auto; add --engine ray"),
        (["run", "--ray", "local", "--engine", "serial"], "engine serial; add --engine ray"),
        (["reproduce", "table1", "--data", "task.py:make", "--out", "x"], "data: table1 compares splits, but task.py"),
        (["run", "--resume"], "resume: give the folder"),
        (["run", "--resume", "--out", "nowhere"], "nowhere: not a run folder"),
        (["run", "--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["compare", "--methods", "fedavg,fedavg"], "'FedAvg' is listed twice"),
        (["compare", "--methods", "fedavg,fedmin"], "did you mean 'fedmim'"),
        (["compare", "--seeds", ""], "seeds: must be distinct whole numbers"),
        (["compare", "--target", "2"], "target: must be above 0"),
        (["compare", "--methods", "fedavg(lr=fast)"], "methods: "),
        (["compare", "--methods", "fedavg(speed=1)"], "'speed' is not known"),
        (["data", "fetch", "cifar11"], "did you mean 'cifar10'"),
        (["data", "delete"], "data: use"),
        (["methods", "fedmin"], "did you mean 'fedmim'"),
        (["report"], "runs: give at least one run folder"),
        (["report", "nowhere"], "nowhere: there is no such folder"),
        (["plot", "nowhere"], "nowhere: there is no such folder"),
        (["watch", "nowhere"], "nowhere: there is no such folder"),
        (["run", "--callback", "nowhere.py:Mine"], "callback: nowhere.py is not a file"),
        (["run", "--checkpoint-seconds", "nan"], "checkpoint_seconds: must be at least 0"),
        (["compare", "--checkpoint-seconds", "-1"], "checkpoint_seconds: must be at least 0"),
        (["reproduce", "table1", "--checkpoint-seconds", "nan"], "checkpoint_seconds: must be at least 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two_before_any_work(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.startswith("fedmim: ")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


WORDS = [["run", "--rouns", "3"], ["run", "--rounds", "x"], ["compare", "--fedmim.alpa", "1"]]


@pytest.mark.parametrize("words", WORDS)
def test_a_mistyped_flag_or_value_ends_with_exit_code_two(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert words[1] in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out", "resume", "quiet", "help"])
def test_a_field_of_an_own_method_that_is_also_a_flag_of_the_command_is_named(tmp_path, name, capsys):
    (tmp_path / "own.py").write_text(OWN.replace("factor", name))
    assert main(["run", "--method", f"{tmp_path / 'own.py'}:Slow"]) == 2
    assert f"field {name!r} is also a flag of fedmim run: rename it" in capsys.readouterr().err
