"""A worker process: `python -m fedmim.simulation.worker DESCRIPTOR NUMBER`, started by the pool.

It ends with the server, however that ends and whatever the worker is doing then: importing, waiting, or training.
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
    poll.register(server, 0)  # for nothing but its end
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=end_with, args=[connection.fileno()], daemon=True).start()

    from fedmim.simulation.trainer import serve  # imports torch, which takes seconds

    serve(connection, worker=int(sys.argv[2]))
