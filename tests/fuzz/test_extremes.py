"""Settings at the ends of what is accepted train: uploads that are not finite are rejected, nothing else goes wrong."""

import warnings
from dataclasses import fields

from fuzzing import fuzzed
from hypothesis import example, given
from hypothesis import strategies as st
from problems import classification

import fedmim
from fedmim.algorithms import METHODS
from fedmim.errors import UserError

NUMBERS = st.sampled_from([1e9, 1e6, 1.0, 0.999_999_999, 0.5, 1e-9, 1e-300, 5e-324, 0.0])
SETTINGS = ("lr", "lr_decay", "weight_decay", "clip_norm", "server_lr", "participation")


@fuzzed(60, slow=5)
@given(
    method=st.sampled_from(list(METHODS)),
    own=st.lists(NUMBERS, min_size=4, max_size=4),
    values=st.dictionaries(st.sampled_from(SETTINGS), NUMBERS),
    engine=st.sampled_from(["serial", "vectorised"]),
    history=st.sampled_from(["server", "catch-up", "broadcast"]),
)
@example("fedmim", [0.999_999_999, 1e9, 0, 0], {"lr": 1e9, "weight_decay": 1e9, "server_lr": 1e9}, "serial", "server")
@example("fedprox", [1e9, 0, 0, 0], {"lr": 1e9, "weight_decay": 1e9, "server_lr": 1e9}, "vectorised", "server")
@example("feddyn", [5e-324, 0, 0, 0], {"lr": 1e9, "weight_decay": 1e9}, "serial", "server")
def test_what_is_accepted_trains(method, own, values, engine, history):
    kind = METHODS[method]
    try:
        mine = {field.name: value for field, value in zip(fields(kind), own, strict=False)}
        algorithm = kind(**{name: (value,) if method == "fedmim" else value for name, value in mine.items()})
        settings = fedmim.Settings(rounds=2, local_epochs=1, history=history, **values)
        run = fedmim.rounds(algorithm, classification(), settings, fedmim.Execution(engine=engine))
    except (UserError, ValueError):
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*every upload was rejected")
        for record in run:
            assert record.refused >= 0
    assert run.params.isfinite().all()
