"""Any configuration, by flags or by file: accepted, or one line and exit code 2; nothing is written either way."""

import contextlib
import io
import sys
from dataclasses import fields

import pytest
import tomli_w
from fuzzing import bounded_memory, damaged, fuzzed
from hypothesis import example, given
from hypothesis import strategies as st

from fedmim.algorithms import METHODS
from fedmim.cli import main
from fedmim.commands import compare, run
from fedmim.experiments.config import PART_OF, Config

OWN = {field.name for kind in METHODS.values() for field in fields(kind)}
NAMES = [*PART_OF, *OWN, "method", "label", "methods", "seeds", "target", "variants", *METHODS]
FLAGS = [*PART_OF, *OWN, "label", "checkpoint_seconds", "seeds", "target", "fedmim.alpha", "fedavgm.momentum"]
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-3, 30),
    st.sampled_from([10**k for k in range(1, 25)] + [2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63)]),
    st.floats(),
    st.floats(0, 1),
)
SPECIAL = st.sampled_from(
    [
        *("none", "nan", "inf", "-inf", "1e400", "1" * 5000, "-1", "0", "", ",", "1,2", "0.5,0.4", "true", "²", "١"),
        *("iid", "natural", "dirichlet:0.1", "dirichlet:1e-320", "pathological:2", "pathological:" + "9" * 30),
        *("digits", "cifar10", "tensors:a", "folder:a", "tiny-imagenet:3", "mlp", "cnn", "logistic"),
        *("cpu", "cuda", "meta", "mps", "serial", "vectorised", "processes", "samples", "catch-up", "broadcast"),
        *("uniform:0,1", "uniform:0.5,2,0.9", "uniform:0," + "9" * 400, "drop", "partial"),
        *("a\0b", "x" * 300, "a.py:B", *METHODS),
    ]
)
TEXTS = st.one_of(SPECIAL, st.text(max_size=20))
VALUES = st.recursive(
    st.one_of(NUMBERS, st.booleans(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
VALID = tomli_w.dumps({**Config().plain(), "seeds": [0, 1], "methods": ["fedavg"], "fedmim": {"alpha": [0.5]}}).encode()
COMMANDS = st.sampled_from(["run", "compare"])


class Accepted(BaseException):
    """The command would begin to write now."""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Commands check everything as they do, and stop where they would begin to write; in an empty folder."""

    def checked_then_stop(runs, output, *more):
        with real(runs, output, *more):
            raise Accepted

    real = run.check_runs
    for command in (run, compare):
        monkeypatch.setattr(command, "check_runs", checked_then_stop)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def outcome(words, folder):
    """What came of a command; anything but the three ends that are meant fails the test."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors), bounded_memory():
        try:
            code = main(words)
        except Accepted:
            code = "accepted"
        except SystemExit as stop:  # of tyro, for a flag that it cannot read
            code = f"exit {stop.code}"
    assert code in ("accepted", 2, "exit 2"), (code, errors.getvalue()[-500:])
    if code == 2:
        lines = errors.getvalue().splitlines()
        assert lines[-1].startswith("fedmim: ")
        assert len(errors.getvalue()) < 3000
    assert list(folder.iterdir()) == []
    return code


@fuzzed(60, slow=3)
@given(command=COMMANDS, flags=st.dictionaries(st.sampled_from(FLAGS), st.one_of(NUMBERS.map(str), TEXTS), max_size=4))
@example(command="run", flags={"lr": "1e300"})
@example(command="run", flags={"lr_decay": "10", "rounds": "400"})
@example(command="run", flags={"clients": str(10**12)})
@example(command="run", flags={"clients": "1" * 5000})
@example(command="run", flags={"rounds": str(10**18)})
@example(command="run", flags={"batch_size": str(10**18)})
@example(command="run", flags={"local_epochs": str(10**18)})
@example(command="run", flags={"local_steps": str(10**12)})
@example(command="run", flags={"local_steps": str(10**8), "work": "uniform:0,1000"})
@example(command="run", flags={"local_steps": str(2**63 - 1), "work": "uniform:0,1000"})
@example(command="run", flags={"deadline": "1e-300", "late": "partial", "speed_spread": "10"})
@example(command="run", flags={"availability": "1e-300", "rounds_per_day": str(2**63 - 1)})
@example(command="run", flags={"workers": str(10**10), "engine": "processes"})
@example(command="run", flags={"weight_decay": "1e300"})
@example(command="run", flags={"seed": str(10**30)})
@example(command="run", flags={"image_size": "100000"})
@example(command="run", flags={"device": "meta"})
@example(command="run", flags={"split": "pathological:" + "9" * 5000})
@example(command="run", flags={"data": "tiny-imagenet:" + "9" * 5000})
@example(command="compare", flags={"seeds": "-1"})
@example(command="compare", flags={"seeds": "1" * 5000})
@example(command="compare", flags={"seeds": str(10**30)})
@example(command="compare", flags={"target": "nan"})
def test_any_flags_are_accepted_or_rejected_in_one_line(here, command, flags):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if "\0" not in value]
    outcome([command, *words], here)


@fuzzed(60, slow=3)
@given(command=COMMANDS, values=st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), VALUES))
@example(command="run", values={"data": 0.5})
@example(command="run", values={"data": {}})
@example(command="run", values={"seeds": -1})
@example(command="run", values={"label": [1]})
@example(command="run", values={"data": "tensors:a\0b"})
@example(command="run", values={"data_dir": "a\0b"})
@example(command="run", values={"device": "\0"})
@example(command="compare", values={"seeds": [-1]})
@example(command="compare", values={"seeds": [10**30]})
@example(command="compare", values={"variants": [{"method": "fedmim", "label": [1]}]})
def test_any_values_in_a_file_are_accepted_or_rejected_in_one_line(here, tmp_path, command, values):
    path = tmp_path / "settings.toml"
    try:
        path.write_text(tomli_w.dumps(values))
    except (ValueError, RecursionError):  # what TOML cannot write: lone surrogates
        return
    outcome([command, "--config", str(path)], here)


@fuzzed(40, slow=3)
@given(command=COMMANDS, content=damaged(VALID))
@example(command="run", content=b"a = " + b"[" * 3000)
@example(command="run", content=b"lr = " + b"9" * 5000)
@example(command="run", content=b"rounds = 0x" + b"f" * 5000)
@example(command="run", content=b"lr = " + b"1" * 4000)
@example(command="run", content=b"a." * 100_000 + b"a = 1")
@example(command="run", content=b'"a"."b" .' * 100_000 + b"a = 1")
@example(command="run", content=b't = {a = """x"""", ' + b"a." * 100_000 + b'a = 1, c = ""}')
@example(command="run", content=b"rounds = 1979-05-27")
@example(command="run", content=b"\xff\xfe")
@example(command="run", content=b"#" * 20_000_000)
def test_any_bytes_in_a_file_are_accepted_or_rejected_in_one_line(here, tmp_path, command, content):
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    outcome([command, "--config", str(path)], here)


@pytest.mark.parametrize("path", ["/", "/dev/zero", "/proc/self/mem"])
def test_a_path_that_is_not_a_file_of_settings_is_rejected(here, path):
    assert outcome(["run", "--config", path], here) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory by /proc")
def test_the_bound_on_memory_is_one():
    with bounded_memory(), pytest.raises(MemoryError):
        bytearray(2 << 30)
