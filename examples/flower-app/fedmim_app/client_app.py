"""The client, run by `flower-supernode`."""

from fedmim.flower import client_app
from fedmim_app.task import algorithm, settings, task_for_partition

app = client_app(task_for_partition, algorithm, settings)
