"""--mount against real servers: the same batches as from a local folder, whatever the origin does."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.needs import NEEDS_FUSE, NEEDS_RAY
from tests.origin_server import OriginServer
from tests.process.harness import SCRIPTS, finished, marked, started, under_stoker
from tests.process.nodes import free_port, ray_of

pytestmark = NEEDS_FUSE
SCRIPT = str(SCRIPTS / "reads_mount.py")
NUM_FILES = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Sixty files in three folders, a large array, two tar shards, and all of them in archives."""
    base = tmp_path_factory.mktemp("data")
    root = base / "root"
    numbers = np.random.default_rng(5)
    for k in range(NUM_FILES):
        folder = root / f"c{k % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        size = 0 if k == 7 else int(numbers.integers(1, 60_000))
        (folder / f"{k:03d} ü.bin").write_bytes(numbers.bytes(size))
    np.save(root / "rows.npy", numbers.integers(0, 256, (300, 40_000), dtype=np.uint8))  # 12 MB
    for shard in range(2):
        with tarfile.open(root / f"{shard}.tar", "w") as packed:
            for path in sorted((root / f"c{shard}").iterdir()):
                packed.add(path, path.name)
    with zipfile.ZipFile(base / "all.zip", "w") as packed_zip:
        for path in sorted(root.rglob("*")):
            packed_zip.write(path, path.relative_to(root))
    with tarfile.open(base / "all.tar", "w") as packed:
        packed.add(root, ".")
    return base


@pytest.fixture
def server(data):
    serving = OriginServer(data)
    yield serving
    serving.stop()


@pytest.fixture(scope="module")
def local(data, tmp_path_factory):
    """What plain PyTorch prints on the local folder."""

    def run(kind, epochs=2, num_workers=2):
        key = (kind, epochs, num_workers)
        if key not in known:
            folder = tmp_path_factory.mktemp("plain")
            words = [str(data / "root"), kind, str(epochs), str(num_workers)]
            known[key] = finished([sys.executable, SCRIPT, *words], folder)
            assert known[key].returncode == 0, known[key].stderr
        return known[key].stdout

    known = {}
    return run


def mounted(folder, url, kind, *flags, epochs=2, num_workers=2, more=(), quiet=True, **how):
    """The command that reads a mount at `folder`/at, its flags, and what it is started with."""
    at = folder / "at"
    report = f"--report-json={folder / 'report.json'}"
    words = [str(at), kind, str(epochs), str(num_workers), *more]
    return [
        *under_stoker(f"--mount={at}={url}", report, *flags, quiet=quiet), sys.executable, SCRIPT, *words,
    ]  # fmt: skip


def run(folder, url, kind, *flags, **how):
    environ = how.pop("environ", None)
    result = finished(mounted(folder, url, kind, *flags, **how), folder, environ=environ)
    assert result.leftovers == {} and not (folder / "at").exists()
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    return result


URLS = {
    "file": "file://{data}/root",
    "http": "{server}/root",
    "zip": "zip::file://{data}/all.zip",
    "zip-http": "zip::{server}/all.zip",
    "tar": "tar::file://{data}/all.tar",
}


@pytest.mark.parametrize("kind", ["listed", "opens", "mapped", "tars"])
@pytest.mark.parametrize("scheme", URLS)
@pytest.mark.cover(1)
def test_batches_are_those_of_a_local_folder(tmp_path, data, server, local, scheme, kind):
    url = URLS[scheme].format(data=data, server=server.url)
    result = run(tmp_path, url, kind)
    assert result.returncode == 0, result.stderr
    assert result.stdout == local(kind)


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_whatever_the_number_of_workers(tmp_path, server, local, num_workers):
    result = run(tmp_path, f"{server.url}/root", "listed", num_workers=num_workers)
    assert result.stdout == local("listed", num_workers=num_workers)


def test_each_object_is_asked_for_once(tmp_path, server, local):
    result = run(tmp_path, f"{server.url}/root", "listed", num_workers=3)
    assert result.stdout == local("listed", num_workers=3)
    gets = [n for (how, path), n in server.asked.items() if how == "GET" and path.endswith(".bin")]
    assert gets == [1] * NUM_FILES and server.num("HEAD") == 0
    told = result.report["storage"]
    assert told["remote_nbytes"] > 0 and told["num_retries"] == 0
    assert told["mounts"] == [[str(tmp_path / "at"), f"{server.url}/root"]]


def test_a_mapping_is_read_by_pages(tmp_path, server):
    code = "import numpy, sys; rows = numpy.load(sys.argv[1], mmap_mode='r'); print(int(rows[150].sum()))"
    command = [sys.executable, "-c", code, str(tmp_path / "at/rows.npy")]
    result = finished(
        [*under_stoker(f"--mount={tmp_path / 'at'}={server.url}/root"), *command], tmp_path
    )
    assert result.returncode == 0 and int(result.stdout) > 0
    assert server.num_nbytes < 4 << 20  # of 12 MB


def faulty(method, path, number):
    """Of three answers to each file the first is 503, the second cut short."""
    if path.endswith((".bin", ".npy", ".tar")):
        return {1: 503, 2: "cut"}.get(number)
    return None


def some_fail(method, path, number):
    # The first try of what the tests look at fails; of others a third, the same ones in every run.
    is_first = number == 1 and path.endswith((".tar", ".npy"))
    return 503 if is_first or zlib.crc32(f"{path} {number}".encode()) % 10 < 3 else None


@pytest.mark.parametrize("fault", [faulty, some_fail])
@pytest.mark.parametrize("kind", ["listed", "mapped", "tars"])
@pytest.mark.cover(1)
def test_failures_that_pass_change_nothing(tmp_path, server, local, kind, fault):
    server.fault = fault
    result = run(tmp_path, f"{server.url}/root", kind)
    assert result.returncode == 0, result.stderr
    assert result.stdout == local(kind)
    assert result.report["storage"]["num_retries"] > 0


def test_an_origin_that_dies_and_returns_changes_nothing(tmp_path, server, local):
    command = mounted(tmp_path, f"{server.url}/root", "tars", epochs=1, more=["1"])
    # A cache too small for read-ahead to have had all of it before.
    with started(command, tmp_path, stdin=None) as running:
        running.wait_for("waits")
        server.stop()
        running.say("go on")
        server.start()
        result = running.finish()
    assert (result.returncode, result.stdout) == (0, local("tars", epochs=1)), result.stderr


@pytest.mark.parametrize(
    ("mount", "name", "url"),
    [
        ("{}/root", "root/rows.npy", "{}/root/rows.npy"),
        ("zip::{}/all.zip", "all.zip", "zip://rows.npy::{}/all.zip"),
    ],
    ids=["file", "archive"],
)
def test_an_object_that_was_replaced_is_an_error_that_names_it(
    tmp_path, data, server, mount, name, url
):
    changed = data / name
    before = changed.read_bytes()
    mid = len(before) // 2

    def replace(method, path, number):
        if path == f"/{name}" and number == 6:  # of more than ten
            changed.write_bytes(before[:mid] + b"else" + before[mid + 4 :])

    server.fault = replace
    try:
        result = run(tmp_path, mount.format(server.url), "mapped", epochs=1)
    finally:
        changed.write_bytes(before)
    assert result.returncode != 0
    assert f"{url.format(server.url)} cannot be read: its ETag is another" in result.stderr


@pytest.mark.parametrize(
    ("status", "error", "why"),
    [(403, "PermissionError: [Errno 13]", "HTTP 403"), (404, "FileNotFoundError: [Errno 2]", "")],
)
def test_what_cannot_be_had_is_the_error_of_a_file_system(tmp_path, server, status, error, why):
    server.fault = lambda method, path, number: status if "010" in path else None
    result = run(tmp_path, f"{server.url}/root", "listed")
    assert result.returncode == 1 and error in result.stderr
    if why:
        assert f"{why}" in result.stderr and "/root/c1/010" in result.stderr


def test_the_next_run_finds_what_one_has_kept_even_if_bits_have_flipped(tmp_path, server, local):
    cache = tmp_path / "cache"
    flags = (f"--cache-disk={cache}:1G", "--cache-keep")
    first = run(tmp_path, f"{server.url}/root", "listed", *flags)
    asked = server.num("GET", ".bin")
    (values,) = cache.rglob("*.blocks")
    data = bytearray(values.read_bytes())
    data[5] ^= 4
    values.write_bytes(data)
    server.asked.clear()
    second = run(tmp_path, f"{server.url}/root", "listed", *flags)
    assert first.stdout == second.stdout == local("listed")
    # Its list tells no sizes: of each file it is asked whether it is still the same. One was damaged.
    assert asked == NUM_FILES and server.num("GET", ".bin") <= NUM_FILES + 1
    sent = second.report["storage"]["remote_nbytes"]
    assert 0 < sent < 0.1 * first.report["storage"]["remote_nbytes"]


def test_members_of_an_archive_are_found_by_the_next_run_unless_it_is_another(tmp_path):
    root, web = tmp_path / "root", tmp_path / "web"
    web.mkdir()
    (root / "c0").mkdir(parents=True)
    flags = (f"--cache-disk={tmp_path / 'cache'}:1G", "--cache-keep")
    server = OriginServer(web)
    sent = []
    try:
        for k in (1, 1, 2):  # the second run finds the first's, the third is not to
            with zipfile.ZipFile(web / "all.zip", "w") as packed:
                for n in range(20):
                    path = root / f"c0/{n:03d}.bin"
                    path.write_bytes(bytes([k, n]) * 20_000)
                    os.utime(path, (1e9, 1e9))
                    packed.write(path, path.relative_to(root))
            plain = finished([sys.executable, SCRIPT, str(root), "listed", "2", "2"], tmp_path)
            result = run(tmp_path, f"zip::{server.url}/all.zip", "listed", *flags)
            assert result.returncode == 0 and result.stdout == plain.stdout, result.stderr
            sent.append(result.report["storage"]["remote_nbytes"])
    finally:
        server.stop()
    assert sent == [20 * 40_000, 0, 20 * 40_000]


def test_a_cache_disk_that_is_full_costs_speed_only(tmp_path, server, local):
    disk = tmp_path / "small"
    disk.mkdir()
    flags = (f"--cache-disk={disk}:1M", "--cache-memory=1M")
    result = run(tmp_path, f"{server.url}/root", "listed", *flags)
    assert (result.returncode, result.stdout) == (0, local("listed")), result.stderr
    assert sum(each.stat().st_size for each in disk.rglob("*") if each.is_file()) <= 1 << 20


def test_two_runs_share_one_cache_and_one_path(tmp_path, server, local):
    flags = (f"--cache-disk={tmp_path / 'cache'}:1G", "--cache-keep")
    at = tmp_path / "at"
    with contextlib.ExitStack() as stack:
        runs = []
        for k in range(2):
            words = [str(at), "listed", "2", "2"]
            command = [
                *under_stoker(f"--mount={at}={server.url}/root", *flags), sys.executable, SCRIPT, *words,
            ]  # fmt: skip
            runs.append(stack.enter_context(started(command, tmp_path / str(k))))
        results = [each.finish() for each in runs]
    assert [each.stdout for each in results] == [local("listed")] * 2
    assert not at.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_after_any_end(tmp_path, server, number):
    command = mounted(tmp_path, f"{server.url}/root", "listed", more=["1"])
    with started(command, tmp_path, stdin=None) as running:
        running.wait_for("waits")
        assert str(tmp_path / "at") in Path(f"/proc/{running.process.pid}/mountinfo").read_text()
        running.signal(number, group=number == signal.SIGINT)
        result = running.finish()
    assert result.leftovers == {}
    assert not (tmp_path / "at").exists()


def test_a_storage_process_that_is_killed_is_told_of_and_ends_no_run_silently(tmp_path, server):
    command = mounted(tmp_path, f"{server.url}/root", "mapped", more=["0"])
    with started(command, tmp_path, stdin=None) as running:
        running.wait_for("waits")
        os.kill(serving_of(running), signal.SIGKILL)
        running.say("go on")
        result = running.finish()
    assert "the process that serves" in result.stderr and "signal 9" in result.stderr
    assert result.returncode != 0 and result.leftovers == {}
    assert not (tmp_path / "at").exists()


def serving_of(running) -> int:
    """The younger of the two storage processes."""
    found = [
        pid for pid, words in marked(running.mark).items() if "storage.mounting.server" in words
    ]
    assert len(found) == 2
    return max(found)


WRONG = {
    "not empty": ("{full}", "file:///", ["is not empty", "give an empty folder"]),
    "a file": ("{full}/file", "file:///", ["cannot be used"]),
    "nobody answers": ("{at}", "http://127.0.0.1:1/x", ["does not answer", "127.0.0.1:1/x"]),
    "no such folder": ("{at}", "file:///no/such", ["cannot be listed", "file:///no/such"]),
    "no such scheme": ("{at}", "nonsense://x", ["nonsense"]),
}


@pytest.mark.parametrize(("path", "url", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_mounted_is_said_before_the_script_starts(tmp_path, path, url, told):
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    at = path.format(full=full, at=tmp_path / "at")
    command = [*under_stoker(f"--mount={at}={url}"), sys.executable, "-c", "print('started')"]
    result = finished(command, tmp_path)
    assert result.returncode in (2, 69) and result.stdout == ""
    assert all(word in result.stderr for word in told), result.stderr
    assert "Traceback" not in result.stderr and result.leftovers == {}
    assert not (tmp_path / "at").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount an overlay")
def test_what_the_kernel_has_is_opened_without_asking_the_storage_process(tmp_path, data):
    """`open` of Python's up to 3.13 asks each file whether it is a terminal."""
    at, ours = tmp_path / "at", tmp_path / "ours.py"
    ours.write_text(
        "import os, pathlib, signal, sys\n"
        "stopped = []\n"
        "at = pathlib.Path(sys.argv[1])\n"
        "paths = [path for path in sorted(at.rglob('*')) if path.is_file()]\n"
        "before = [path.open('rb').read() for path in paths]\n"
        "names = sorted(os.listdir(at))\n"
        "for pid in map(int, filter(str.isdecimal, os.listdir('/proc'))):\n"
        "    try:\n"
        "        words = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()\n"
        "    except OSError:\n"
        "        continue\n"
        "    if b'stoker.storage.mounting.server' in words and str(at).encode() in \\\n"
        "            pathlib.Path(f'/proc/{pid}/mountinfo').read_bytes():\n"
        "        os.kill(pid, signal.SIGSTOP)\n"
        "        stopped.append(pid)\n"
        "after = [path.open('rb').read() for path in paths]\n"
        "for pid in stopped:\n"
        "    os.kill(pid, signal.SIGCONT)\n"
        "print(len(stopped), before == after, len(before), names)\n"
    )
    command = [
        *under_stoker(f"--mount={at}=file://{data}/root"),
        sys.executable,
        str(ours),
        str(at),
    ]
    result = finished(command, tmp_path)
    num = sum(path.is_file() for path in (data / "root").rglob("*"))
    names = sorted(os.listdir(data / "root"))  # noqa: PTH208
    assert result.stdout == f"2 True {num} {names}\n", result.stderr
    assert result.leftovers == {}


def test_a_mount_is_read_only(tmp_path, data):
    at = tmp_path / "at"
    code = f"open({str(at / 'new')!r}, 'w')"
    command = [*under_stoker(f"--mount={at}=file://{data}/root"), sys.executable, "-c", code]
    result = finished(command, tmp_path)
    assert "Read-only file system" in result.stderr


def test_hosts_that_lack_the_files_are_sent_them(tmp_path, data, local):
    root = data / "root"
    command = [sys.executable, SCRIPT, str(root), "listed", "20", "2"]
    report = f"--report-json={tmp_path / 'report.json'}"
    hiding = {
        "HIDDEN_FROM_HOSTS": str(root), "PYTHONPATH": str(SCRIPTS.parent / "hiding"), "SAMPLE_S": "0.03",
    }  # fmt: skip
    # Without: what a sample needs is remembered here, before a host has been started.
    flags = ("--cluster=processes:2", "--cache=off")
    result = finished(
        [*under_stoker(report, *flags, quiet=False), *command], tmp_path, environ=hiding
    )
    assert (result.returncode, result.stdout) == (0, local("listed", epochs=20)), result.stderr
    assert result.leftovers == {}
    sent = result.report["workers"]["files_sent_nbytes"]
    away = sum(loader["num_away"] for loader in result.report["loaders"])
    assert away > 0 and sent > 0
    assert f"lacks {root}: files there are sent from here" in result.stderr
    told = result.report["storage"]
    assert told["mounts"] == [] and told["away"]["remote_nbytes"] > 0
    assert "stoker: other machines: " in result.stderr
    # Each file once, though there are two machines; more only until they know of each other.
    assert sent <= 1.3 * sum(path.stat().st_size for path in root.rglob("*.bin"))


@pytest.mark.full
@pytest.mark.xdist_group("cluster")
@NEEDS_RAY
@pytest.mark.parametrize("way", ["hosted", "mounted"])
def test_nodes_of_ray_that_lack_the_files_see_them(tmp_path, data, server, local, way):
    root, at = data / "root", tmp_path / "at"
    environ = {
        "HIDDEN_FROM_HOSTS": str(root), "PYTHONPATH": str(SCRIPTS.parent / "hiding"), "SAMPLE_S": "0.03",
    }  # fmt: skip
    flags = [f"--mount={at}={server.url}/root"] if way == "mounted" else []
    with ray_of(1, 1, **environ) as nodes:
        report = f"--report-json={tmp_path / 'report.json'}"
        prefix = under_stoker(report, f"--cluster={nodes.address}", "--cache=off", *flags)
        words = [str(at if way == "mounted" else root), "listed", "30", "2"]
        told = nodes.token | {"SAMPLE_S": environ["SAMPLE_S"]}
        result = finished([*prefix, sys.executable, SCRIPT, *words], tmp_path, environ=told)
    assert (result.returncode, result.stdout) == (0, local("listed", epochs=30)), result.stderr
    assert sum(loader["num_away"] for loader in result.report["loaders"]) > 0
    assert (result.report["workers"]["files_sent_nbytes"] > 0) is (way == "hosted")
    assert not at.exists()


@pytest.mark.full
def test_verify_and_doctor_see_mounts_too(tmp_path, server):
    at = tmp_path / "at"
    words = [
        f"--mount={at}={server.url}/root",
        "--",
        sys.executable,
        SCRIPT,
        str(at),
        "listed",
        "3",
        "2",
    ]
    verified = finished([sys.executable, "-m", "stoker", "verify", *words], tmp_path / "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    examined = finished([sys.executable, "-m", "stoker", "doctor", *words], tmp_path / "doctor")
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert not at.exists() and verified.leftovers == examined.leftovers == {}


@pytest.fixture(scope="module")
def bucket(data):
    """moto's server with the files of `root` in a bucket, and what a client needs."""
    pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    serving = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    serving.start()
    host, port = serving.get_host_and_port()
    environ = {
        "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
        "FSSPEC_S3_ENDPOINT_URL": f"http://{host}:{port}",
    }  # fmt: skip
    client = boto3.client(
        "s3", endpoint_url=environ["FSSPEC_S3_ENDPOINT_URL"], region_name="us-east-1",
        aws_access_key_id="me", aws_secret_access_key="secret",
    )  # fmt: skip
    client.create_bucket(Bucket="bucket")
    for path in sorted((data / "root").rglob("*")):
        if path.is_file():
            client.upload_file(str(path), "bucket", f"root/{path.relative_to(data / 'root')}")
    yield client, environ
    client.close()
    serving.stop()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["listed", "opens", "mapped", "tars"])
def test_batches_from_a_bucket_are_those_of_a_local_folder(tmp_path, bucket, local, kind):
    _, environ = bucket
    result = run(tmp_path, "s3://bucket/root", kind, environ=environ)
    assert (result.returncode, result.stdout) == (0, local(kind)), result.stderr


@pytest.fixture(scope="module")
def sftp(data, tmp_path_factory):
    """OpenSSH's own server, the URL of `root` there, and what a client needs."""
    pytest.importorskip("paramiko")
    if not os.access("/usr/sbin/sshd", os.X_OK) or os.geteuid() != 0:
        pytest.skip("needs root, and sshd: apt-get install openssh-server")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    Path("/run/sshd").mkdir(exist_ok=True)  # it wants that
    port = free_port()
    options = {
        "ListenAddress": "127.0.0.1", "AuthorizedKeysFile": folder / "user.pub", "StrictModes": "no",
        "PermitRootLogin": "yes", "UsePAM": "no", "Subsystem": "sftp internal-sftp", "PidFile": "none",
    }  # fmt: skip
    words = [
        "/usr/sbin/sshd",
        "-D",
        "-e",
        "-f",
        "/dev/null",
        "-p",
        str(port),
        "-h",
        str(folder / "host"),
    ]
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as serving:
        assert any("listening" in line for line in serving.stderr)
        # Nobody reads what it says from here on, which is little.
        environ = {"FSSPEC_SFTP_KEY_FILENAME": str(folder / "user")}
        yield f"sftp://root@127.0.0.1:{port}{data}/root", environ
        serving.terminate()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["listed", "opens", "mapped", "tars"])
def test_batches_over_ssh_are_those_of_a_local_folder(tmp_path, sftp, local, kind):
    url, environ = sftp
    result = run(tmp_path, url, kind, environ=environ)
    assert (result.returncode, result.stdout) == (0, local(kind)), result.stderr


@pytest.mark.full
def test_an_object_of_a_bucket_that_was_replaced_between_two_runs_is_found_out(
    tmp_path, bucket, local
):
    client, environ = bucket
    flags = (f"--cache-disk={tmp_path / 'cache'}:1G", "--cache-keep")
    first = run(tmp_path, "s3://bucket/root", "listed", *flags, environ=environ)
    assert first.stdout == local("listed"), first.stderr
    key = next(
        each["Key"]
        for each in client.list_objects(Bucket="bucket")["Contents"]
        if "030" in each["Key"]
    )
    before = client.get_object(Bucket="bucket", Key=key)["Body"].read()
    client.put_object(Bucket="bucket", Key=key, Body=b"other")
    try:
        second = run(tmp_path, "s3://bucket/root", "listed", *flags, environ=environ)
        assert "has changed since an earlier run listed it: 1 names (030" in second.stderr
        third = run(tmp_path, "s3://bucket/root", "listed", *flags, environ=environ)
        assert third.returncode == 0 and third.stdout != local("listed")
    finally:
        client.put_object(Bucket="bucket", Key=key, Body=before)


@pytest.mark.full
def test_wrong_keys_are_told_before_the_script_starts(tmp_path, bucket):
    _, environ = bucket
    environ = {**environ, "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:1"}
    command = [*under_stoker(f"--mount={tmp_path / 'at'}=s3://bucket/root"), "true"]
    result = finished(command, tmp_path, environ=environ)
    assert result.returncode == 69 and "s3://bucket/root" in result.stderr


@pytest.mark.full
def test_who_is_not_root_mounts_by_fusermount(tmp_path, server, local):
    if shutil.which("fusermount3") is None or not Path("/dev/fuse").stat().st_mode & 0o002:
        pytest.skip("needs fusermount3, and /dev/fuse to be open to everybody")
    tmp_path.chmod(0o777)
    for above in tmp_path.parents:
        above.chmod(above.stat().st_mode | 0o011) if above.owner() == "root" else None
    folder = tmp_path / "own"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    at = folder / "at"
    code = f"import os; print(os.getuid(), len(os.listdir({str(at / 'c0')!r})))"
    command = [
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
        # Where Python lies may be root's own.
        "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
        *under_stoker(f"--mount={at}={server.url}/root"), sys.executable, "-c", code,
    ]  # fmt: skip
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(folder)},
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, f"65534 {NUM_FILES // 3}\n"), result.stderr
    gone_by_s = time.monotonic() + 5
    while at.exists() and time.monotonic() < gone_by_s:
        time.sleep(0.01)
    assert not at.exists()


def test_workers_of_a_cluster_read_the_mount_too(tmp_path, server, local):
    result = run(tmp_path, f"{server.url}/root", "listed", "--cluster=processes:2", epochs=3)
    assert (result.returncode, result.stdout) == (0, local("listed", epochs=3)), result.stderr
