"""Settings: declared once, found by precedence, refused with a way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker import config
from stoker.config import SETTINGS, Disk, Mount, Mounts, Settings, Span
from stoker.errors import ConfigError

TEXTS = {
    "chains": "7", "cluster": "auto", "workers": "3", "memory": "2G", "report_json": "report.json",
    "hash_batches": "1", "quiet": "yes", "off": "true", "bind": "10.0.0.1",
    "no_tls": "1", "allow_mismatch": "1", "no_hedge": "1", "send_env": "A_KEY,B_KEY", "price_worker": "0.03",
    "price_trainer": "2.5", "gradients": "4bit+ef", "gradient_codes": "head.*=8bit,*.bias=bf16",
    "progress": "on", "verbose": "1", "fast": "audit", "no_run_log": "1", "no_stalls": "1", "page": "127.0.0.1:8080", "page_token": "/a/token",
    "tensorboard": "/a/runs", "cache": "audit", "cache_memory": "2G",
    "mount": "/data=s3://bucket/folder\n/more=https://host/a=b", "mount_credentials": "1",
    "cache_disk": "/scratch/a:b:200G", "cache_keep": "1", "cache_trust": "mylib,otherlib",
}  # fmt: skip


def resolve(flags=None, environ=None, table=None, user=None):
    return config.resolve(flags or {}, environ or {}, table or {}, user or {}).settings


def test_every_setting_is_declared_once_and_has_a_default():
    assert [setting.name for setting in SETTINGS] == list(Settings._fields)


def test_without_a_word_every_setting_has_its_default():
    assert resolve() == Settings()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_flag_wins_over_a_variable_over_a_table_over_the_default(setting):
    text = TEXTS[setting.name]
    expected = setting.parse(text)
    needed = {"STOKER_CACHE_DISK": "/scratch:1G"} if setting.name == "cache_keep" else {}
    for given_in in ("flags", "environ", "table"):
        key = setting.variable if given_in == "environ" else setting.name
        given = {"environ": needed} | {given_in: {key: text}}
        given["environ"] = needed | given["environ"]
        assert getattr(resolve(**given), setting.name) == expected


def test_the_nearest_source_decides():
    everywhere = {
        "user": {"workers": "4"},
        "flags": {"workers": "1"},
        "environ": {"STOKER_WORKERS": "2"},
        "table": {"workers": "3"},
    }
    assert resolve(**everywhere).workers == 1
    del everywhere["flags"]
    assert resolve(**everywhere).workers == 2
    del everywhere["environ"]
    assert resolve(**everywhere).workers == 3
    del everywhere["table"]
    assert resolve(**everywhere).workers == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("workers", "0"), ("workers", "-1"), ("workers", "two"), ("workers", ""),
        ("chains", "0"), ("chains", "many"), ("chains", ""),
        ("memory", "lots"), ("memory", ""), ("memory", "-1G"), ("memory", "4X"),
        ("memory", "1k"), ("memory", "1023K"),
        ("mount", "/data"), ("mount", "=s3://bucket"), ("mount", "/data=/other"), ("mount", "s3://bucket"),
        ("mount", "/a=s3://b\n/a=s3://c"), ("mount", "/a=s3://b\n/a/b=s3://c"),
        ("fast", "on"), ("fast", ""), ("cache", "on"), ("cache", ""), ("cache_memory", "0"), ("cache_memory", "1k"),
        ("cache_memory", "much"), ("cache_disk", "/scratch"), ("cache_disk", ":2G"),
        ("cache_disk", "/scratch:1k"), ("cache_disk", "/scratch:much"),
        ("cache_trust", ""), ("cache_trust", "a b"), ("cache_trust", "a,,b"),
        ("quiet", "maybe"),
        ("page", ""), ("page", "train.py"), ("page", "99999"), ("page", "host:"), ("page", "-1"),
        ("gradients", "2bit"), ("gradients", "4bit+"), ("gradients", ""), ("gradients", "fp32"),
        ("gradient_codes", "head"), ("gradient_codes", "head=4"), ("gradient_codes", "=8bit"),
        ("gradient_codes", "*=8bit,head=no"), ("progress", "yes"), ("progress", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", ["flags", "environ", "table"])
def test_a_value_that_cannot_be_names_its_origin_and_itself(source, name, text):
    key = f"STOKER_{name.upper()}" if source == "environ" else name
    flag = name.replace("_", "-")
    origin = {
        "flags": f"--{flag}", "environ": f"STOKER_{name.upper()}", "table": f"[tool.stoker] {name}"
    }[source]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        resolve(**{source: {key: text}})
    assert str(caught.value).startswith(f"{origin}: ")
    assert repr(text) in str(caught.value) and "give " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("2000000", 2_000_000), ("500M", 500 << 20), ("4G", 4 << 30), ("4g", 4 << 30), ("2048K", 2 << 20),
        ("2GiB", 2 << 30), ("2 GB", 2 << 30), ("0", 0), ("1T", 1 << 40),
    ],
)  # fmt: skip
def test_a_size_may_carry_a_binary_unit(text, nbytes):
    assert resolve({"memory": text}).memory == nbytes


def test_a_report_is_written_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve({"report_json": "report.json"}).report_json == str(tmp_path / "report.json")


@given(
    st.builds(
        Settings,
        chains=st.one_of(st.sampled_from(["script", "auto"]), st.integers(1, 10**6).map(str)),
        cluster=st.none() | st.sampled_from(["auto", "10.0.0.1:6379", "ray://head:10001"]),
        workers=st.none() | st.integers(1, 10**6) | st.builds(Span, st.just(2), st.integers(2, 9)),
        memory=st.none() | st.just(0) | st.integers(1 << 20, 1 << 50),
        report_json=st.none() | st.sampled_from(["/a/report.json", "/a b/ü=.json"]),
        hash_batches=st.booleans(),
        quiet=st.booleans(),
        off=st.booleans(),
        bind=st.none() | st.just("10.0.0.1"),
        no_tls=st.booleans(),
        allow_mismatch=st.booleans(),
        no_hedge=st.booleans(),
        send_env=st.none() | st.just("A_KEY,B_KEY"),
        price_worker=st.none() | st.floats(0, 1e9),
        price_trainer=st.none() | st.floats(0, 1e9),
        gradients=st.none() | st.sampled_from(["bf16", "8bit+ef"]),
        gradient_codes=st.none() | st.just("head.*=fp32, *=bf16"),
        progress=st.sampled_from(["auto", "on", "off"]),
        verbose=st.booleans(),
        no_run_log=st.booleans(),
        no_stalls=st.booleans(),
        page=st.none() | st.sampled_from(["127.0.0.1:0", "0.0.0.0:80", "[::1]:8080"]),
        page_token=st.none() | st.just("/a/token"),
        tensorboard=st.none() | st.just("/a b/runs"),
        fast=st.sampled_from(["auto", "off", "audit"]),
        cache=st.sampled_from(["auto", "off", "audit"]),
        cache_memory=st.none() | st.integers(1 << 20, 1 << 50),
        cache_disk=st.just(Disk("/a b:c", 1 << 40)),
        cache_keep=st.booleans(),
        mount=st.none() | st.just(Mounts([Mount("/a b", "s3://b/c=d"), Mount("/ü", "file:///x")])),
        mount_credentials=st.booleans(),
        cache_trust=st.none() | st.just("mylib,otherlib"),
    )
)
def test_settings_survive_the_environment(settings):
    environ = settings.to_env()
    assert config.from_env(environ) == settings
    assert all(name.startswith("STOKER_") for name in environ)
    assert config.ARMED not in environ


def test_to_keep_what_is_remembered_needs_a_folder():
    with pytest.raises(ConfigError, match=r"^--cache-keep: .*give --cache-disk DIR:SIZE"):
        resolve({"cache_keep": "1"})
    assert resolve({"cache_keep": "0"}) == Settings()


def test_where_each_setting_comes_from_is_kept():
    found = config.resolve(
        {"workers": "1"}, {"STOKER_MEMORY": "1G"}, {"quiet": "1"}, {"chains": "2"}
    )
    assert found.origins == {
        "workers": "--workers", "memory": "STOKER_MEMORY", "quiet": "[tool.stoker] quiet",
        "chains": "stoker/config.toml chains",
    }  # fmt: skip
