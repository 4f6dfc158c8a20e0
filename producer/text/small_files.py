"""Small files whose content is a value, such as a secret."""

from __future__ import annotations

from pathlib import Path

from .plural import counted


def read_text(path: Path, most: int) -> str:
    """Return the text of a file.

    :param most: the limit of its size, bytes.
    :raises ValueError: it cannot be read, is larger, or is not UTF-8; the message has none of its content.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"{path} has more than {counted(most, 'byte')}")
        return content.decode()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:  # its message has a part of the content
        raise ValueError(f"{path} is not UTF-8 text") from None
