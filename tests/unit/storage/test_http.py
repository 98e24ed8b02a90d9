"""http:// origins against a real server: listings, ranges, what changed, what fails, what is odd."""

import datetime
import ipaddress
import os
import socket
import ssl
import threading

import pytest

from stoker.storage.origins import UNKNOWN, Again, Changed, Denied, Entry, Missing, open_origin
from stoker.storage.origins.web import get_of
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.file import file_of
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats
from tests.origin_server import OriginServer
from tests.web_proxy import WebProxy

DATA = bytes(range(256)) * 500
NAMES = ["a.jpg", "a b.txt", "ü.bin", "100%.txt", "a&b#c?.txt", "+plus", "sub/inner.bin"]


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(DATA + name.encode())
    (tmp_path / "empty").touch()
    return tmp_path


@pytest.fixture
def serve(folder):
    servers = []

    def start(**how):
        servers.append(OriginServer(folder, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(serve):
    return serve()


@pytest.fixture
def origin(server, opened):
    return opened(server.url)


@pytest.fixture
def opened():
    origins = []

    def start(url):
        origins.append(open_origin(url))
        return origins[-1]

    yield start
    for origin in origins:
        origin.close()


def unknown(path, origin):
    return origin.read(path, 0, 1 << 20, Entry(False, UNKNOWN))


def test_every_name_of_a_folder_is_found(origin):
    listed = origin.list("")
    assert set(listed) == {*(name.partition("/")[0] for name in NAMES), "empty"}
    assert listed["sub"].is_folder and not listed["a.jpg"].is_folder
    assert set(origin.list("sub")) == {"inner.bin"}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_read_with_one_request(origin, server, name):
    known, body, _ = unknown(name, origin)
    assert body == DATA + name.encode() and known.nbytes == len(body)
    assert sum(server.asked.values()) == 1
    assert origin.read(name, 100, 300, known).body == body[100:300]
    assert origin.look(name) == known


def test_an_empty_file_is_empty(origin):
    known, body, _ = unknown("empty", origin)
    assert (known.nbytes, body) == (0, b"")


def test_a_server_without_ranges_is_read_too(serve, opened):
    origin = opened(serve(ranges=False).url)
    known, body, _ = unknown("a.jpg", origin)
    assert origin.read("a.jpg", 5, 50, known).body == body[5:50]


def test_a_server_that_lists_nothing_has_files_all_the_same(serve, opened):
    origin = opened(serve(lists=False).url)
    with pytest.raises(Missing):
        origin.list("")
    assert unknown("sub/inner.bin", origin).known.nbytes == len(DATA) + 13
    assert origin.look("sub").is_folder


@pytest.mark.parametrize("nbytes", [10, len(DATA) + 5, len(DATA) + 500])
def test_a_file_that_was_replaced_is_not_read(origin, folder, nbytes):
    known = unknown("a.jpg", origin).known
    (folder / "a.jpg").write_bytes(os.urandom(nbytes))
    for start, end in [(0, known.nbytes), (20, 40), (known.nbytes - 10, known.nbytes)]:
        with pytest.raises(Changed):
            origin.read("a.jpg", start, end, known)


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, Missing), (410, Missing), (403, Denied), (401, Denied), (500, Again), (503, Again),
     (429, Again), (408, Again), (400, Denied), (302, Denied)],
)  # fmt: skip
def test_what_a_status_means(origin, server, status, error):
    server.fault = lambda *_: status
    for ask in (lambda: unknown("a.jpg", origin), lambda: origin.list("")):
        # Who lists nothing says 403.
        with pytest.raises((error, Missing) if status == 403 else error):
            ask()


@pytest.mark.parametrize("fault", ["cut", "drop"])
def test_half_an_answer_is_none(origin, server, fault):
    server.fault = lambda *_: fault
    with pytest.raises(Again):
        unknown("a.jpg", origin)


def test_a_server_that_is_not_there_may_come_back(origin, server):
    unknown("a.jpg", origin)
    server.stop()
    with pytest.raises(Again):
        unknown("a.jpg", origin)
    server.start()
    assert unknown("a.jpg", origin).known.nbytes == len(DATA) + 5


# -- many at once: the getter --------------------------------------------------------------------


@pytest.fixture
def blocks():
    stats = StorageStats()
    made = Blocks(Memory(64 << 20, stats), None, stats, 5.0)
    yield made
    made.close()
    made._pool.shutdown()


def test_many_files_at_once_are_each_read_once_and_right(origin, server, blocks):
    files = [file_of(origin, name, Entry(False, UNKNOWN)) for name in NAMES]
    found, have_come = [], threading.Event()

    def hear(file):
        found.append(file)
        if len(found) == len(files):
            have_come.set()

    blocks._on_found = hear
    for file in files:
        blocks.fetch_ahead(file, 0, 0)
    assert have_come.wait(30)
    for file in found:
        assert blocks.read(file, 0, 1 << 20) == DATA + file.path.encode()
    assert {path: n for (_, path), n in server.asked.items()} == {f"/{name}": 1 for name in NAMES}


@pytest.mark.parametrize("fault", ["cut", "drop", 503, 302])
def test_what_is_no_plain_answer_is_asked_for_again(origin, server, blocks, fault):
    server.fault = lambda method, path, number: fault if number <= 2 else None
    if fault == 302:
        with pytest.raises(Denied):
            blocks.find_out(file_of(origin, "a.jpg", Entry(False, UNKNOWN)), lambda: None)
        return
    known = blocks.find_out(file_of(origin, "a.jpg", Entry(False, UNKNOWN)), lambda: None)
    assert blocks.read(known, 0, 1 << 20) == DATA + b"a.jpg"
    assert blocks.stats.num_retries >= 2


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """A server's context, whose certificate this process trusts by the variables that others read, too."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    own = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1)).add_extension(own, critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = tmp_path.parent / f"{tmp_path.name}.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_https_goes_the_fast_way_too(serve, opened, blocks, tls, folder):
    (folder / "large").write_bytes(DATA * 8)  # many records of TLS
    server = serve(tls=tls)
    origin = opened(server.url)
    for name in ("a.jpg", "large"):
        known = blocks.find_out(file_of(origin, name, Entry(False, UNKNOWN)), lambda: None)
        assert blocks.read(known, 0, 1 << 24) == (folder / name).read_bytes()
    assert blocks.stats.num_retries == 0
    assert not blocks._pool._threads


def test_an_address_of_version_6_is_one(serve):
    get = get_of("http://[::1]:8000/x", 0, 1, Entry(False, 1), {})
    assert get.place == ("http", "::1", 8000) and b"Host: [::1]:8000" in get.head


def test_a_password_is_not_for_the_server_that_one_is_sent_on_to(serve, opened, folder):
    there, here = serve(), serve()
    heard = []
    there.hear = heard.append
    here.moved = there.url
    origin = opened(here.url.replace("//", "//me:secret@"))
    assert unknown("a.jpg", origin).body == DATA + b"a.jpg"
    assert len(heard) == 1 and "Authorization" not in heard[0] and "Range" in heard[0]


def test_a_connection_that_the_server_has_ended_meanwhile_is_no_failure(origin, server, blocks):
    for name in ("a.jpg", "a b.txt"):
        blocks.find_out(file_of(origin, name, Entry(False, UNKNOWN)), lambda: None)
        server.stop()
        server.start()
    assert blocks.stats.num_retries == 0 and not blocks._pool._threads


ODD = [
    b"",
    b"garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    b"HTTP/1.1 206 Partial\r\nContent-Length: 99999999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
    b"HTTP/1.1 206 Partial\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 206 P\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/9\r\n\r\nabc",
    b"X" * 100_000,
]


@pytest.mark.parametrize("answer", ODD, ids=range(len(ODD)))
def test_an_odd_answer_is_an_error_in_time_and_no_bytes(blocks, opened, answer):
    blocks._limit_s = 0.2
    listening = socket.create_server(("127.0.0.1", 0))

    def talk():
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            with sock:
                sock.recv(65536)
                sock.sendall(answer)

    thread = threading.Thread(target=talk)
    thread.start()
    origin = opened(f"http://127.0.0.1:{listening.getsockname()[1]}")
    try:
        known = Entry(False, 9, 0, "")
        with pytest.raises((Again, Changed, Denied)):
            blocks.read(file_of(origin, "a", known), 0, 9)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_two_urls_that_are_shown_as_one_are_told_apart(server, opened):
    one, other, same = (opened(f"{server.url}/sub?id={number}") for number in (1, 2, 1))
    assert one.url == other.url and one.identity == same.identity != other.identity
    known = Entry(False, 5000)  # of a server that tells neither tag nor time
    assert file_of(one, "a", known).digest != file_of(other, "a", known).digest


def test_user_and_password_are_sent_and_shown_nowhere(server, opened):
    heard = []
    server.fault = lambda method, path, number: heard.append(path)
    origin = opened(server.url.replace("//", "//me:p%40ss@"))
    assert unknown("a.jpg", origin).known.nbytes == len(DATA) + 5
    assert origin.url == server.url and "p@ss" not in origin.url_of("a.jpg")
    get = origin.get("a.jpg", 0, 1, Entry(False, 1))
    assert b"Authorization: Basic bWU6cEBzcw==\r\n" in get.head and b"Host: 127.0.0.1:" in get.head


def test_what_is_sent_names_host_range_and_tag():
    get = get_of("http://user@host:81/a%20b?x=1", 5, 10, Entry(False, 100, 0, '"tag"'), {"A": "b"})
    assert get.place == ("http", "host", 81) and get.most_nbytes == 100
    assert get.head == (
        b"GET /a%20b?x=1 HTTP/1.1\r\nHost: host:81\r\nA: b\r\nRange: bytes=5-9\r\n"
        b'If-Match: "tag"\r\n\r\n'
    )


@pytest.fixture
def proxy(monkeypatch):
    proxies = []

    def start(needs=""):
        proxies.append(WebProxy(needs))
        user = "me:p%40ss@" if needs else ""
        for scheme in ("http", "https"):
            monkeypatch.setenv(f"{scheme}_proxy", f"http://{user}{proxies[-1].at}")
        monkeypatch.delenv("no_proxy", raising=False)
        return proxies[-1]

    yield start
    for each in proxies:
        each.stop()


@pytest.mark.parametrize("needs", ["", "Basic bWU6cEBzcw=="])
def test_a_proxy_that_the_environment_names_is_asked_for_everything(
    proxy, server, opened, blocks, needs
):
    there = proxy(needs)
    origin = opened(server.url)
    assert set(origin.list("sub")) == {"inner.bin"}
    assert origin.look("a.jpg").nbytes == len(DATA) + 5
    file = blocks.find_out(file_of(origin, "a.jpg", Entry(False, UNKNOWN)), lambda: None)
    assert blocks.read(file, 0, 1 << 20) == DATA + b"a.jpg"
    assert len(there.asked) == server.num("GET") + server.num("HEAD") == 3
    assert all(target.startswith(server.url) for _, target in there.asked)


def test_tls_goes_through_a_proxy_too(proxy, serve, opened, blocks, tls, folder):
    server = serve(tls=tls)
    there = proxy("Basic bWU6cEBzcw==")
    origin = opened(server.url)
    file = file_of(origin, "a.jpg", origin.look("a.jpg"))
    assert blocks.read(file, 0, 1 << 20) == DATA + b"a.jpg"
    assert set(there.asked) == {("CONNECT", server.url.removeprefix("https://"))}


def test_what_needs_no_proxy_goes_straight(proxy, server, opened, monkeypatch):
    there = proxy()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    origin = opened(server.url)
    assert origin.list("sub") and origin.get("a.jpg", 0, 1, Entry(False, 1)) is not None
    assert there.asked == []


def test_a_proxy_that_refuses_says_so(proxy, serve, opened, tls):
    there = proxy("Basic of somebody else")
    for how in ({}, {"tls": tls}):
        with pytest.raises(Denied, match="407"):
            opened(serve(**how).url).look("a.jpg")
    assert len(there.asked) == 2


@pytest.mark.parametrize(
    ("told", "why"),
    [("socks5://127.0.0.1:1", "socks5"), ("http://me:pa/ss@127.0.0.1:1", "http_proxy is no URL")],
)
def test_a_proxy_that_cannot_be_used_is_an_error_that_shows_no_password(
    server, opened, monkeypatch, told, why
):
    monkeypatch.setenv("http_proxy", told)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(Denied, match=why) as caught:
        opened(server.url).look("a.jpg")
    assert "pa" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("no_proxy", "10.0.0.0/8, 127.0.0.0/8"), ("http_proxy", ""), ("no_proxy", "*")],
    ids=["range", "none", "all"],
)
def test_what_the_environment_takes_from_the_proxy_goes_straight(
    proxy, server, opened, monkeypatch, name, value
):
    there = proxy()
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:1")  # which is for others
    monkeypatch.setenv(name, value)
    assert opened(server.url).list("sub") and there.asked == []
