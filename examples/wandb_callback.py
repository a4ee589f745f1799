"""Weights & Biases in five lines: log every run of a comparison with its settings and curves.

pip install wandb
fedmim compare --callback examples/wandb_callback.py:WandB
fedmim run --method fedmim --callback examples/wandb_callback.py:WandB

From Python: fedmim.simulate(algorithm, task, settings, callbacks=[WandB()]). MLflow works the same way, with
start_run and log_params, log_metrics, and end_run.
"""

from dataclasses import asdict

import wandb

import fedmim


class WandB(fedmim.Callback):
    """Logs each round."""

    def on_start(self, run: fedmim.RunInfo) -> None:
        """Start a W&B run."""
        wandb.init(project="fedmim", name=run.name, config=run.settings)

    def on_round(self, run: fedmim.RunInfo, record: fedmim.Record) -> None:
        """Log all values of the round except the list of its clients."""
        wandb.log({k: v for k, v in asdict(record).items() if v is not None and k != "clients"}, step=record.round)

    def on_end(self, run: fedmim.RunInfo) -> None:
        """Called also when the run was interrupted."""
        wandb.finish()
