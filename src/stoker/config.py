"""Declares every setting once: type, default, unit, meaning, check.

Flags, environment names, `--help` and docs/configuration.md derive from `Settings`.
Precedence: flag > STOKER_* variable > [tool.stoker] in pyproject.toml > the user's file > default.
Pure. Uses neither dataclasses nor pathlib: they cost 15 ms of the 60 that `stoker run` may cost.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from stoker.errors import ConfigError

USER_FILE = "stoker/config.toml"  # in $XDG_CONFIG_HOME, which is ~/.config unless it is set
ORIGINS = "STOKER_ORIGINS"  # where each setting of a run comes from, a line each; for its log
PAGE_URL = "STOKER_PAGE_URL"  # of the run's page, as it was printed before the command started
STORAGE = (
    "STOKER_STORAGE"  # the socket of the storage process, where a run has mounts, and their folders
)
ARMED = "STOKER_RUN"  # set by `stoker run`; the .pth line looks for it
LEAST_MEMORY_NBYTES = 1 << 20  # an extent that circulates
LOOPBACK = "127.0.0.1"
FILES_FRAC = 0.5  # of --cache-memory, for files of mounts; the rest is for remembered samples
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _chains(text: str) -> str:
    if text in ("script", "auto") or (text.isdecimal() and int(text) >= 1):
        return text
    raise ConfigError(f"chains: got {text!r}; give script, auto or a number >= 1")


def _count(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise ConfigError(f"workers: got {text!r}; give a number >= 1")


class Span(NamedTuple):
    """Bounds on the number of workers, from `--workers MIN:MAX`."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"


def _workers(text: str) -> int | Span:
    least, colon, most = text.partition(":")
    if not colon:
        return _count(text)
    if least.isdecimal() and most.isdecimal() and int(least) <= int(most) >= 1:
        return Span(int(least), int(most))
    raise ConfigError(f"workers: got {text!r}; give a number >= 1, or MIN:MAX with MIN <= MAX")


def _cluster(text: str) -> str:
    if re.fullmatch(r"processes:[1-9]\d*(x[1-9]\d*)?", text):
        return text
    host, colon, port = text.removeprefix("ray://").rpartition(":")
    if text == "auto" or (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        return text
    raise ConfigError(
        f"cluster: got {text!r}; give auto, HOST:PORT, ray://HOST:PORT or processes:N"
    )


def _nbytes(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{name}: got {text!r}; give bytes, as 500M or 4G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _memory(text: str) -> int:
    nbytes = _nbytes("memory", text)
    if 0 < nbytes < LEAST_MEMORY_NBYTES:
        raise ConfigError(f"memory: got {text!r}; give 1M or more, or 0 to have every batch copied")
    return nbytes


def _cache_memory(text: str) -> int:
    nbytes = _nbytes("cache_memory", text)
    if nbytes < LEAST_MEMORY_NBYTES:
        raise ConfigError(f"cache_memory: got {text!r}; give 1M or more; --cache off needs none")
    return nbytes


def _cache_trust(text: str) -> str:
    if not all(name.strip().isidentifier() for name in text.split(",")):
        raise ConfigError(f"cache_trust: got {text!r}; give names of modules, as mylib,otherlib")
    return text


class Disk(NamedTuple):
    """A folder and how many bytes it may have, from `--cache-disk DIR:SIZE`."""

    path: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.path}:{self.nbytes}"


def _cache_disk(text: str) -> Disk:
    path, _, size = text.rpartition(":")
    try:
        nbytes = _nbytes("cache_disk", size)
    except ConfigError:
        nbytes = 0
    if not path or nbytes < LEAST_MEMORY_NBYTES:
        raise ConfigError(f"cache_disk: got {text!r}; give DIR:SIZE, 1M or more, as /scratch:200G")
    return Disk(os.path.abspath(os.path.expanduser(path)), nbytes)


class Mount(NamedTuple):
    """A folder at which a URL's files appear, from `--mount PATH=URL`."""

    path: str
    url: str

    def __str__(self) -> str:
        return f"{self.path}={self.url}"


class Mounts(tuple[Mount, ...]):
    """Mounts, none inside another; as text one a line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def _mounts(text: str) -> Mounts:
    mounts: list[Mount] = []
    for line in filter(None, text.split("\n")):
        path, _, url = line.partition("=")
        if not path or "://" not in url:
            raise ConfigError(
                f"mount: got {line!r}; give PATH=URL, as /data=s3://bucket/folder; a folder of this "
                "machine is file:///folder"
            )
        mount = Mount(os.path.abspath(os.path.expanduser(path)), url)
        for other in mounts:
            if f"{mount.path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(
                f"{mount.path}/"
            ):
                raise ConfigError(
                    f"mount: got {text!r}; {mount.path} and {other.path} lie inside each other: "
                    "give folders that do not"
                )
        mounts.append(mount)
    return Mounts(mounts)


def _progress(text: str) -> str:
    if text in ("auto", "on", "off"):
        return text
    raise ConfigError(f"progress: got {text!r}; give auto, on or off")


def _page(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text in ("1", "true"):  # of a file: any port
        port = "0"
    if port.isdecimal() and int(port) < 65536:
        return f"{host or LOOPBACK}:{port}"
    raise ConfigError(f"page: got {text!r}; give PORT or HOST:PORT")


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise ConfigError(f"price: got {text!r}; give a number >= 0, as 0.034")
    return price


def _gradients(text: str) -> str:
    if text.removesuffix("+ef") in ("bf16", "8bit", "4bit", "best"):
        return text
    raise ConfigError(f"gradients: got {text!r}; give bf16, 8bit, 4bit or best, each also with +ef")


def _gradient_codes(text: str) -> str:
    for pattern, code in patterns_of(text).items():
        if not pattern or code not in ("fp32", "bf16", "8bit", "4bit"):
            raise ConfigError(
                f"gradient_codes: got {text!r}; give PATTERN=CODE,... with codes fp32, bf16, 8bit, 4bit"
            )
    return text


def patterns_of(text: str) -> dict[str, str]:
    """Parse `PATTERN=CODE,...` into codes by pattern of parameter names, in the order given."""
    return {
        pattern.strip(): code.strip()
        for pattern, _, code in (each.rpartition("=") for each in text.split(",") if each)
    }


def _auto_off_audit(name: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in ("auto", "off", "audit"):
            raise ConfigError(f"{name}: got {text!r}; give auto, off or audit")
        return text

    return parse


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("", "0", "false", "no", "off"):
        return False
    raise ConfigError(f"got {text!r}; give 1 or 0")


def _path(text: str) -> str:
    return os.path.abspath(text)


class Setting(NamedTuple):
    """The declaration of one setting. metavar: what the value looks like; empty for a switch, in
    brackets where it can be left out;
    short: its one letter; group: the heading in the help; is_repeated: it may be given several times, and
    its text has a line for each."""

    parse: Callable[[str], Any]
    metavar: str
    meaning: str
    name: str = ""
    short: str = ""
    group: str = ""
    is_repeated: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def spelled(self) -> str:
        """All spellings of the flag, with its value: `-q, --quiet`, `--memory SIZE`."""
        letter = f"-{self.short}, " if self.short else ""
        return f"{letter}{self.flag} {self.metavar}".rstrip()

    @property
    def variable(self) -> str:
        return f"STOKER_{self.name.upper()}"

    @property
    def default(self) -> Any:
        return Settings._field_defaults[self.name]


BATCHES, TOLD, AWAY, GRADIENTS = "batches", "what is told", "other machines", "gradients"


# fmt: off
class Settings(NamedTuple):
    """Holds the settings of a run, each with its declaration: flag --x, variable STOKER_X, key x."""

    chains: Annotated[
        str,
        Setting(
            _chains, "script|auto|N",
            "whose batches: script: of the script's num_workers, to the bit; auto: as if num_workers "
            "were the number of cores; N: as if it were N (random augmentation differs with it); "
            "default: script",
            group=BATCHES,
        ),
    ] = "script"
    workers: Annotated[
        int | Span | None,
        Setting(
            _workers, "N|MIN:MAX",
            "processes that may make batches; with --cluster: CPUs to ask it for, which are all but "
            "this machine's unless it is given; default: the cores this process may use",
            group=BATCHES,
        ),
    ] = None
    memory: Annotated[
        int | None,
        Setting(
            _memory, "SIZE",
            "batches the script may hold in shared memory, as 500M or 4G; what is beyond is copied "
            "to ordinary memory; 0: all of them; default: a quarter of the machine's",
            group=BATCHES,
        ),
    ] = None
    fast: Annotated[
        str,
        Setting(
            _auto_off_audit("fast"), "auto|off|audit",
            "faster functions for Pillow's, torchvision's and audio libraries' where every bit stays "
            "the same, and check it now and then; audit: make all the usual way too, and compare; "
            "default: auto",
            group=BATCHES,
        ),
    ] = "auto"
    cache: Annotated[
        str,
        Setting(
            _auto_off_audit("cache"), "auto|off|audit",
            "remember what samples compute before their first random draw, and check it now and "
            "then; audit: remember, make everything again all the same and compare; default: auto",
            group=BATCHES,
        ),
    ] = "auto"
    cache_memory: Annotated[
        int | None,
        Setting(
            _cache_memory, "SIZE",
            "memory for remembered samples, shared by the workers and ranks of a machine; default: a quarter of what is free",
            group=BATCHES,
        ),
    ] = None
    cache_disk: Annotated[
        Disk | None,
        Setting(
            _cache_disk, "DIR:SIZE",
            "folder for remembered samples that find no room in memory, and how much it may hold, "
            "as /scratch:200G",
            group=BATCHES,
        ),
    ] = None
    cache_keep: Annotated[
        bool,
        Setting(
            _flag, "",
            "keep what is remembered in the folder of --cache-disk, for the next run",
            group=BATCHES,
        ),
    ] = False
    cache_trust: Annotated[
        str | None,
        Setting(
            _cache_trust, "NAME,...",
            "compiled modules, beside those that stoker knows, whose functions depend on nothing "
            "but what they are given",
            group=BATCHES,
        ),
    ] = None
    mount: Annotated[
        Mounts | None,
        Setting(
            _mounts, "PATH=URL",
            "show the files of a URL at a folder, read-only, to the script and its workers, as "
            "/data=s3://bucket/folder; any URL that fsspec knows; several times for several folders",
            group=BATCHES, is_repeated=True,
        ),
    ] = None
    mount_credentials: Annotated[
        bool,
        Setting(
            _flag, "",
            "send what opens the URLs of --mount here to the workers of a cluster; else each machine "
            "uses its own",
            group=BATCHES,
        ),
    ] = False
    off: Annotated[
        bool,
        Setting(
            _flag, "",
            "leave every loader to torch; only count, time and hash",
            group=BATCHES,
        ),
    ] = False
    quiet: Annotated[
        bool,
        Setting(
            _flag, "",
            "no summary and no progress line",
            short="q", group=TOLD,
        ),
    ] = False
    verbose: Annotated[
        bool,
        Setting(
            _flag, "",
            "say that stoker is on, what becomes of each loader, and at the end also where no "
            "loader ran",
            short="v", group=TOLD,
        ),
    ] = False
    no_run_log: Annotated[
        bool,
        Setting(
            _flag, "",
            "keep no log of the run in the user's state folder, where stoker runs and stoker report look",
            group=TOLD,
        ),
    ] = False
    no_stalls: Annotated[
        bool,
        Setting(
            _flag, "",
            "do not look at what training does between two batches: fifty times a second, for the log and the report",
            group=TOLD,
        ),
    ] = False
    page: Annotated[
        str | None,
        Setting(
            _page, "[PORT]",
            "serve a page that shows the run while it lasts, and /metrics for Prometheus; its address is printed at the start; "
            "HOST:PORT: to other machines too; default of PORT: any that is free",
            group=TOLD,
        ),
    ] = None
    page_token: Annotated[
        str | None,
        Setting(
            _path, "FILE",
            "the page's token, as this file holds it; default: a new one for each run",
            group=TOLD,
        ),
    ] = None
    tensorboard: Annotated[
        str | None,
        Setting(
            _path, "DIR",
            "write scalars for TensorBoard there, in a folder of the run's own",
            group=TOLD,
        ),
    ] = None
    progress: Annotated[
        str,
        Setting(
            _progress, "auto|on|off",
            "a line on the terminal while batches come, never beside a bar of tqdm or rich; auto:"
            " nor with NO_COLOR, or a package whose bars cannot be seen; default: auto",
            group=TOLD,
        ),
    ] = "auto"
    report_json: Annotated[
        str | None,
        Setting(
            _path, "FILE",
            "write one JSON object about the run there when it ends",
            group=TOLD,
        ),
    ] = None
    hash_batches: Annotated[
        bool,
        Setting(
            _flag, "",
            "put a SHA-256 of every delivered batch into the report",
            group=TOLD,
        ),
    ] = False
    price_worker: Annotated[
        float | None,
        Setting(
            _price, "PRICE",
            "of one CPU of the cluster for an hour, in any currency: the summary tells what the "
            "workers cost",
            group=TOLD,
        ),
    ] = None
    price_trainer: Annotated[
        float | None,
        Setting(
            _price, "PRICE",
            "of this machine for an hour",
            group=TOLD,
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Setting(
            _cluster, "ADDRESS",
            "a Ray cluster whose CPUs make batches too: auto, HOST:PORT or ray://HOST:PORT; "
            "processes:N is N processes of this machine, to try it, processes:NxM are N with M "
            "workers each",
            group=AWAY,
        ),
    ] = None
    bind: Annotated[
        str | None,
        Setting(
            str, "ADDRESS",
            "where workers of a cluster dial this process; default: the interface that reaches it",
            group=AWAY,
        ),
    ] = None
    no_tls: Annotated[
        bool,
        Setting(
            _flag, "",
            "send batches unencrypted, for networks that are trusted; on loopback they always are",
            group=AWAY,
        ),
    ] = False
    allow_mismatch: Annotated[
        bool,
        Setting(
            _flag, "",
            "use workers whose Python, torch, NumPy or stoker is another version",
            group=AWAY,
        ),
    ] = False
    no_hedge: Annotated[
        bool,
        Setting(
            _flag, "",
            "never ask a second worker for a batch that is late: with --cluster dataset code may "
            "else run twice for one batch",
            group=AWAY,
        ),
    ] = False
    send_env: Annotated[
        str | None,
        Setting(
            str, "NAME,...",
            "environment variables that travel to the workers of a cluster although they look "
            "like secrets, as AWS_SECRET_ACCESS_KEY",
            group=AWAY,
        ),
    ] = None
    gradients: Annotated[
        str | None,
        Setting(
            _gradients, "bf16|8bit|4bit|best[+ef]",
            "compress what DistributedDataParallel sends, with loss: the fewest bits an element "
            "that are permitted (best: 4), as far as that is faster; with +ef what a step loses "
            "is added to the next one's",
            group=GRADIENTS,
        ),
    ] = None
    gradient_codes: Annotated[
        str | None,
        Setting(
            _gradient_codes, "PATTERN=CODE,...",
            "codes (fp32, bf16, 8bit, 4bit) of parameters whose name matches; default: fp32 for "
            "biases, norms, embeddings, the output head and what is small",
            group=GRADIENTS,
        ),
    ] = None

    def to_env(self) -> dict[str, str]:
        """Return the STOKER_* variables that `from_env` turns back into these settings."""
        return {
            setting.variable: _text(getattr(self, setting.name))
            for setting in SETTINGS
            if getattr(self, setting.name) != setting.default
        }
# fmt: on

SETTINGS: tuple[Setting, ...] = tuple(
    declared.__metadata__[0]._replace(name=name)
    for name, declared in Settings.__annotations__.items()
)


def _text(value: object) -> str:
    return "1" if value is True else str(value)


class Resolved(NamedTuple):
    """Settings, and where each that was given comes from, in words: a flag, a variable or a key."""

    settings: Settings
    origins: dict[str, str]


def from_env(environ: Mapping[str, str] = os.environ) -> Settings:
    return resolve({}, environ, {}).settings


def resolve(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    table: Mapping[str, str],
    user: Mapping[str, str] | None = None,
) -> Resolved:
    """Merge settings by precedence; each value is text. Raises ConfigError on the first bad one.

    table: of pyproject.toml; user: of the user's file.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        for source, key, origin in (
            (flags, setting.name, setting.flag),
            (environ, setting.variable, setting.variable),
            (table, setting.name, f"[tool.stoker] {setting.name}"),
            (user or {}, setting.name, f"{USER_FILE} {setting.name}"),
        ):
            if key in source:
                values[setting.name] = _parsed(setting, source[key], origin)
                origins[setting.name] = origin
                break
    if values.get("cache_keep") and values.get("cache_disk") is None:
        raise ConfigError(
            f"{origins['cache_keep']}: where? give --cache-disk DIR:SIZE too, as /scratch:200G"
        )
    return Resolved(Settings(**values), origins)


def _parsed(setting: Setting, text: str, origin: str) -> Any:
    try:
        return setting.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
