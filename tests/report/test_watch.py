"""The server of a live page: the page and its news, on this machine, and nothing else."""

import json
import threading
from http.client import HTTPConnection

import pytest
from run_folders import comparison, fill, record

from fedmim.errors import UserError
from fedmim.report.watch import PageServer, Watched
from fedmim.results.loading import find_runs

ENTRIES = [("fedavg", None, {}), ("fedmim", None, {})]


@pytest.fixture
def runs(tmp_path):
    comparison(tmp_path / "runs", ENTRIES, rounds=30)
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "runs"


@pytest.fixture
def server(runs):
    with PageServer(Watched([runs], None), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path, method="GET", **headers):
    connection = HTTPConnection(*server.server_address[:2], timeout=30)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def go_on(runs, accuracy):
    """One more round of the first run."""
    folder = find_runs([runs], pytest.fail)[0]
    records = folder.metrics()
    fill(folder, [*records, record(len(records) + 1, accuracy)])


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_address[1]}/"


def test_the_news_come_once_and_again_when_a_round_has_ended(server, runs):
    answer, body = ask(server, "/news")
    assert answer.status == 200
    tag = answer.headers["ETag"]
    assert len(json.loads(body)["charts"]["problems"][0]["lines"][0]["runs"][0]["round"]) == 30
    answer, body = ask(server, "/news", If_None_Match=tag)
    assert (answer.status, body) == (304, "")
    go_on(runs, 0.99)
    answer, body = ask(server, "/news", If_None_Match=tag)
    assert answer.status == 200
    assert answer.headers["ETag"] != tag
    run = json.loads(body)["charts"]["problems"][0]["lines"][0]["runs"][0]
    assert (run["round"][-1], run["accuracy"][-1]) == (31, 0.99)


@pytest.mark.parametrize(
    "path", ["/secret.txt", "/../secret.txt", "/runs/comparison.toml", "//etc/passwd", "/%2e%2e/secret.txt", "/news/x"]
)
def test_no_other_file_is_served(server, path):
    answer, body = ask(server, path)
    assert answer.status == 404
    assert "secret" not in body


def test_only_reading_is_served(server):
    assert ask(server, "/", method="POST")[0].status == 501
    assert ask(server, "/news", method="DELETE")[0].status == 501


def test_a_foreign_name_that_leads_here_is_refused(server):
    assert ask(server, "/news", Host="evil.example:8765")[0].status == 403
    assert ask(server, "/news", Host=f"localhost:{server.server_address[1]}")[0].status == 200
    for name in ("localhost", "127.0.0.1", "[::1]:80", "LOCALHOST:1"):
        assert ask(server, "/news", Host=name)[0].status == 200
    for name in ("127.0.0.1:80@evil.com", "evil.com", "localhost.evil.com:80", "", "127.0.0.1:x", "user@127.0.0.1:80"):
        assert ask(server, "/news", Host=name)[0].status == 403


def test_runs_that_cannot_be_read_are_told_and_the_server_stays(server, runs):
    files = [folder.path / "metrics.jsonl" for folder in find_runs([runs], pytest.fail)]
    whole = files[0].read_text()
    files[0].write_text("{}\n" + whole)
    answer, body = ask(server, "/news")
    assert answer.status == 200
    assert "fedavg-seed0/metrics.jsonl: line 1 is damaged" in body
    assert [line["label"] for line in json.loads(body)["charts"]["problems"][0]["lines"]] == ["FedMIM"]
    files[1].write_text("{}\n" + whole)
    answer, body = ask(server, "/news")
    assert answer.status == 503
    assert "none of the runs here can be read" in body
    for file in files:
        file.write_text(whole)
    answer, body = ask(server, "/news")
    assert answer.status == 200
    assert "damaged" not in body


def test_a_folder_without_runs_and_a_port_that_is_taken_are_errors(server, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty"):
        Watched([tmp_path / "empty"], None)
    with pytest.raises(UserError, match="port"):
        PageServer(server.watched, "127.0.0.1", server.server_address[1])


def test_a_page_that_was_opened_before_the_first_round_fills_itself(server, runs, visit):
    for folder in find_runs([runs], pytest.fail):
        fill(folder, [])
    page = visit(server.address)
    assert page.locator("[data-chart=accuracy]").inner_text() == "No data yet."
    go_on(runs, 0.25)
    page.locator("[data-chart=accuracy] .scatterlayer .trace").first.wait_for(state="attached")
    assert "25.00%" in page.locator(".card").first.inner_text()


def test_the_page_follows_the_runs_and_keeps_what_the_reader_has_chosen(server, runs, visit):
    page = visit(server.address)
    page.get_by_role("button", name="FedMIM").click()
    page.locator("details summary").click()
    page.locator("#state", has_text="live").wait_for()
    go_on(runs, 0.99)
    page.locator(".runs td", has_text="99.00").first.wait_for()
    assert "31" in page.locator(".runs tbody tr").first.inner_text()
    names = "[...document.querySelector('[data-chart=accuracy]').data].filter(each => each.name).map(each => each.name)"
    assert page.evaluate(names) == ["FedAvg"]
    assert page.get_by_role("button", name="FedMIM").get_attribute("aria-pressed") == "false"
    assert page.locator("details").get_attribute("open") is not None
