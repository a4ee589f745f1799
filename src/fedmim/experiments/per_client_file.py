"""per_client.jsonl: the metric of each client, one line per evaluation. All checks of its content are here.

The first line has what does not change: the names and numbers of samples of the clients, and on which data they are
evaluated. Each line after it has a round, the metrics of all clients with the global model (`model`) and, if evaluated,
with the model after their own local steps (`personal`). null: the client has no test data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedmim.experiments.metrics_file import HIGHEST, cut_records, parse_object, read_lines
from fedmim.files import AppendedLines, write_text

if TYPE_CHECKING:
    from fedmim.simulation.per_client import ClientScores
    from fedmim.simulation.task import Task

PER_CLIENT = "per_client.jsonl"
LARGEST_METRIC = 1e300

Values = list[float | None]  # of each client


@dataclass(frozen=True)
class ClientFacts:
    """What the first line says about the clients."""

    evaluated_on: str  # "test" or "train": the clients' own test data, or their training data
    sizes: list[int]  # training samples
    test_sizes: list[int] | None  # own test samples; None if evaluated on the training data
    names: list[str] | None  # None: their numbers

    def name(self, client: int) -> str:
        """The name of a client."""
        return str(client) if self.names is None else self.names[client]


class ClientLine(NamedTuple):
    """One evaluation of all clients."""

    round: int
    model: Values
    personal: Values | None


def read_client_facts(folder: Path) -> ClientFacts | None:
    """The first line; None if the run has not evaluated its clients."""
    return next((line for line in _read(folder) if isinstance(line, ClientFacts)), None)


def read_evaluations(folder: Path) -> Iterator[ClientLine]:
    """Yield the evaluations of a run, in order. A truncated last line is skipped."""
    return (line for line in _read(folder) if isinstance(line, ClientLine))


def lines_until(folder: Path, round: int) -> int:
    """The number of lines up to a round; 0 if there is no file. All lines are checked."""
    return sum(isinstance(line, ClientFacts) or line.round <= round for line in _read(folder))


def start_client_scores(
    folder: Path, task: Task, evaluated_on: str | None, lines: int
) -> AbstractContextManager[ScoresFile | None]:
    """Truncate the file to these lines, and open it to append to.

    Without `evaluated_on`, clients are not evaluated: there is nothing to append.
    """
    path = folder / PER_CLIENT
    if path.exists() and lines:
        cut_records(path, lines)
    elif evaluated_on is not None:
        write_text(path, json.dumps(_facts_of(task, evaluated_on)) + "\n")
    return nullcontext() if evaluated_on is None else ScoresFile(path)


class ScoresFile(AppendedLines):
    """The file of a run in progress."""

    def add_scores(self, scores: ClientScores) -> None:
        """Append one evaluation."""
        line: dict[str, Any] = {"round": scores.round, "model": scores.model}
        self.add(json.dumps(line if scores.personal is None else line | {"personal": scores.personal}))


def _facts_of(task: Task, evaluated_on: str) -> dict[str, Any]:
    from fedmim.structure import length

    clients = range(len(task.clients))
    tests = [task.client_test(client) for client in clients] if evaluated_on == "test" else None
    return {
        "evaluated_on": evaluated_on,
        "sizes": [task.size(client) for client in clients],
        "test_sizes": tests and [0 if test is None else length(test[1]) for test in tests],
        "names": None if task.names is None else list(task.names),
    }


def _read(folder: Path) -> Iterator[ClientFacts | ClientLine]:
    """Yield the lines of the file; nothing if there is none."""
    facts: ClientFacts | None = None
    last = 0

    def parse(line: bytes, number: int) -> ClientFacts | ClientLine:
        nonlocal facts, last
        values = parse_object(line)
        if facts is None:
            facts = _facts(values)
            return facts
        evaluation = _evaluation(values, len(facts.sizes))
        if evaluation.round <= last:
            raise ValueError(f"round {evaluation.round} comes after round {last}")
        last = evaluation.round
        return evaluation

    return read_lines(folder / PER_CLIENT, parse)


def _facts(values: dict[str, Any]) -> ClientFacts:
    kind, sizes, tests, names = (values.get(name) for name in ("evaluated_on", "sizes", "test_sizes", "names"))
    if kind not in ("test", "train") or not _counts(sizes) or not sizes:
        raise ValueError("it does not describe the clients")
    if tests is not None and not (_counts(tests) and len(tests) == len(sizes)):
        raise ValueError("test_sizes are not one number per client")
    if names is not None and not (
        isinstance(names, list) and len(names) == len(sizes) and all(isinstance(name, str) for name in names)
    ):
        raise ValueError("names are not one text per client")
    return ClientFacts(kind, sizes, tests, names)


def _evaluation(values: dict[str, Any], clients: int) -> ClientLine:
    round, model, personal = (values.get(name) for name in ("round", "model", "personal"))
    if type(round) is not int or not 0 < round < HIGHEST:
        raise ValueError("it has no round")
    for name, each in (("model", model), ("personal", personal)):
        if not (name == "personal" and each is None) and not _metrics(each, clients):
            raise ValueError(f"{name} is not one number per client")
    return ClientLine(round, model, personal)  # type: ignore[arg-type]  # checked


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(each) is int and 0 <= each < HIGHEST for each in values)


def _metrics(values: Any, clients: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == clients
        and all(each is None or (type(each) in (int, float) and abs(each) <= LARGEST_METRIC) for each in values)
    )
