"""Web servers at the other end of a link, and the files that they serve.

    photos/  NUM_PHOTOS JPEG photographs of 40,000 bytes in 20 folders, as ImageFolder has them
    shards/  tar files of 200 MB as WebDataset has them: a photograph of 110,000 bytes and its class a sample
    names/   (a server of its own, on port 81) 1,000 folders of 1,000 names: their lists, no files

Promise: always the same files, made once (made_data.py); no two photographs have the same bytes.
Needs nginx.
"""

import contextlib
import io
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from far_link import FarLink
from made_data import made_once
from photos import SIZE_WH, cut_one
from PIL import Image
from processes import cpu_s_of_all, descendants
from wheel_photos import SOURCES, source_path

NUM_PHOTOS, PHOTO_NBYTES, NUM_CLASSES = 20_000, 40_000, 20
NUM_SHARDS, SHARD_NBYTES, SAMPLE_NBYTES = 6, 200_000_000, 110_000
NUM_CUT = 200  # different pictures; all bytes differ by a number behind them
NUM_FOLDERS, NUM_NAMES = 1_000, 1_000
FILES_PORT, NAMES_PORT = 80, 81
ANSWERS_WITHIN_S = 10.0

NGINX = """\
daemon off; user root; worker_processes 1; worker_rlimit_nofile 65536;
error_log {temp}/error.log; pid {temp}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    sendfile on; tcp_nopush on; keepalive_requests 1000000; keepalive_timeout 600s;
    client_body_temp_path {temp}/body; proxy_temp_path {temp}/proxy; fastcgi_temp_path {temp}/fastcgi;
    uwsgi_temp_path {temp}/uwsgi; scgi_temp_path {temp}/scgi;
    log_format asked '$request_method $uri $body_bytes_sent';
    access_log off;
    server {{
        listen {address}:{port} backlog=4096; autoindex on;
        location /photos/ {{ alias {photos}/; }}
        location /shards/ {{ alias {shards}/; }}
        location /noted/ {{ alias {shards}/; access_log {temp}/asked.log asked; }}
        location /noted-photos/ {{ alias {photos}/; access_log {temp}/asked.log asked; }}
    }}
}}
"""


# -- files ---------------------------------------------------------------------------------------


def _jpeg(picture: Image.Image, most_nbytes: int) -> bytes:
    """The best quality that fits."""
    for quality in range(95, 20, -3):
        written = io.BytesIO()
        picture.save(written, "JPEG", quality=quality)
        if written.tell() <= most_nbytes:
            return written.getvalue()
    raise ValueError(f"no JPEG of {picture.size} in {most_nbytes} bytes")


def _pictures(most_nbytes: int) -> list[bytes]:
    draw = random.Random(0)
    sources = [Image.open(source_path(*place)).convert("RGB") for place in SOURCES.values()]
    cut = [cut_one(sources[k % len(sources)], draw, SIZE_WH) for k in range(NUM_CUT)]
    return [_jpeg(each, most_nbytes - 8) for each in cut]


def _numbered(jpeg: bytes, number: int, nbytes: int) -> bytes:
    """A JPEG with bytes behind its end, which decoders leave alone."""
    return jpeg + number.to_bytes(8, "big") + bytes(nbytes - len(jpeg) - 8)


def _write_photos(folder: Path, num: int) -> None:
    pictures = _pictures(PHOTO_NBYTES)
    for at in range(NUM_CLASSES):
        (folder / f"class{at:02d}").mkdir()
    for k in range(num):
        data = _numbered(pictures[k % NUM_CUT], k, PHOTO_NBYTES)
        (folder / f"class{k % NUM_CLASSES:02d}" / f"{k:06d}.jpg").write_bytes(data)


def _write_shards(folder: Path, num: int, nbytes: int) -> None:
    pictures, k = _pictures(SAMPLE_NBYTES), 0
    for shard in range(num):
        with tarfile.open(folder / f"{shard:04d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            while tar.offset < nbytes:
                photo = _numbered(pictures[k % NUM_CUT], k, SAMPLE_NBYTES)
                for suffix, data in (("jpg", photo), ("cls", b"%d" % (k % NUM_CLASSES))):
                    member = tarfile.TarInfo(f"{k:06d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                k += 1


def photos(num: int = NUM_PHOTOS) -> Path:
    name = f"far-photos-{PHOTO_NBYTES}-{num}"
    return made_once(name, lambda folder: _write_photos(folder, num))


def shards(num: int = NUM_SHARDS, nbytes: int = SHARD_NBYTES) -> Path:
    name = f"far-shards-{nbytes}-{num}"
    return made_once(name, lambda folder: _write_shards(folder, num, nbytes))


def nbytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def warm(folder: Path) -> None:
    """Have the files in this machine's page cache: the link is measured, not the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


# -- servers -------------------------------------------------------------------------------------


class Origin:
    """What is served at the other end."""

    def __init__(self, link: FarLink, temp: Path, pid: int) -> None:
        self._link, self._temp, self._pid = link, temp, pid

    def url(self, folder: str) -> str:
        port = NAMES_PORT if folder == "names" else FILES_PORT
        return f"http://{self._link.address}:{port}/{folder}"

    def cpu_s(self) -> float:
        """What nginx has used so far."""
        return cpu_s_of_all([self._pid, *descendants(self._pid)])

    def asked(self) -> list[tuple[str, str, int]]:
        """Method, path and bytes of each request below /noted so far."""
        found = (line.split() for line in (self._temp / "asked.log").read_text().splitlines())
        return [(method, path, int(nbytes)) for method, path, nbytes in found]


@contextlib.contextmanager
def origin(link: FarLink, photos_at: Path, shards_at: Path) -> Iterator[Origin]:
    nginx = shutil.which("nginx")
    if nginx is None:
        raise SystemExit("no nginx here; Debian and Ubuntu: apt-get install nginx-light")
    with tempfile.TemporaryDirectory(prefix="stoker-far-") as name, contextlib.ExitStack() as stack:
        temp, written = Path(name), Path(name) / "nginx.conf"
        address, port = link.address, FILES_PORT
        written.write_text(
            NGINX.format(temp=temp, address=address, port=port, photos=photos_at, shards=shards_at)
        )
        server = _started(stack, link.there(nginx, "-c", str(written)))
        _started(stack, link.there(sys.executable, __file__, address))
        for one in (FILES_PORT, NAMES_PORT):
            _wait_for(address, one)
        yield Origin(link, temp, server.pid)


def _started(stack: contextlib.ExitStack, words: list[str]) -> subprocess.Popen:
    process = stack.enter_context(subprocess.Popen(words))
    stack.callback(process.terminate)
    return process


def _wait_for(address: str, port: int) -> None:
    end_s = time.monotonic() + ANSWERS_WITHIN_S
    while True:
        try:
            socket.create_connection((address, port), ANSWERS_WITHIN_S).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)


class Names(BaseHTTPRequestHandler):
    """Lists of folders, as nginx's autoindex looks."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one piece

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if len(parts) == 1:
            names = [f"{at:04d}/" for at in range(NUM_FOLDERS)]
        else:
            names = [f"{parts[1]}-{at:04d}.jpg" for at in range(NUM_NAMES)]
        lines = "".join(
            f'<a href="{each}">{each}</a> 27-Nov-2026 20:00 40000\r\n' for each in names
        )
        body = f"<html><body><pre>{lines}</pre></body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class NamesServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    NamesServer((sys.argv[1], NAMES_PORT), Names).serve_forever()
