"""Runs with a page: where it is, and what it says."""

import http.client
import json
import re
import socket
import time
from urllib.parse import parse_qs, urlsplit

from tests.process.harness import PATIENCE_S


def printed_url_of(running):
    """The address that a run has printed, once it has."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := re.search(r"page: (http://\S+)", running.read("stderr"))):
        assert running.process.poll() is None and time.monotonic() < end_s, running.read("stderr")
    return found[1]


def url_of(running):
    """The same, once somebody answers there."""
    wait_answered(url := printed_url_of(running))
    return url


def wait_answered(url):
    end_s = time.monotonic() + PATIENCE_S
    parts = urlsplit(url)
    while True:
        try:
            return socket.create_connection((parts.hostname, parts.port), 30).close()
        except OSError:
            assert time.monotonic() < end_s, url


def get(url, path, token=None):
    """Status and body of what a path of the page's answers. token: another than the address has."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    given = parse_qs(parts.query)["token"][0] if token is None else token
    connection.request("GET", path, headers={"Authorization": f"Bearer {given}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def told(url):
    return json.loads(get(url, "/data")[1])


def wait_told(url, test):
    """What the page's data says once a test of it passes."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        found = told(url)
        if found["now"] and test(found):
            return found
        assert time.monotonic() < end_s, found
