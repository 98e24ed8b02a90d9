"""Collects what opens object stores here, for machines that have no credentials of their own.

Only with --mount-credentials: they travel as the run's token does, to the process of a machine that
serves mounts, and to no other.
"""

import contextlib
import os
from collections.abc import Mapping

# Source: botocore's and adlfs's documentation, fsspec's of its configuration, huggingface_hub's.
# What only this machine's files and services can make something of.
_OF_THIS_MACHINE = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_", "AWS_ROLE_", "AWS_CONTAINER_", "AWS_CA_BUNDLE",
)  # fmt: skip
_PREFIXES = ("AWS_", "FSSPEC_", "AZURE_STORAGE_", "HF_TOKEN")


def collect(urls: list[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables with which these URLs can be opened elsewhere; of S3 the keys that
    botocore finds, wherever they stand."""
    found = {
        name: value
        for name, value in environ.items()
        if name.startswith(_PREFIXES) and not name.startswith(_OF_THIS_MACHINE)
    }
    if any(url.partition("://")[0] in ("s3", "s3a") or "::s3://" in url for url in urls):
        with contextlib.suppress(ImportError):
            found |= _of_botocore()
    return found


def _of_botocore() -> dict[str, str]:
    from botocore.session import get_session

    session = get_session()
    credentials = session.get_credentials()
    if credentials is None:
        return {}
    frozen = credentials.get_frozen_credentials()
    found = {
        "AWS_ACCESS_KEY_ID": frozen.access_key,
        "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
        "AWS_SESSION_TOKEN": frozen.token,
        "AWS_DEFAULT_REGION": session.get_config_variable("region"),
    }
    return {name: value for name, value in found.items() if value}
