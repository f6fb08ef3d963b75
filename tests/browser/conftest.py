"""A headless Chromium, spoken to through a pipe in its own protocol; tests are skipped where there is none."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FOUND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if FOUND is None:
                item.add_marker(pytest.mark.skip(reason="needs Chromium"))


@dataclass
class Seen:
    """What a page did: addresses asked for, complaints on the console, its width beyond the window."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    overflow: int = 0


class Browser:
    """One tab. Messages are JSON, ended by a zero byte, on file descriptors 3 and 4 of the browser."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def place() -> None:
            # First out of the way: one of them may be 3 or 4.
            kept = [os.dup2(end, 60 + i) for i, end in enumerate((theirs_in, theirs_out))]
            for number, end in zip((3, 4), kept, strict=True):
                os.dup2(end, number)

        self._process = subprocess.Popen(
            [
                str(FOUND), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=place,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._rest, self._events = 0, b"", []  # type: ignore[var-annotated]
        self._session: str | None = None
        page = next(x for x in self.call("Target.getTargets")["targetInfos"] if x["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def open(self, address: str, width: int, height: int = 800) -> Seen:
        """Load a page, wait until it is still, and look."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._events.clear()
        self.call("Page.navigate", url=address)
        self._until("Page.loadEventFired")
        time.sleep(0.3)
        inner = "document.documentElement.scrollWidth - window.innerWidth"
        found = self.call("Runtime.evaluate", expression=inner)["result"]["value"]
        seen = Seen(overflow=int(found))
        for event in self._events:
            self._note(seen, event["method"], event["params"])
        return seen

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            got = self._read()
            if got.get("id") == self._number:
                assert "error" not in got, got
                result: dict[str, Any] = got["result"]
                return result
            self._events.append(got)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._in)
        os.close(self._out)

    def _note(self, seen: Seen, method: str, of: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent" and not of["request"]["url"].startswith("data:"):
            seen.requests.append(of["request"]["url"])
        if method == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
            seen.complaints.append(of["entry"]["text"])
        if method == "Runtime.consoleAPICalled" and of["type"] in ("error", "assert"):
            seen.complaints.append(str(of["args"]))
        if method == "Runtime.exceptionThrown":
            seen.complaints.append(str(of["exceptionDetails"]))

    def _until(self, method: str) -> None:
        while not any(event["method"] == method for event in self._events):
            self._events.append(self._read())

    def _read(self, seconds: float = 120.0) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], seconds)
            chunk = os.read(self._in, 1 << 16) if ready else b""
            assert chunk, "the browser says nothing"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        got: dict[str, Any] = json.loads(message)
        return got


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
