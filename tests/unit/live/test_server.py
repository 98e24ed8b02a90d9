"""The page's server, asked over real sockets: what it gives to whom, and that it changes nothing."""

import base64
import contextlib
import gzip
import hashlib
import http.client
import json
import re
import socket
import sys
import time

import pytest
from tests.unit.live.feeds import a_feed

from stoker.live.metrics import metrics_of
from stoker.live.server import (
    LEFT_OPEN_S,
    MAX_CLIENTS,
    REQUEST_S,
    STATIC,
    STAY_OPEN_S,
    PageServer,
    page_of,
)

TOKEN = "a token / of +mine"


@pytest.fixture
def server():
    feed = a_feed(10)
    server = PageServer("127.0.0.1:0", TOKEN, feed, lambda: metrics_of(feed.state))
    server.begin()
    yield server
    server.shutdown()
    server.server_close()


def asked(server, path="/", method="GET", token=TOKEN, **headers):
    """The status, headers and body of an answer. headers: with _ for -."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(
        method, path, headers={name.replace("_", "-"): v for name, v in headers.items()}
    )
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), body


def test_the_printed_address_leads_to_the_page(server):
    path = server.url.removeprefix(f"http://127.0.0.1:{server.server_address[1]}")
    status, headers, body = asked(server, path, token="")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert b"<title>stoker</title>" in body


@pytest.mark.parametrize("path", ["/", "/data", "/metrics", "/nowhere"])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x"])
def test_a_wrong_token_gets_nothing(server, path, token):
    status, _, body = asked(server, path, token=token)
    assert status == 403
    assert body == b"wrong token: open the address that the run has printed\n"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
    ],
    ids=str,
)
def test_another_site_gets_nothing(server, headers):
    status, answered, body = asked(server, "/data", **headers)
    assert status == 403
    assert b"asked for" in body
    assert "Access-Control-Allow-Origin" not in answered


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "[::1]:80", "127.1.2.3:1"])
def test_names_of_loopback_are_answered(server, host):
    assert asked(server, "/data", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_but_get_is_answered(server, method):
    before = server.feed.now
    assert asked(server, "/data", method)[0] == 501
    assert server.feed.now == before


def test_only_what_is_new_is_told(server):
    whole = json.loads(asked(server, "/data")[2])
    assert whole["first"] == 0
    assert len(whole["spans"]) == len(server.feed.spans)
    rest = json.loads(asked(server, "/data?since=4")[2])
    assert rest["first"] == 4
    assert rest["spans"] == whole["spans"][4:]
    for strange, first in (
        ("-1", 0),
        ("x", 0),
        ("", 0),
        ("1e3", 0),
        ("%D9%A3", 3),
        ("9" * 30, len(whole["spans"])),
    ):
        assert json.loads(asked(server, f"/data?since={strange}")[2])["first"] == first


def test_the_page_needs_and_may_have_nothing_from_elsewhere(server):
    _, headers, body = asked(server)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert "unsafe" not in policy
    text = body.decode()
    assert "<!-- " not in text  # all is put in
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert (len(scripts), len(styles)) == (2, 2)
    for held in (*scripts, *styles):
        digest = base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)


def test_what_a_script_is_called_is_no_markup(server):
    _, headers, body = asked(server, "/data")
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"
    command = json.loads(body)["now"]["about"]["command"]
    assert command[2] == "</script><script>alert(1)</script>"
    assert "innerHTML" not in (STATIC / "page.js").read_text()


def test_the_charting_library_is_told_with_its_licence():
    assert "MIT License" in (STATIC / "uPlot.LICENSE").read_text()
    assert "uPlot" in page_of(STATIC)[0].decode()


def test_half_a_request_and_nonsense_hurt_nobody(server):
    for said in (
        b"GET / HT",
        b"\xff\xfe\x00\r\n\r\n",
        b"GET /data?token=%ff%fe HTTP/1.1\r\n\r\n",
        b"",
    ):
        with socket.create_connection(server.server_address[:2]) as sock:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(10)
            while sock.recv(4096):
                pass
    assert asked(server, "/data")[0] == 200


def test_more_clients_than_it_has_threads_for_are_turned_away(server):
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CLIENTS):
            sock = stack.enter_context(socket.create_connection(server.server_address[:2]))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(1) == b"H"  # it has a thread, and keeps it for what else it may ask
        with socket.create_connection(server.server_address[:2]) as sock:
            sock.settimeout(10)
            assert sock.recv(1) == b""
    end_s = time.monotonic() + 30
    while not was_answered(server):  # once the threads have seen that their clients are gone
        assert time.monotonic() < end_s


def was_answered(server):
    try:
        return asked(server)[0] == 200
    except OSError:
        return False


def test_who_asks_what_is_new_has_it_open_until_told_of_the_end(server, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("stoker.live.server.now_s", lambda: now[0])
    assert not server.is_looked_at
    asked(server, "/")
    asked(server, "/data", token="wrong")
    assert not server.is_looked_at
    asked(server, "/data")
    assert server.is_looked_at
    server.has_ended = True
    now[0] += LEFT_OPEN_S - 1
    assert server.is_looked_at  # a hidden page asks once a minute
    asked(server, "/data")
    now[0] += STAY_OPEN_S - 1
    assert server.is_looked_at
    asked(server, "/data")  # it need not
    now[0] += 1
    assert not server.is_looked_at


def test_prometheus_hears_of_the_end_too(server):
    asked(server, "/metrics")
    assert server.is_looked_at
    server.has_ended = True
    assert server.is_looked_at
    asked(server, "/metrics")
    assert not server.is_looked_at


@pytest.mark.parametrize(
    ("path", "dest", "status"),
    [("/", "document", 200), ("/", "iframe", 403), ("/data", "document", 403)],
)
def test_a_click_in_another_page_opens_the_page_and_no_more(server, path, dest, status):
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": dest}
    assert asked(server, path, **headers)[0] == status


def test_who_takes_too_long_to_say_what_it_wants_is_hung_up_on(server, monkeypatch):
    with socket.create_connection(server.server_address[:2]) as sock:
        sock.sendall(b"GET / HT")
        sock.settimeout(30)
        while not server._silent:
            time.sleep(0.01)  # until its thread has begun
        server.end_stale()
        assert server._silent
        later = time.monotonic() + 2 * REQUEST_S
        monkeypatch.setattr("stoker.live.server.now_s", lambda: later)
        server.end_stale()
        assert sock.recv(1) == b""


def test_much_is_sent_zipped_to_who_can_read_it(server):
    server.feed.spans += [b'{"at": 1}'] * 20_000
    plain = asked(server, "/data")
    status, headers, body = asked(server, "/data", Accept_Encoding="gzip")
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert gzip.decompress(body) == plain[2]
    assert len(body) < len(plain[2]) / 5


def test_an_address_that_is_taken_is_an_error(server):
    with pytest.raises(OSError):
        PageServer(f"127.0.0.1:{server.server_address[1]}", TOKEN, server.feed, lambda: None)


def test_on_all_interfaces_the_hosts_name_is_printed():
    server = PageServer("0.0.0.0:0", "token", a_feed(2), lambda: None)
    try:
        assert server.url.startswith(f"http://{socket.gethostname()}:")
        assert not server.is_loopback
    finally:
        server.server_close()


def test_without_its_library_metrics_say_what_is_missing(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, body = asked(server, "/metrics")
    assert status == 501
    assert b"prometheus-client is not installed" in body
