"""Download one file over HTTP: resume after an interruption, and check the MD5.

Received bytes are in `FILE.part`. It is renamed to `FILE` only if the checksum is right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedmim.data.descriptor import Download
from fedmim.errors import UserError

BYTES_PER_READ = 1 << 18
SECONDS_OF_SILENCE = 30
RANGE_NOT_SATISFIABLE = 416
PARTIAL_CONTENT = 206


def download_file(wanted: Download, folder: Path) -> Path:
    """The file in `folder`; downloads it unless it is already there (for example, copied there by hand)."""
    file = folder / wanted.address.rpartition("/")[2]
    part = file.with_name(f"{file.name}.part")
    if file.exists():
        if not _has_md5(file, wanted.md5):
            raise UserError(f"{file} does not have the MD5 {wanted.md5}: delete it and fetch again")
        return file
    if not (wanted.md5 and part.exists() and _has_md5(part, wanted.md5)):
        _transfer(wanted.address, part, file)
    if not _has_md5(part, wanted.md5):
        part.unlink()
        raise UserError(
            f"{wanted.address}: the received file does not have the MD5 {wanted.md5} and was deleted; fetch "
            f"again, or get the file elsewhere and save it as {file}"
        )
    return part.replace(file)


def _transfer(address: str, part: Path, file: Path) -> None:
    """Download the rest of `part`."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fedmim"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(address, headers=headers), timeout=SECONDS_OF_SILENCE)
    except HTTPError as error:
        error.close()
        if error.code != RANGE_NOT_SATISFIABLE or not have:
            raise _unreachable(address, file, error) from error
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # already complete
        part.unlink()
        _transfer(address, part, file)
        return
    except (OSError, HTTPException) as error:
        raise _unreachable(address, file, error) from error
    with response:
        _store(response, part, have, address, file)


def _store(response: HTTPResponse, part: Path, have: int, address: str, file: Path) -> None:
    """Append the response to `part`; replace it if the server ignores the range and sends the whole file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    content_range = response.headers.get("Content-Range", "")
    resumed = response.status == PARTIAL_CONTENT and content_range.startswith(f"bytes {have}-")
    arrived = have if resumed else 0
    length = response.headers.get("Content-Length")
    total = arrived + int(length) if length else None
    columns = "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress, part.open("ab" if resumed else "wb") as out:
        task = progress.add_task(file.name, total=total, completed=arrived)
        for chunk in _chunks(response, address, file):
            out.write(chunk)
            arrived += len(chunk)
            progress.update(task, completed=arrived)
    if total is not None and arrived != total:
        raise _unreachable(address, file, f"the connection closed after {arrived:,} of {total:,} bytes")


def _chunks(response: HTTPResponse, address: str, file: Path) -> Iterator[bytes]:
    try:
        while chunk := response.read(BYTES_PER_READ):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _unreachable(address, file, error) from error


def _unreachable(address: str, file: Path, why: object) -> UserError:
    reason = getattr(why, "reason", why)
    return UserError(
        f"{address} could not be downloaded ({reason}). Run the same command again to resume; without a "
        f"network, download that address on another machine, save the file as {file}, and run the command again"
    )


def _has_md5(path: Path, md5: str | None) -> bool:
    if md5 is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5
