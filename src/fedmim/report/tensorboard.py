"""A callback that writes the curves of each run for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmim.errors import UserError

if TYPE_CHECKING:
    from fedmim.simulation.callbacks import RunInfo
    from fedmim.simulation.record import Record

TAGS = {
    "accuracy/test": "test_accuracy",
    "loss/test": "test_loss",
    "loss/train": "train_loss",
    "clients/consistency": "consistency",
    "clients/refused": "refused",
    "clients/epsilon": "epsilon",
    "clients/mean": "clients_mean",
    "clients/worst-tenth": "clients_worst",
    "clients/std": "clients_std",
    "clients/median": "clients_q50",
    "clients/personal-mean": "personal_mean",
    "bytes/up": "bytes_up",
    "bytes/down": "bytes_down",
    "time/seconds": "seconds",
    "lr": "lr",
}


class TensorBoard:
    """Writes scalars to folder/run-name. A resumed run continues there and replaces the repeated rounds."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("tensorboard: requires TensorBoard: pip install 'fedmim[tensorboard]'") from error
        self.folder = folder
        self._make: Any = SummaryWriter
        self._writer: Any = None

    def on_start(self, run: RunInfo) -> None:
        """Does nothing: the file is created in the first round, which determines what to replace."""

    def on_round(self, run: RunInfo, record: Record) -> None:
        """Write one point of each curve."""
        if self._writer is None:
            self._writer = self._make(str(self.folder / run.name), purge_step=record.round)
            settings = "\n".join(f"    {name} = {value}" for name, value in run.settings.items())
            self._writer.add_text("settings", settings, record.round)
        for tag, name in TAGS.items():
            if (value := getattr(record, name)) is not None:
                self._writer.add_scalar(tag, value, record.round)

    def on_end(self, run: RunInfo) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
