"""A real browser for tests: Chromium from the PATH, or from the npm package that carries one.

with open_page(html_file.as_uri(), dark=True, width=390) as seen:
    assert seen.problems == []
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import brotli
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.jars import cache_folder, machine_lock

_PACKAGE = "@sparticuz/chromium@147.0.0"
_ON_PATH = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FONTS = (
    '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
    "<dir>{folder}/fonts/fonts</dir><cachedir>{folder}/font-cache</cachedir></fontconfig>"
)


class NoBrowserError(RuntimeError):
    """No browser can be had here; the text is the reason, for the summary of the suite."""


@dataclass(frozen=True)
class Chromium:
    """An executable, and the environment that it needs."""

    path: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class SeenPage:
    """An open page, and everything that went wrong on it."""

    page: Page
    problems: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@cache
def find_chromium() -> Chromium:
    """Return a browser; raise NoBrowserError with the reason where there is none."""
    for name in _ON_PATH:
        if path := shutil.which(name):
            return Chromium(path)
    folder = cache_folder() / "chromium-147.0.0"
    with machine_lock("chromium"):
        if not (folder / "chromium").is_file():
            _unpack(_fetch(), folder)
    libraries = folder / "al2023" / "lib"
    return Chromium(
        str(folder / "chromium"),
        {"LD_LIBRARY_PATH": str(libraries), "FONTCONFIG_PATH": str(folder / "fonts"), "HOME": str(folder)},
    )


def _fetch() -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise NoBrowserError("no Chromium on the PATH, and no npm to fetch one")
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", _PACKAGE, "--silent"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=240, check=False)
        packed = list(Path(scratch).glob("*.tgz"))
        if done.returncode or not packed:
            raise NoBrowserError(f"npm pack {_PACKAGE} failed: {done.stderr.strip()[-300:]}")
        return packed[0].read_bytes()


def _unpack(packed: bytes, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        with tarfile.open(fileobj=io.BytesIO(packed)) as package:
            for member in package.getmembers():
                name = Path(member.name).name
                content = package.extractfile(member)
                if content is None or not member.name.startswith("package/bin/") or not name.endswith(".br"):
                    continue
                plain = brotli.decompress(content.read())
                if name.endswith(".tar.br"):
                    target = made / name.removesuffix(".tar.br")
                    with tarfile.open(fileobj=io.BytesIO(plain)) as inner:
                        inner.extractall(target, filter="data")
                else:
                    (made / name.removesuffix(".br")).write_bytes(plain)
        (made / "chromium").chmod(0o755)
        # The package expects its fonts in folders of another system.
        (made / "fonts" / "fonts.conf").write_text(_FONTS.format(folder=folder))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(made, folder)


@contextlib.contextmanager
def launch_browser() -> Iterator[Browser]:
    """A headless browser for several pages."""
    found = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.path,
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            env=found.environment or None,
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def open_page(
    browser: Browser, url: str, *, dark: bool = False, width: int = 1280, pictures: Path | None = None
) -> Iterator[SeenPage]:
    """A page in a context of its own; collects console errors, failed requests, and hosts that it asked.

    A failed assertion leaves a picture of the page in `pictures`.
    """
    settings: dict[str, Any] = {
        "viewport": {"width": width, "height": 900},
        "color_scheme": "dark" if dark else "light",
        "reduced_motion": "reduce",
    }
    context = browser.new_context(**settings)
    seen = SeenPage(context.new_page())
    page = seen.page
    page.on("console", lambda message: _note(seen, message.type == "error", f"console: {message.text}"))
    page.on("pageerror", lambda error: seen.problems.append(f"error: {error}"))
    page.on("requestfailed", lambda request: seen.problems.append(f"failed: {request.url} {request.failure}"))
    page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
    try:
        page.goto(url, wait_until="load")
        yield seen
    except AssertionError:
        if pictures is not None:
            page.screenshot(path=pictures / f"{'dark' if dark else 'light'}-{width}.png", full_page=True)
        raise
    finally:
        context.close()


def _note(seen: SeenPage, is_problem: bool, text: str) -> None:
    if is_problem:
        seen.problems.append(text)
