"""A real Chromium without a screen, driven over its own protocol (Chrome DevTools Protocol), which takes a
WebSocket and no driver program."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_SECS = 60.0

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
    # no traffic leaves this machine
    "--proxy-server=127.0.0.1:9",
    "--proxy-bypass-list=127.0.0.1",
)


class Tab:
    """A tab. ``requests`` has the URLs that it has requested, ``problems`` what its console reports as errors:
    exceptions of scripts, and what a content security policy has blocked."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())
        self.requests: list[str] = []
        self.problems: list[str] = []

    async def _read(self) -> None:
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                future = self._waiting.pop(found["id"])
                if not future.done():
                    future.set_result(found)
            elif found["method"] == "Network.requestWillBeSent":
                self.requests.append(found["params"]["request"]["url"])
            elif found["method"] == "Runtime.exceptionThrown":
                self.problems.append(str(found["params"]["exceptionDetails"]))
            elif found["method"] == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
                self.problems.append(str(found["params"]["entry"]["text"]))

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(WAIT_SECS):
            reply = await future
        assert "error" not in reply, (method, reply)
        return reply["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str, true: Callable[[Any], object] = bool) -> Any:
        """Wait until ``true`` holds for the value of an expression; that value."""
        deadline = time.monotonic() + WAIT_SECS
        while not true(value := await self.run(script)):
            assert time.monotonic() < deadline, (script, value, self.problems)
            await asyncio.sleep(0.05)
        return value

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState", lambda state: state == "complete")

    async def resize(self, width: int, height: int, phone: bool = False, scale: float = 1) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )

    async def prefer(self, scheme: str) -> None:
        """Have the system prefer ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str) -> None:
        """Press and release a key, such as ``Tab`` or ``Enter``."""
        text = {"Enter": "\r"}.get(key, "")
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "text": text}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def type(self, selector: str, text: str) -> None:
        """Type ``text`` into an element."""
        await self.run(f"document.querySelector({selector!r}).focus()")
        await self.call("Input.insertText", text=text)

    async def hover(self, selector: str) -> None:
        """Move the pointer to the middle of an element."""
        script = (
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        x, y = await self.run(script)
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def screenshot(self, path: Path, clip: dict[str, float] | None = None) -> None:
        """What is visible, or ``clip``, as WebP or PNG by the suffix of ``path``."""
        suffix = path.suffix.removeprefix(".")
        more: dict[str, Any] = {"quality": 82} if suffix == "webp" else {}
        if clip is not None:
            more |= {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True}
        found = await self.call("Page.captureScreenshot", format=suffix, **more)
        path.write_bytes(base64.b64decode(found["data"]))

    async def close(self) -> None:
        await self._socket.close()
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a new Chromium whose profile is in ``folder``."""
    assert PATH is not None
    process = subprocess.Popen(
        [PATH, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = await _port(folder, process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [each for each in await answer.json() if each["type"] == "page"]
            url = pages[0]["webSocketDebuggerUrl"]
            async with session.ws_connect(url, max_msg_size=0) as socket:
                tab = Tab(socket)
                try:
                    yield tab
                finally:
                    await tab.close()
    finally:
        process.kill()
        process.wait()


async def _port(folder: Path, process: subprocess.Popen[bytes]) -> int:
    """The port of the protocol, which Chromium writes to a file."""
    path, deadline = folder / "DevToolsActivePort", time.monotonic() + WAIT_SECS
    while True:
        if path.exists() and (lines := path.read_text().splitlines()):
            return int(lines[0])
        assert process.poll() is None, "chromium has exited"
        assert time.monotonic() < deadline, "chromium did not start"
        await asyncio.sleep(0.05)
