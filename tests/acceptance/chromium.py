"""What a browser makes of a page."""

import html
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

CHROMIUM = shutil.which("chromium")


def rendered(page: Path, profile: Path) -> str:
    """Return the document after its scripts ran, as headless Chromium dumps it."""
    dumped = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        timeout=240,
        check=True,
    )
    return dumped.stdout.decode("utf-8", "replace")


class Document(HTMLParser):
    """A document's scripts (less blocks of data), handlers, root attributes and text."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root: dict[str, str | None] = {}
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        """Values of all on... attributes."""
        self.text = ""
        self._inside = ""
        self._data = False
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag == "html":
            self.root = dict(attrs)
        if tag in {"script", "style"}:
            self._inside = tag
        if tag == "script":
            self._data = "json" in (dict(attrs).get("type") or "")
            if not self._data:
                self.scripts.append("")
        self.handlers += [value or "" for name, value in attrs if name.startswith("on")]

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            if not self._data:
                self.scripts[-1] += data
        elif not self._inside:
            self.text += data


def unescaped(source: str, text: str) -> str:
    """Return a page in which `text` is not escaped: what a careless report would be."""
    careless = source
    for quote in (True, False):
        careless = careless.replace(html.escape(text, quote=quote), text)
    return careless.replace(
        html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"), text
    )
