"""Downloads, against a server on this machine: resumed, checked, unpacked whole or not at all."""

import hashlib
import http.server
import io
import os
import shutil
import tarfile
import threading
import zipfile
from dataclasses import replace

import pytest

from fedmim.data import catalogue, fetch
from fedmim.data.descriptor import DatasetDescriptor, Download
from fedmim.data.fetching import fetch_files
from fedmim.data.heart_disease import HEART_DISEASE
from fedmim.errors import UserError


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; `ranges` says whether it knows them, `cut` after how many bytes a connection breaks."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests = {}, []
        self.ranges, self.cut = True, None

    def address(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.requests.append((self.path, asked))
        content = self.server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        if begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][: self.server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


PAYLOAD = os.urandom(200_000)  # does not compress, so the archive has about this size


def tar_gz(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = tar_gz({"inner/data": PAYLOAD, "inner/meta": b"meta"})


def source(server, name="made.tar.gz", content=ARCHIVE, md5="right", inside="inner"):
    server.files[name] = content
    known = hashlib.md5(content).hexdigest() if md5 == "right" else md5
    return described(Download(server.address(name), known), inside=inside)


def described(*downloads, inside="inner"):
    return DatasetDescriptor(
        name="made", description="made up", folder="made-folder", downloads=downloads, inside=inside
    )


def assert_complete(folder):
    assert (folder / "data").read_bytes() == PAYLOAD
    assert (folder / "meta").read_bytes() == b"meta"


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_an_archive_is_downloaded_checked_unpacked_and_removed(server, tmp_path):
    directory = tmp_path / "new" / "data"
    folder = fetch_files(source(server), directory)
    assert folder == directory / "made-folder"
    assert_complete(folder)
    assert names(directory) == ["made-folder"]


def test_a_zip_without_a_published_checksum_is_unpacked_as_the_folder(server, tmp_path):
    made = source(server, "made.zip", zipped({"data": PAYLOAD, "meta": b"meta"}), md5=None, inside="")
    assert_complete(fetch_files(made, tmp_path))
    assert names(tmp_path) == ["made-folder"]


def test_files_that_are_no_archives_become_the_folder(server, tmp_path):
    server.files = {"data": PAYLOAD, "meta": b"meta"}
    downloads = [
        Download(server.address(name), hashlib.md5(content).hexdigest()) for name, content in server.files.items()
    ]
    assert_complete(fetch_files(described(*downloads, inside=""), tmp_path))
    assert names(tmp_path) == ["made-folder"]


def test_a_broken_download_is_resumed_where_it_stopped(server, tmp_path):
    made = source(server)
    server.cut = 50_000
    with pytest.raises(UserError, match=r"closed after 50,000 of .* Run the same command again"):
        fetch_files(made, tmp_path)
    assert (tmp_path / "made.tar.gz.part").stat().st_size == 50_000
    server.cut = None
    assert_complete(fetch_files(made, tmp_path))
    assert server.requests[-1] == ("/made.tar.gz", "bytes=50000-")


def test_a_server_that_ignores_ranges_sends_all_anew(server, tmp_path):
    made = source(server)
    server.ranges = False
    (tmp_path / "made.tar.gz.part").write_bytes(ARCHIVE[:1000])
    assert_complete(fetch_files(made, tmp_path))


def test_a_part_that_is_complete_is_not_downloaded_again(server, tmp_path):
    made = source(server)
    (tmp_path / "made.tar.gz.part").write_bytes(ARCHIVE)
    assert_complete(fetch_files(made, tmp_path))
    assert not server.requests


def test_a_complete_part_without_a_published_checksum_is_recognised_by_its_length(server, tmp_path):
    made = source(server, md5=None)
    (tmp_path / "made.tar.gz.part").write_bytes(ARCHIVE)
    assert_complete(fetch_files(made, tmp_path))
    assert server.requests == [("/made.tar.gz", f"bytes={len(ARCHIVE)}-")]


def test_a_part_longer_than_the_file_is_begun_anew(server, tmp_path):
    made = source(server)
    (tmp_path / "made.tar.gz.part").write_bytes(ARCHIVE + b"more")
    assert_complete(fetch_files(made, tmp_path))


def test_a_wrong_checksum_is_rejected_and_nothing_is_unpacked(server, tmp_path):
    made = source(server, md5="0" * 32)
    with pytest.raises(UserError, match="does not have the MD5 000"):
        fetch_files(made, tmp_path)
    assert names(tmp_path) == []


def test_an_archive_put_there_by_hand_is_used_without_a_network(tmp_path):
    address = "http://127.0.0.1:9/made.tar.gz"
    made = described(Download(address, hashlib.md5(ARCHIVE).hexdigest()))
    (tmp_path / "made.tar.gz").write_bytes(ARCHIVE)
    assert_complete(fetch_files(made, tmp_path))


def test_a_wrong_archive_put_there_by_hand_is_rejected_but_kept(tmp_path):
    made = described(Download("http://127.0.0.1:9/made.tar.gz", "0" * 32))
    (tmp_path / "made.tar.gz").write_bytes(ARCHIVE)
    with pytest.raises(UserError, match=r"made\.tar\.gz does not have the MD5"):
        fetch_files(made, tmp_path)
    assert names(tmp_path) == ["made.tar.gz"]


def test_without_a_network_it_says_address_file_and_folder(tmp_path):
    address = "http://127.0.0.1:9/made.tar.gz"  # port 9: nobody listens
    made = described(Download(address, None))
    with pytest.raises(UserError) as caught:
        fetch_files(made, tmp_path)
    message = str(caught.value)
    assert address in message
    assert str(tmp_path / "made.tar.gz") in message
    assert "\n" not in message


def test_an_http_error_is_reported(server, tmp_path):
    made = described(Download(server.address("absent.zip"), None))
    with pytest.raises(UserError, match=r"absent\.zip could not be downloaded"):
        fetch_files(made, tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/tmp/fedmim-evil", "inner/../../evil"])
@pytest.mark.parametrize(("file", "pack"), [("made.zip", zipped), ("made.tar.gz", tar_gz)])
def test_names_that_lead_out_of_the_folder_write_nothing_outside(server, tmp_path, name, file, pack):
    directory = tmp_path / "data"
    made = source(server, file, pack({"inner/data": b"", name: b"evil"}))
    with pytest.raises(UserError, match="leads out of its folder"):
        fetch_files(made, directory)
    assert names(directory) == [file]
    assert names(tmp_path) == ["data"]
    assert not os.path.exists("/tmp/fedmim-evil")  # noqa: PTH110


def test_a_link_that_leads_out_of_the_folder_is_an_error(server, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        link = tarfile.TarInfo("inner/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../outside"
        tar.addfile(link)
    with pytest.raises(UserError, match="'inner/link' in it leads out of its folder"):
        fetch_files(source(server, content=buffer.getvalue()), tmp_path)
    assert names(tmp_path) == ["made.tar.gz"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("made.zip", zipped({"inner/data": PAYLOAD})[:-40]),
        ("made.zip", zipped({"inner/data": PAYLOAD}).replace(PAYLOAD[:8], b"damaged!", 1)),
        ("made.tar.gz", ARCHIVE[:-5000]),
        ("made.tar.gz", b"no archive"),
    ],
)
def test_a_damaged_archive_without_a_checksum_is_rejected_and_leaves_no_folder(server, tmp_path, file, content):
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch_files(source(server, file, content, md5=None), tmp_path)
    assert names(tmp_path) == [file]


def test_an_archive_of_something_else_is_rejected(server, tmp_path):
    with pytest.raises(UserError, match="has no folder inner"):
        fetch_files(source(server, content=tar_gz({"other/data": b""})), tmp_path)


def test_a_full_disk_is_reported_and_what_was_there_stays(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    made = source(server)
    (tmp_path / "other").mkdir()
    monkeypatch.setattr("fedmim.data.fetching.unpack_archive", full)
    with pytest.raises(UserError, match=r"could not be stored in .*No space left on device"):
        fetch_files(made, tmp_path)
    assert names(tmp_path) == ["made.tar.gz", "other"]
    monkeypatch.undo()
    server.files.clear()
    assert_complete(fetch_files(made, tmp_path))  # from the archive that was kept


def test_a_folder_that_cannot_be_made_is_reported(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="could not be stored"):
        fetch_files(source(server), tmp_path / "file" / "data")


def test_fetch_returns_what_is_there_and_refuses_to_touch_what_is_incomplete(tmp_path):
    folder = tmp_path / "heart-disease"
    folder.mkdir()
    (folder / "mine.txt").write_text("kept")
    with pytest.raises(UserError, match="is incomplete"):
        fetch("heart-disease", tmp_path)
    assert names(folder) == ["mine.txt"]
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        (folder / f"processed.{hospital}.data").write_text("")
    assert fetch("heart-disease", tmp_path) == folder


def test_fetch_by_name_downloads_into_the_folder_that_the_loader_reads(server, tmp_path, monkeypatch):
    files = {f"processed.{name}.data": b"x" for name in ("cleveland", "hungarian", "switzerland", "va")}
    server.files["heart.zip"] = zipped(files)
    made = replace(HEART_DISEASE, downloads=(Download(server.address("heart.zip"), None),))
    monkeypatch.setattr(catalogue, "DATA_SETS", (made,))
    assert fetch("heart-disease", tmp_path) == tmp_path / "heart-disease"
    shutil.rmtree(tmp_path / "heart-disease")
    del files["processed.va.data"]
    server.files["heart.zip"] = zipped(files)
    with pytest.raises(UserError, match=r"processed\.va\.data is missing"):
        fetch("heart-disease", tmp_path)


def test_names_that_cannot_be_fetched_are_rejected():
    with pytest.raises(UserError, match="needs no download"):
        fetch("digits")
    with pytest.raises(UserError, match="did you mean 'cifar100'"):
        fetch("cifar-100")


def test_official_addresses_are_encrypted_and_their_sums_have_the_length_of_md5():
    for each in catalogue.DATA_SETS:
        for download in each.downloads:
            assert download.address.startswith("https://")
            assert download.md5 is None or len(bytes.fromhex(download.md5)) == 16
