"""A worker process: `python -m fedmim.simulation.worker DESCRIPTOR NUMBER`, started by the pool.

It ends when the server ends, even if the server is killed or the worker is importing or training.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading


def end_with(server: int) -> None:
    """End this process as soon as the other end of the connection is closed."""
    poll = select.poll()
    poll.register(server, 0)  # only for hang-up
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=end_with, args=[connection.fileno()], daemon=True).start()

    from fedmim.simulation.trainer import serve  # imports torch, which takes seconds

    serve(connection, worker=int(sys.argv[2]))
