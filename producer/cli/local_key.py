"""The access key of the user's own embedded LogHub: made at first use, kept in a file that other users cannot read.

``producer serve`` takes it where it is given none, and the profile ``local`` signs with it. So on a machine of several
users no command writes into the server of another one. The file is ``local.toml`` beside ``config.toml``.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

from ..model.errors import ProducerError
from ..runtime.system_user import user_name

_ABOUT = "# The access key of `producer serve` and of the profile `local`. Delete the file to get a new one.\n"


class LocalKeyError(ProducerError):
    """The key can be neither read nor kept; the text says why."""


def local_key(folder: Path | None) -> dict[str, str]:
    """Return the key as settings of a profile, and make it where there is none yet.

    :param folder: the folder of the user's configuration; None where there is no home.
    :raises LocalKeyError: the file cannot be used.
    """
    if folder is None:
        raise LocalKeyError("there is no home directory to keep an access key in: set HOME or XDG_CONFIG_HOME")
    path = folder / "local.toml"
    try:
        if not path.exists():
            _make(path)
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LocalKeyError(f"the access key of this user cannot be kept in {path}: {error.strerror}") from error
    except ValueError as error:  # not the text itself, which holds a secret
        raise LocalKeyError(f"{path} is no TOML: delete it, and a new access key is made") from error
    key = {name: content.get(name) for name in ("access_key_id", "access_key_secret")}
    if not all(isinstance(value, str) and value for value in key.values()):
        raise LocalKeyError(f"{path} has no access_key_id and access_key_secret: delete it, and a new one is made")
    return {name: str(value) for name, value in key.items()}


def _make(path: Path) -> None:
    """Write a new key; of several processes that do so at once, the first one's stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", user_name())
    text = f'{_ABOUT}access_key_id = "local-{name}"\naccess_key_secret = "{secrets.token_hex(24)}"\n'
    # Its mode is 0600, and it appears whole.
    descriptor, written = tempfile.mkstemp(dir=path.parent, prefix="local.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(written, path)
    finally:
        Path(written).unlink()
