"""The client: `flower-supernode` runs it."""

from fedmim.flower import client_app
from fedmim_app.task import algorithm, settings, task_for_partition

app = client_app(task_for_partition, algorithm, settings)
