"""Compare rounds with the bare limit and with other simulators, and write RESULTS.md.

    python -m benchmarks                      # everything; the machine should be otherwise idle
    python -m benchmarks W1 W3 --no-peers     # two workloads, without the peers' environments
    python -m benchmarks methods growth profile memory load flower jobs cluster
    python -m benchmarks attacks              # accuracy with dishonest clients: ten minutes
    python -m benchmarks look-ahead           # accuracy with a look-ahead that is set by a rule: half an hour
    python -m benchmarks kills --instants 500 # kills and full disks, each resumed and compared

All candidates of a workload take turns, one round each, so that other load on the machine affects them equally; a peer
takes turns with the bare limit and FedAvg. Results are ratios of consecutive rounds. Sections of RESULTS.md that are
not measured stay unchanged.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch

import fedmim
from benchmarks import (
    attacks,
    cluster,
    drift,
    flower,
    growth,
    jobs,
    kills,
    load,
    look_ahead,
    memory,
    methods,
    stage_times,
)
from benchmarks.bare import Bare
from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import ENGINES, WORKLOADS, Workload

RESULTS = Path(__file__).with_name("RESULTS.md")
REPEATS = {"W1": 5, "W2": 3, "W3": 100}
WARM = {"W1": 2, "W2": 1, "W3": 40}  # rounds before timing starts: start-up and tracing
BARE = "bare limit"
METHODS = (fedmim.FedAvg(), fedmim.FedMIM(), fedmim.Scaffold(), fedmim.FedCM(), fedmim.FedSAM())
PREFACE = f"""# Cost of a round

One round is 10 of 100 clients on random data, without evaluation. The bare limit is two single-threaded processes with
standard modules (channels last for images), tensors in memory, torch's SGD with weight decay, and nothing else.
Candidates took turns, one round each, on two cores; each peer took turns with the bare limit and FedAvg. Ratios are
medians over consecutive rounds, and their quartiles show how much the machine was disturbed. Each peer runs in its own
environment, in the mode that its documentation recommends for speed or that was faster in a short trial; blazefl
without the free-threaded Python that it recommends.
torch {torch.__version__}.
"""
OTHERS: dict[str, tuple[str, Callable[[], str]]] = {
    "methods": ("Time per round relative to FedAvg", methods.table),
    "growth": ("Growth", growth.table),
    "profile": ("Time per stage of a round (one process, methods take turns)", stage_times.table),
    "load": ("Load: many rounds, many clients, many runs", load.table),
    "flower": ("Flower: aggregation of replies of 45 MB on the server", flower.table),
    "jobs": ("Jobs: several runs at once", jobs.table),
    "cluster": ("Cluster: the ray engine on nodes of one CPU", cluster.table),
    "attacks": ("Attacks: MNIST-1D, 20 of 100 clients per round", attacks.table),
    "drift": ("Why SCAFFOLD's clients drift", drift.table),
    "look-ahead": ("Look-ahead from the measured response", look_ahead.table),
    "memory": ("Peak memory of all processes, shared pages counted once", memory.table),
}


Candidates = dict[str, Callable[[], object]]
Seconds = dict[str, list[float]]


def measure(workload: Workload, peers: bool) -> dict[str, Seconds]:
    """For each candidate, the seconds of its rounds and of the reference rounds next to them."""
    task, own, engine = workload.task(), workload.task(own_module=True), ENGINES[workload.name]
    runs = {f"{method.title}, {engine}": (method, task, engine) for method in METHODS}
    runs[f"FedAvg, {engine}, stock module"] = METHODS[0], own, engine
    runs["FedAvg, serial"] = METHODS[0], task, "serial"
    with closing(Bare(workload)) as bare:
        candidates: Candidates = {BARE: bare}
        for name, (method, problem, how) in runs.items():
            candidates[name] = fedmim.rounds(method, problem, *workload.protocol(how)).__next__
        warm(workload, candidates)
        together = take_turns(workload, candidates)
        found = dict.fromkeys(together, together)
        yardsticks = {name: candidates[name] for name in (BARE, f"FedAvg, {engine}")}
        for name, peer in PEERS.items() if peers else ():  # one at a time: together they do not fit into 24 GB
            with closing(Peer(workload, name)) as program:
                warm(workload, {peer.title: program})
                found[peer.title] = take_turns(workload, {**yardsticks, peer.title: program})
    return found


def warm(workload: Workload, candidates: Candidates) -> None:
    """Run the warm-up rounds."""
    for candidate in candidates.values():
        for _ in range(WARM[workload.name]):
            candidate()


def take_turns(workload: Workload, candidates: Candidates) -> Seconds:
    """Seconds of each round of candidates that take turns."""
    seconds: Seconds = {name: [] for name in candidates}
    for _ in range(REPEATS[workload.name]):
        for name, candidate in candidates.items():
            begin = time.perf_counter()
            candidate()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def table(workload: Workload, found: dict[str, Seconds]) -> str:
    """A Markdown table of medians and of ratios to the bare limit and to FedAvg on the same engine."""
    average = f"FedAvg, {ENGINES[workload.name]}"
    lines = [
        f"{workload.samples} samples per client, epochs: {workload.epochs}, batch {workload.batch}, "
        f"{workload.steps} steps per round. `python -m benchmarks {workload.name}`",
        "",
        "| | median s per round | best | speed / bare limit (quartiles) | time / FedAvg |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in found.items():
        each = seconds[name]
        speed = [bare / own for bare, own in zip(seconds[BARE], each, strict=True)]
        low, middle, high = statistics.quantiles(speed, n=4)
        cost = statistics.median(own / base for own, base in zip(each, seconds[average], strict=True))
        times = f"{statistics.median(each):.4g} | {min(each):.4g}"
        lines.append(f"| {name} | {times} | {middle:.2f} ({low:.2f} to {high:.2f}) | {cost:.2f} |")
    return "\n".join(lines)


def write(title: str, text: str) -> None:
    """Write a section to RESULTS.md; replaces the section with the same title."""
    known = RESULTS.read_text(encoding="utf-8").split("\n## ")[1:] if RESULTS.is_file() else []
    sections = {each.split("\n", 1)[0]: each.split("\n", 1)[1].strip() for each in known}
    sections[title] = text
    body = "".join(f"\n## {name}\n\n{content}\n" for name, content in sections.items())
    RESULTS.write_text(PREFACE + body, encoding="utf-8")


def main() -> None:
    """Measure the named parts and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the cost of a round.")
    parts = [*WORKLOADS, *OTHERS, "kills"]
    parser.add_argument(
        "parts", nargs="*", choices=[[], *parts], metavar="PART", help=f"{', '.join(parts)}; default all"
    )
    parser.add_argument("--no-peers", action="store_true", help="skip the other simulators")
    parser.add_argument("--instants", type=int, default=500, help="number of kills and of failed writes")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the kills")
    arguments = parser.parse_args()
    for part in arguments.parts or parts:
        print(f"measuring {part}", flush=True)
        if part in WORKLOADS:
            workload = WORKLOADS[part]
            title, text = f"{part}: {workload.model}", table(workload, measure(workload, not arguments.no_peers))
        elif part == "kills":
            title, text = "Kills and failed writes", kills.table(arguments.instants, arguments.seed)
        else:
            title, make = OTHERS[part]
            text = make() + f"\n\n`python -m benchmarks {part}`"
        print(f"\n{title}\n\n{text}\n", flush=True)
        write(title, text)


if __name__ == "__main__":
    main()
