"""per_client.jsonl: what the evaluation found, cut back to the checkpoint on resuming, and damage named."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from problems import SIZES, classification, samples

from fedmim import Task
from fedmim.errors import UserError
from fedmim.experiments.config import defaults
from fedmim.experiments.per_client_file import PER_CLIENT, read_client_facts, read_evaluations
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder

NAMES = [f"user {letter}" for letter in "abcdefg"]
SETTINGS = {"rounds": 6, "clients": 7, "local_steps": 2, "batch_size": 4, "eval_every": 2}


def run_of(method="scaffold", **settings):
    return Run.make(method, defaults("digits") | SETTINGS | {"per_client": "personal"} | settings)


@pytest.fixture(scope="module")
def task():
    return classification(client_tests=[samples(1 + client, 50 + client) for client in range(7)], names=NAMES)


class StopNowError(Exception):
    pass


def stop_at(number):
    def watch(record):
        if record.round == number:
            raise StopNowError

    return watch


def test_the_file_has_the_clients_and_one_line_per_evaluation(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    folder.train(task)
    facts = read_client_facts(folder.path)
    assert facts.evaluated_on == "test"
    assert facts.sizes == list(SIZES)
    assert facts.test_sizes == [1, 2, 3, 4, 5, 6, 7]
    assert [facts.name(client) for client in range(7)] == NAMES
    evaluations = list(read_evaluations(folder.path))
    assert [each.round for each in evaluations] == [2, 4, 6]
    for each in evaluations:
        record = folder.metrics()[each.round - 1]
        assert record["clients_mean"] == pytest.approx(sum(each.model) / 7, rel=1e-14)
        assert record["clients_worst"] == min(each.model)
        assert record["personal_mean"] == pytest.approx(sum(each.personal) / 7, rel=1e-14)
    assert "clients_mean" not in folder.metrics()[0]  # not evaluated


def test_a_run_without_it_writes_neither_file_nor_fields_and_has_the_same_model(tmp_path, task):
    folders = [RunFolder.create(tmp_path / name, run_of(per_client=name)) for name in ("off", "global", "personal")]
    for folder in folders:
        folder.train(task)
    assert [(folder.path / PER_CLIENT).exists() for folder in folders] == [False, True, True]
    assert not any("clients_mean" in record for record in folders[0].metrics())
    assert len({(folder.path / "model.safetensors").read_bytes() for folder in folders}) == 1
    assert len({folder.run.identity() for folder in folders}) == 1


def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, task):
    whole, parts = (RunFolder.create(tmp_path / name, run_of()) for name in ("whole", "parts"))
    whole.train(task)
    for number in (2, 3, 4):  # after lines that the checkpoint does not know yet
        with pytest.raises(StopNowError):
            parts.train(task, stop_at(number), every=0)
    with (parts.path / PER_CLIENT).open("a") as file:
        file.write('{"round": 6, "mod')  # cut off in writing
    parts.train(task)
    assert (parts.path / PER_CLIENT).read_bytes() == (whole.path / PER_CLIENT).read_bytes()


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path):
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in (SETTINGS | {"rounds": 100, "model": "logistic"}).items()
    ]
    words = [sys.executable, "-m", "fedmim", "run", "--data", "digits", "--method", "fedavg", *flags]
    words += ["--per-client", "--checkpoint-seconds", "0", "--quiet", "--out"]
    process = subprocess.Popen([*words, str(tmp_path / "killed")])
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    shutil.copytree(tmp_path / "killed", tmp_path / "whole")
    (tmp_path / "whole" / PER_CLIENT).unlink()
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors", "metrics.jsonl"):
        (tmp_path / "whole" / name).unlink(missing_ok=True)
    for name in ("killed", "whole"):
        folder = RunFolder.open(tmp_path / name)
        assert folder.run.config.execution.per_client == "global"
        folder.train(folder.run.config.task())
    assert (tmp_path / "killed" / PER_CLIENT).read_bytes() == (tmp_path / "whole" / PER_CLIENT).read_bytes()
    assert len(list(read_evaluations(tmp_path / "killed"))) == 50


def test_it_can_be_switched_on_and_off_when_a_run_is_resumed(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of(per_client="off", rounds=2))
    folder.train(task)
    for rounds, per_client in ((4, "personal"), (6, "off"), (8, "global")):
        folder = RunFolder.reopen(folder.path, run_of(per_client=per_client, rounds=rounds))
        folder.train(task)
    assert [(each.round, each.personal is None) for each in read_evaluations(folder.path)] == [(4, False), (8, True)]


def test_clients_without_test_data_are_evaluated_on_their_training_data_and_the_file_says_so(tmp_path):
    task = Task.named("digits", clients=5, model="logistic")
    folder = RunFolder.create(tmp_path / "run", Run.make("fedavg", {"rounds": 1, "clients": 5, "per_client": "global"}))
    folder.train(task)
    facts = read_client_facts(folder.path)
    assert (facts.evaluated_on, facts.test_sizes, facts.names) == ("train", None, None)
    assert facts.name(3) == "3"


FACTS = {"evaluated_on": "test", "sizes": [3, 4], "test_sizes": [1, 2], "names": ["a", "b"]}
LINE = {"round": 1, "model": [0.5, None], "personal": [0.5, 1]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[]"], "line 1 is damaged (not a JSON object)"),
        ([FACTS | {"sizes": [3, -4]}], "line 1 is damaged (it does not describe the clients)"),
        ([FACTS | {"evaluated_on": "both"}], "line 1 is damaged"),
        ([FACTS | {"names": ["a"]}], "names are not one text per client"),
        ([FACTS | {"test_sizes": [1, "2"]}], "test_sizes are not one number per client"),
        ([FACTS, LINE, LINE], "line 3 is damaged (round 1 comes after round 1)"),
        ([FACTS, LINE | {"model": [0.5]}], "model is not one number per client"),
        ([FACTS, LINE | {"personal": [True, 0.5]}], "personal is not one number per client"),
        ([FACTS, LINE | {"round": 1.5}], "it has no round"),
        ([FACTS, '{"round": 1, "model": [NaN, 1]}'], "NaN is not a valid JSON number"),
    ],
)
def test_damage_is_named(tmp_path, lines, message):
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (tmp_path / PER_CLIENT).write_text(text)
    with pytest.raises(UserError) as caught:
        list(read_evaluations(tmp_path))
    assert message in str(caught.value)


def test_a_pipe_in_its_place_is_rejected_and_no_file_is_no_evaluation(tmp_path):
    assert read_client_facts(tmp_path) is None
    assert list(read_evaluations(tmp_path)) == []
    os.mkfifo(tmp_path / PER_CLIENT)
    with pytest.raises(UserError, match="is not a regular file"):
        read_client_facts(tmp_path)


def test_a_damaged_file_stops_a_resume_before_anything_is_written(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    with pytest.raises(StopNowError):
        folder.train(task, stop_at(3), every=0)
    path = folder.path / PER_CLIENT
    path.write_text(path.read_text().replace('"round"', '"rnd"'))
    before = {file: file.read_bytes() for file in folder.path.iterdir() if file.is_file()}
    with pytest.raises(UserError, match="line 2 is damaged"):
        folder.train(task)
    assert {file: file.read_bytes() for file in folder.path.iterdir() if file.is_file()} == before
