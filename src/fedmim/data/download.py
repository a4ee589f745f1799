"""One file over HTTP: resumed where it broke off, and checked before it gets its name.

What has arrived is in `FILE.part`. Only a file with the right checksum becomes `FILE`.
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
    """The file in `folder`, downloaded unless it is there already (also one that was put there by hand)."""
    file = folder / wanted.address.rpartition("/")[2]
    part = file.with_name(f"{file.name}.part")
    if file.exists():
        if not _has_md5(file, wanted.md5):
            raise UserError(f"{file} has not the MD5 {wanted.md5}: delete it and fetch again")
        return file
    if not (wanted.md5 and part.exists() and _has_md5(part, wanted.md5)):
        _transfer(wanted.address, part, file)
    if not _has_md5(part, wanted.md5):
        part.unlink()
        raise UserError(
            f"{wanted.address}: what arrived has not the MD5 {wanted.md5} and was discarded; fetch "
            f"again, and if that does not help, get the file elsewhere and put it as {file}"
        )
    return part.replace(file)


def _transfer(address: str, part: Path, file: Path) -> None:
    """Complete `part`."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fedmim"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(address, headers=headers), timeout=SECONDS_OF_SILENCE)
    except HTTPError as error:
        error.close()
        if error.code != RANGE_NOT_SATISFIABLE or not have:
            raise _unreachable(address, file, error) from error
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # it was complete
        part.unlink()
        _transfer(address, part, file)
        return
    except (OSError, HTTPException) as error:
        raise _unreachable(address, file, error) from error
    with response:
        _store(response, part, have, address, file)


def _store(response: HTTPResponse, part: Path, have: int, address: str, file: Path) -> None:
    """Append the response to `part`; where the server ignored the request for the rest and sends all, replace it."""
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
        raise _unreachable(address, file, f"it broke off after {arrived:,} of {total:,} bytes")


def _chunks(response: HTTPResponse, address: str, file: Path) -> Iterator[bytes]:
    try:
        while chunk := response.read(BYTES_PER_READ):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _unreachable(address, file, error) from error


def _unreachable(address: str, file: Path, why: object) -> UserError:
    reason = getattr(why, "reason", why)
    return UserError(
        f"{address} could not be downloaded ({reason}). Run the same command again to go on from where it "
        "stopped; or, without a network, download that address on another machine, put the file as "
        f"{file} and run it again"
    )


def _has_md5(path: Path, md5: str | None) -> bool:
    if md5 is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5
