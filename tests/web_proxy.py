"""An HTTP proxy that notes what it is asked: for tests of what must go through one."""

import http.client
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class WebProxy:
    """needs: what `Proxy-Authorization` has to be."""

    def __init__(self, needs: str = "") -> None:
        self.needs = needs
        self.asked: list[tuple[str, str]] = []  # method and target

        owner = self

        class Handler(_Handler):
            proxy = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.at = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: WebProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _may(self) -> bool:
        self.proxy.asked.append((self.command, self.path))
        if self.proxy.needs and self.headers.get("Proxy-Authorization") != self.proxy.needs:
            self.send_response(407)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False
        return True

    def do_CONNECT(self) -> None:
        if not self._may():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.send_response(200)
            self.end_headers()
            pair = {there: self.connection, self.connection: there}
            while True:
                for each in select.select(list(pair), [], [])[0]:
                    data = each.recv(1 << 16)
                    if not data:
                        self.close_connection = True
                        return
                    pair[each].sendall(data)

    def do_GET(self) -> None:
        if not self._may():
            return
        to = urlsplit(self.path)
        connection = http.client.HTTPConnection(to.netloc)
        kept = {
            name: value for name, value in self.headers.items() if not name.startswith("Proxy-")
        }
        target = f"{to.path}?{to.query}" if to.query else to.path
        connection.request(self.command, target, headers=kept)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        connection.close()

    def do_HEAD(self) -> None:
        self.do_GET()
