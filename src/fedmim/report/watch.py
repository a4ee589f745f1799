"""A live page of runs in progress. By default, only this machine can open it.

The server answers two addresses, the page and its updates. It cannot serve any other file.
"""

from __future__ import annotations

import errno
import hashlib
import re
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedmim.errors import UserError
from fedmim.experiments.client_labels import CLIENT_LABELS
from fedmim.experiments.per_client_file import PER_CLIENT
from fedmim.experiments.run_folder import CONFIG, METRICS, Records, RunFolder
from fedmim.report.page import news, page
from fedmim.results.grouping import RunGroup, group_runs
from fedmim.results.loading import find_runs, folders_below, load_results, records_of

PORT = 8765
LOCAL = ("127.0.0.1", "localhost", "::1")
Stamp = tuple[int, int]  # size and time of a file


class Watched:
    """The runs below some folders. Files are read again if they have changed."""

    def __init__(self, paths: Sequence[Path], target: float | None) -> None:
        self.paths, self.target = paths, target
        self._lock = threading.Lock()
        self._folders: dict[Path, tuple[Stamp | None, RunFolder]] = {}
        self._records: dict[Path, tuple[Stamp | None, Records]] = {}
        self._news: tuple[str, str] = ("", "")  # tag and text
        find_runs(paths, lambda _: None, self._folder)  # raises UserError if there are no runs

    def page(self) -> str:
        """The whole page."""
        with self._lock:
            return page(*self._groups(), live=True)

    def tag(self) -> str:
        """A tag that changes whenever a file of the runs changes."""
        folders = [folder for path in self.paths for folder in folders_below(path, lambda _: None)]
        files = [folder / name for folder in folders for name in (CONFIG, METRICS, PER_CLIENT, CLIENT_LABELS)]
        stamps = "\n".join(f"{file} {stamp(file)}" for file in files)
        return f'"{hashlib.blake2b(stamps.encode(), digest_size=12).hexdigest()}"'

    def news(self, tag: str) -> str:
        """The update of the page for this tag."""
        with self._lock:
            if self._news[0] != tag:
                self._news = tag, news(*self._groups())
            return self._news[1]

    def _groups(self) -> tuple[list[RunGroup], list[str]]:
        """The runs, and a list of what could not be read."""
        left_out: list[str] = []
        folders = find_runs(self.paths, left_out.append, self._folder)
        return group_runs(load_results(folders, left_out.append, self._metrics), self.target), left_out

    def _folder(self, path: Path) -> RunFolder:
        """Open a run. It is cached until its configuration changes."""
        now = stamp(path / CONFIG)
        if path not in self._folders or self._folders[path][0] != now:
            self._folders[path] = now, RunFolder.open(path)
        return self._folders[path][1]

    def _metrics(self, folder: RunFolder) -> Records:
        """Read the records of a run. They are cached until the file changes."""
        now = stamp(folder.path / METRICS)
        if folder.path not in self._records or self._records[folder.path][0] != now:
            self._records[folder.path] = now, records_of(folder)
        return self._records[folder.path][1]


def stamp(file: Path) -> Stamp | None:
    """Size and modification time of a file; None if it does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class PageHandler(BaseHTTPRequestHandler):
    """Serves the page and its updates."""

    server: PageServer

    def do_GET(self) -> None:
        """Serve the page at / and its updates at /news, and nothing else."""
        if not self.server.answers(self.headers.get("Host", "")):
            return self._send(HTTPStatus.FORBIDDEN, "text/plain", "only this machine can open this page")
        path = self.path.partition("?")[0]
        try:
            if path == "/":
                return self._send(HTTPStatus.OK, "text/html", self.server.watched.page())
            if path == "/news":
                tag = self.server.watched.tag()
                if self.headers.get("If-None-Match") == tag:
                    return self._send(HTTPStatus.NOT_MODIFIED, "application/json", "")
                return self._send(HTTPStatus.OK, "application/json", self.server.watched.news(tag), tag)
        except (UserError, OSError) as error:
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error))
        return self._send(HTTPStatus.NOT_FOUND, "text/plain", "not found")

    def _send(self, status: HTTPStatus, kind: str, text: str, tag: str | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log requests to the terminal."""


class PageServer(ThreadingHTTPServer):
    """The server of one page."""

    daemon_threads = True

    def __init__(self, watched: Watched, host: str, port: int | None) -> None:
        self.watched = watched
        self.local = host in LOCAL
        try:
            super().__init__((host, PORT if port is None else port), PageHandler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                super().__init__((host, 0), PageHandler)  # any free port
            else:
                raise UserError(f"host, port: cannot serve on {host}:{port or PORT} ({error.strerror})") from error

    @property
    def address(self) -> str:
        """The address to open."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/"

    def answers(self, host: str) -> bool:
        """Whether the host of a request is valid. Other names are rejected, to prevent DNS rebinding."""
        named = re.fullmatch(r"\[?([a-z0-9.:-]+?)\]?(:\d+)?", host.lower())
        return not self.local or (named is not None and named[1] in LOCAL)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore browsers that close the connection."""
