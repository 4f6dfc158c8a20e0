"""The access key of the user's own embedded LogHub, in a file that other users cannot read.

It is generated at first use. ``producer serve`` takes it by default, and the profile ``local`` signs with it. So no
command writes into the server of another user. The file is ``local.toml`` beside ``config.toml``.
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
    """Raised when the key can be neither read nor stored."""


def local_key(folder: Path | None) -> dict[str, str]:
    """Return the key as settings of a profile, and generate it at first use.

    :param folder: the folder of the user's configuration; None if there is no home directory.
    :raises LocalKeyError: the file cannot be used.
    """
    if folder is None:
        raise LocalKeyError("there is no home directory for an access key: set HOME or XDG_CONFIG_HOME")
    path = folder / "local.toml"
    try:
        if not path.exists():
            _make(path)
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LocalKeyError(f"cannot store the access key of this user in {path}: {error.strerror}") from error
    except ValueError as error:  # its text may hold the secret: do not show it
        raise LocalKeyError(f"{path} is not valid TOML: delete it to get a new access key") from error
    key = {name: content.get(name) for name in ("access_key_id", "access_key_secret")}
    if not all(isinstance(value, str) and value for value in key.values()):
        raise LocalKeyError(f"{path} has no access_key_id and access_key_secret: delete it to get a new access key")
    return {name: str(value) for name, value in key.items()}


def _make(path: Path) -> None:
    """Write a new key. If several processes do so at once, the first one's key stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", user_name())
    text = f'{_ABOUT}access_key_id = "local-{name}"\naccess_key_secret = "{secrets.token_hex(24)}"\n'
    # The link makes the complete file appear at once, with mode 0600.
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
