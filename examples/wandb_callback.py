"""Weights & Biases in five lines: every run of a comparison becomes a run there, with its settings and curves.

pip install wandb
fedmim compare --callback examples/wandb_callback.py:WandB
fedmim run --method fedmim --callback examples/wandb_callback.py:WandB

From Python: fedmim.simulate(algorithm, task, settings, callbacks=[WandB()]). MLflow takes the same five lines, with
start_run and log_params, log_metrics, and end_run.
"""

from dataclasses import asdict

import wandb

import fedmim


class WandB(fedmim.Callback):
    """Logs each round."""

    def on_start(self, run: fedmim.RunInfo) -> None:
        """A run there for each run here."""
        wandb.init(project="fedmim", name=run.name, config=run.settings)

    def on_round(self, run: fedmim.RunInfo, record: fedmim.Record) -> None:
        """All figures of the round but the list of its clients."""
        wandb.log({k: v for k, v in asdict(record).items() if v is not None and k != "clients"}, step=record.round)

    def on_end(self, run: fedmim.RunInfo) -> None:
        """Also when the run was broken off."""
        wandb.finish()
