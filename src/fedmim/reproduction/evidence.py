"""The evidence behind `fedmim advise`: the results of the experiment family, in evidence.csv.

python -m fedmim.reproduction.evidence results      # write it anew from the tables in results/SCALE/
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedmim.experiments.config import Config
from fedmim.files import write_text
from fedmim.reproduction.experiment import PaperExperiment
from fedmim.reproduction.plan import column_settings
from fedmim.reproduction.scale import SCALES, Scale

EVIDENCE = Path(__file__).with_name("evidence.csv")
# The paper's tables lack the methods that are not in the paper. Beside them, these could not be compared, since only
# methods in all of the nearest settings are.
EXPERIMENT = "family"
STORED_DIGITS = 4  # of an accuracy in %
SAMPLES = {"mnist1d": 40, "cifar10": 500, "cifar100": 500}  # training samples per client, of 100 clients


@dataclass(frozen=True)
class Evidence:
    """The result of one method in one setting."""

    experiment: str
    scale: str
    data: str
    column: str
    split: str
    participation: float
    steps: int  # K, the mean number of local steps
    method: str
    lr: float
    hyper_parameters: str
    accuracy: float  # in %
    deviation: float  # over the seeds
    seeds: int

    @property
    def setting(self) -> tuple[str, str, float, int]:
        """What the methods are compared on."""
        return self.data, self.split, self.participation, self.steps


def load_evidence() -> list[Evidence]:
    """All evidence that comes with the package."""
    kinds = {"float": float, "int": int, "str": str}
    with EVIDENCE.open(encoding="utf-8", newline="") as file:
        return [
            Evidence(**{each.name: kinds[str(each.type)](row[each.name]) for each in fields(Evidence)})
            for row in csv.DictReader(file)
        ]


def collected(results: Path) -> str:
    """The text of evidence.csv, from the tables in the folder."""
    text = io.StringIO()
    lines = csv.DictWriter(text, [each.name for each in fields(Evidence)], lineterminator="\n")
    lines.writeheader()
    for scale in SCALES:
        if (path := results / scale / f"{EXPERIMENT}.csv").is_file():
            lines.writerows(asdict(each) for each in _rows(scale, path))
    return text.getvalue()


def _rows(scale: str, path: Path) -> Iterator[Evidence]:
    experiment, size = PaperExperiment.read(EXPERIMENT), Scale.read(scale)
    columns = {column.label: column for column in experiment.columns}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["last_ten_accuracy"]:
                continue
            data, column = row["data"], columns[row["column"]]
            config = Config.of(column_settings(experiment, size, data, column) | column.settings, EXPERIMENT)
            yield Evidence(
                *(EXPERIMENT, scale, data, column.label),
                split=config.problem.split,
                participation=config.settings.participation,
                steps=config.settings.steps(SAMPLES[data]),
                method=row["method"],
                lr=float(row["lr"]),
                hyper_parameters=row["hyper_parameters"],
                accuracy=round(100 * float(row["last_ten_accuracy"]), STORED_DIGITS),
                deviation=round(100 * float(row["last_ten_accuracy_std"]), STORED_DIGITS),
                seeds=int(row["seeds"]),
            )


if __name__ == "__main__":
    write_text(EVIDENCE, collected(Path(sys.argv[1])))
