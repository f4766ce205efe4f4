"""Takes the pictures of docs/dashboard.md: ``python -m tests.browser.screenshots``. Look at them afterwards."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import Tab, chromium
from tests.browser.example import Traffic, config
from tests.e2e.daemon import ROOT, Daemon

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/dashboard"
SUFFIX = sys.argv[2] if len(sys.argv) > 2 else "webp"
TRAFFIC_SECS = 75
"""More than the minute that is shown."""
DESKTOP, PHONE = (1280, 1120), (390, 844)


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        daemon = Daemon.start(folder, config(folder, workers=2))
        try:
            with Traffic(daemon):
                async with chromium(folder / "profile") as tab:
                    await tab.resize(*DESKTOP)
                    await tab.open(f"{daemon.admin}/#?range=1m")
                    await asyncio.sleep(TRAFFIC_SECS)
                    await _take(tab)
        finally:
            daemon.kill()


_PAINT = """(async () => {
    const canvas = new OffscreenCanvas(64, 64), context = canvas.getContext("2d");
    const colours = context.createRadialGradient(32, 32, 4, 32, 32, 44);
    colours.addColorStop(0, "#ffd34d");
    colours.addColorStop(1, "#1f51c9");
    context.fillStyle = colours;
    context.fillRect(0, 0, 64, 64);
    const files = new DataTransfer();
    files.items.add(new File([await canvas.convertToBlob()], "sun.png", { type: "image/png" }));
    const kind = document.querySelector("#trial .inputs select");
    kind.value = "image";
    kind.dispatchEvent(new Event("change"));
    document.querySelector("#trial input[type=file]").files = files.files;
    document.querySelector("#trial form").requestSubmit();
})()"""


async def _fill(tab: Tab) -> None:
    """Send an image by the form."""
    await tab.run(
        "(() => { const i = document.querySelector('#trial-model'); i.value = 'painter';"
        "i.dispatchEvent(new Event('change')); })()"
    )
    await tab.until("document.querySelector('#trial .primary').disabled === false")
    await tab.run(_PAINT)
    await tab.until("document.querySelector('#trial canvas.picture') !== null")
    await tab.run("document.querySelectorAll('#trial details')[2].open = true")
    await tab.run("document.getElementById('trial').scrollIntoView({behavior: 'instant'})")
    await asyncio.sleep(1)


async def _take(tab: Tab) -> None:
    for scheme in ("light", "dark"):
        await tab.prefer(scheme)
        for name, (width, height), phone in (("desktop", DESKTOP, False), ("phone", PHONE, True)):
            await tab.resize(width, height, phone, 2 if phone else 1.25)
            await tab.run("scrollTo({top: 0, behavior: 'instant'})")
            await asyncio.sleep(3)
            # there are lulls
            await tab.until("document.querySelector('#numbers dd').textContent", lambda rate: len(rate) > 1)
            await tab.screenshot(FOLDER / f"{name}-{scheme}.{SUFFIX}")
    await tab.resize(*DESKTOP, scale=1.25)
    await tab.prefer("light")
    for section in ("models", "mirrors"):
        await tab.run(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
        await tab.run(
            "document.querySelectorAll('#mirrors details').forEach((each) => { each.open = true; })"
        )
        await asyncio.sleep(2)
        await tab.screenshot(FOLDER / f"{section}.{SUFFIX}")
    await _fill(tab)
    await tab.screenshot(FOLDER / f"form.{SUFFIX}")
    for path in sorted(FOLDER.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    asyncio.run(main())
