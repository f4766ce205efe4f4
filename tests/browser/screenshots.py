"""Takes the pictures of docs/dashboard.md: ``python -m tests.browser.screenshots``. Look at them afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.browser.chromium import Tab, chromium
from tests.browser.example import Traffic, config
from tests.e2e.daemon import ROOT, Daemon

FOLDER = ROOT / "docs/dashboard"
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


async def _take(tab: Tab) -> None:
    for scheme in ("light", "dark"):
        await tab.prefer(scheme)
        for name, (width, height), phone in (("desktop", DESKTOP, False), ("phone", PHONE, True)):
            await tab.resize(width, height, phone, 2 if phone else 1.25)
            await tab.run("scrollTo({top: 0, behavior: 'instant'})")
            await asyncio.sleep(3)
            await tab.screenshot(FOLDER / f"{name}-{scheme}.webp")
    await tab.resize(*DESKTOP, scale=1.25)
    await tab.prefer("light")
    for section in ("models", "mirrors"):
        await tab.run(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
        await asyncio.sleep(2)
        await tab.screenshot(FOLDER / f"{section}.webp")
    for path in sorted(FOLDER.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    asyncio.run(main())
