"""A headless browser for tests of pages, driven by WebDriver's protocol."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.waiting import until

_START_SECONDS = 90
_KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Space": " "}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# A page that draws itself may answer like this for a moment.
_PASSING = ("stale element reference", "no such element", "element click intercepted")
_OPTIONS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._at = f"{driver}/session/{session}"

    def open(self, url: str) -> None:
        _ask("POST", f"{self._at}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Return what a script returns."""
        body = {"script": script, "args": list(arguments)}
        return _ask("POST", f"{self._at}/execute/sync", body)

    def text(self, css: str = "body") -> str:
        """Return the visible text of the first matching element; empty: there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def click(self, css: str) -> None:
        """Click the first matching element, once it is there; a page may draw itself anew."""
        until(lambda: self._clicked(css), within=20, what=f"{css} is there for a click")

    def _clicked(self, css: str) -> bool:
        try:
            _ask("POST", f"{self._at}/element/{self._find(css)}/click", {})
        except AssertionError as error:
            if any(passing in str(error) for passing in _PASSING):
                return False
            raise
        return True

    def type(self, css: str, text: str) -> None:
        element = self._find(css)
        _ask("POST", f"{self._at}/element/{element}/clear", {})
        _ask("POST", f"{self._at}/element/{element}/value", {"text": text})

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(_ask("GET", f"{self._at}/screenshot")))

    def dark(self) -> None:
        """Show pages like a browser that prefers a dark theme."""
        self.prefer(scheme="dark")

    def prefer(self, *, scheme: str = "light", motion: str = "no-preference") -> None:
        """Show pages like a browser that prefers a colour scheme, and motion or `reduce`."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self._command("Emulation.setEmulatedMedia", {"features": features})

    def resize(self, width: int, height: int) -> None:
        """Show pages on a screen of that size, which may be narrower than a window can be."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", size)

    def press(self, *keys: str) -> None:
        """Press keys one after the other: letters, or those that WebDriver has a name for."""
        pressed = [
            {"type": kind, "value": _KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        body = {"actions": [{"type": "key", "id": "keyboard", "actions": pressed}]}
        _ask("POST", f"{self._at}/actions", body)

    def back(self) -> None:
        _ask("POST", f"{self._at}/back", {})

    def forward(self) -> None:
        _ask("POST", f"{self._at}/forward", {})

    def _command(self, name: str, parameters: Mapping[str, object]) -> None:
        _ask("POST", f"{self._at}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def close(self) -> None:
        _ask("DELETE", self._at)

    def _find(self, css: str) -> str:
        found = _ask("POST", f"{self._at}/element", {"using": "css selector", "value": css})
        return str(found[_ELEMENT])


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """Yield a window; skip the test if there is no Chromium with its driver."""
    driver = shutil.which("chromedriver")
    if driver is None:
        pytest.skip("there is no chromedriver: install chromium-driver, or chromium's own")
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        at = f"http://127.0.0.1:{_port(process.stdout)}"
        options = {"args": [*_OPTIONS, f"--window-size={width},{height}"]}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        made = _ask("POST", f"{at}/session", {"capabilities": wanted})
        window = Browser(at, made["sessionId"])
        try:
            yield window
        finally:
            window.close()
    finally:
        process.terminate()
        process.wait(_START_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def _port(lines: Iterator[str]) -> int:
    for line in lines:
        if found := re.search(r"started successfully on port (\d+)", line):
            return int(found[1])
    pytest.fail("chromedriver did not start")


def _ask(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(url, data, headers, method=method)  # noqa: S310  # the driver
    try:
        with urlopen(request, timeout=_START_SECONDS) as answer:  # noqa: S310  # the driver
            return json.load(answer)["value"]
    except HTTPError as error:
        with error:
            said = error.read().decode()
        msg = f"{method} {url}: {said}"
        raise AssertionError(msg) from None
