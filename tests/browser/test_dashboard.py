"""The dashboard in a real Chromium."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from interlingua.translator.dashboard.assets import PAGES
from tests.browser.chromium import PATH, Tab, chromium
from tests.browser.example import HOSTILE, Traffic, config
from tests.e2e.daemon import ROOT, Daemon

pytestmark = [pytest.mark.browser, pytest.mark.skipif(PATH is None, reason="chromium is not installed")]

AXE = (ROOT / "third_party/axe-core/axe.min.js").read_text()
MODELS = 1000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("browser")
    found = Daemon.start(folder, config(folder, models=MODELS))
    try:
        with Traffic(found):
            yield found
    finally:
        found.kill()


@pytest.fixture
async def tab(daemon: Daemon, tmp_path: Path) -> AsyncIterator[Tab]:
    """A tab with the dashboard, which has received everything."""
    async with chromium(tmp_path / "profile") as found:
        await found.resize(1280, 900)
        await found.open(f"{daemon.admin}/#?range=1m")
        await shown(found)
        yield found
        assert found.problems == []
        assert {url for url in found.requests if not url.startswith(f"{daemon.admin}/")} == set()


async def shown(tab: Tab) -> None:
    await tab.until("document.querySelectorAll('#models tbody tr').length > 0")
    await tab.until("document.querySelectorAll('#flow button').length > 3")
    await tab.until("document.querySelectorAll('.plot canvas').length === 3")


def text(selector: str) -> str:
    return f"document.querySelector({selector!r}).textContent"


def texts(selector: str) -> str:
    return f"[...document.querySelectorAll({selector!r})].map((each) => each.textContent)"


async def test_everything_is_there_and_small(tab: Tab, daemon: Daemon) -> None:
    size = sum(len(requests.get(f"{daemon.admin}{path}", timeout=60).content) for path in PAGES)
    assert size < 250_000
    assert await tab.run("document.title") == "edge-1: Degraded"
    titles = await tab.run(texts("h2"))
    assert {"Traffic", "Models", "Upstreams", "Routes", "Listeners", "Mirrors", "Last errors"} <= set(titles)
    assert await tab.run(texts("#listeners tbody tr td:nth-child(3)")) == [
        *("oip", "graphpipe", "trtis", "grps"),
        *("oip", "trtis", "grps"),
    ]


async def test_the_page_runs_no_script_of_others(tab: Tab) -> None:
    await tab.type("#models input", HOSTILE)
    assert await tab.until(texts("#models tbody th"), lambda found: len(found) == 1) == [HOSTILE]
    assert HOSTILE in await tab.until(texts("#flow button span"), lambda found: HOSTILE in found)
    assert await tab.run("document.querySelectorAll('main img').length") == 0
    inserted = "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
    assert await tab.run(f"{inserted} document.body.append(s); return window.ran ?? 0; }})()") == 0
    # the policy has blocked it, and says so
    await tab.until("1", lambda _: tab.problems)
    assert all("Content Security Policy" in each for each in tab.problems)
    tab.problems.clear()


async def test_numbers_and_plots_are_live(tab: Tab) -> None:
    assert await tab.run(text("#connection")) == "Live"
    first = int((await tab.run(text("#listeners tbody td.number"))).replace(",", ""))
    await tab.until(text("#listeners tbody td.number"), lambda now: int(now.replace(",", "")) > first)
    await tab.until(text("#numbers dd"), lambda rate: rate not in ("\u2013", "0"))
    units = await tab.run(texts("#plot-latency figcaption small"))
    assert units[0].endswith("milliseconds")
    assert (await tab.run("document.querySelector('#plot-requests .plot').ariaLabel")).startswith("Requests:")
    # values under the pointer, in all plots
    await tab.until("document.querySelectorAll('#flow button').length", lambda count: count > 3)
    await tab.until(
        text("#plot-requests figcaption small"), lambda note: note and not note.startswith("Requests: max 0 ")
    )
    box = await tab.run(
        "(() => { const e = document.querySelector('#plot-requests .u-over');"
        "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
        "return [b.right - 4, b.top + b.height / 2]; })()"
    )
    await tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    for plot in ("#plot-requests", "#plot-latency", "#plot-waiting"):
        await tab.until(text(f"{plot} .u-legend .u-value"), lambda value: ":" in value)


async def test_the_flow_selects_what_the_plots_show(tab: Tab) -> None:
    node = "[data-node='model/detector']"
    await tab.run(f'document.querySelector("{node}").click()')
    assert await tab.until(texts("#filters button"), bool) == ["Model: detector ✕"]
    assert await tab.until(f'document.querySelector("{node}").ariaPressed') == "true"
    assert await tab.run("location.hash") == "#?range=1m&model=detector"
    # only its ways stay in the other columns
    assert await tab.until(texts("[data-node^='route/'] span"), lambda found: len(found) == 1) == ["Route 2"]
    # by the keyboard, too
    await tab.run("document.querySelector('#filters button').focus()")
    await tab.press("Enter")
    await tab.until("document.querySelectorAll('#filters button').length === 0")
    await tab.run(f'document.querySelector("{node}").focus()')
    await tab.press("Enter")
    await tab.until(texts("#filters button"), bool)
    # it stays focused while events come
    await tab.run("(window.before = document.activeElement, null)")
    await tab.until("!window.before.isConnected")
    assert await tab.run("document.activeElement.dataset.node") == "model/detector"


async def test_the_address_has_the_selection(tab: Tab, daemon: Daemon) -> None:
    await tab.run(
        "(() => { const s = document.querySelector('#range'); s.value = '24h';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    await tab.until("location.hash", lambda found: found == "#?range=24h")
    await tab.call("Page.reload")
    await shown(tab)
    assert await tab.run("document.querySelector('#range').value") == "24h"
    assert f"{daemon.admin}/events?range=24h" in tab.requests


async def test_the_address_selects_what_there_is(tab: Tab, daemon: Daemon) -> None:
    await tab.run("(() => { location.hash = '#?range=bogus&colour=red&model=ranker'; })()")
    assert await tab.until(texts("#filters button"), bool) == ["Model: ranker ✕"]
    await tab.until("1", lambda _: f"{daemon.admin}/events?model=ranker" in tab.requests)
    assert await tab.run("document.querySelector('#range').value") == "10m"


async def test_a_thousand_models_sort_and_filter(tab: Tab) -> None:
    total = MODELS + 6
    assert await tab.run(text("#models .tools p")) == f"{total:,} of {total:,}"
    assert len(await tab.run(texts("#models tbody tr"))) == 100
    await tab.type("#models input", "model-0042")
    assert await tab.until(texts("#models tbody th"), lambda found: len(found) == 1) == ["model-0042"]
    await tab.run("(() => { const i = document.querySelector('#models input'); i.value = '';"
                  "i.dispatchEvent(new Event('input')); })()")  # fmt: skip
    requests_column = (
        "[...document.querySelectorAll('#models thead button')].find((e) => e.textContent === 'Requests')"
    )
    await tab.run(f"{requests_column}.click()")
    assert await tab.run(f"{requests_column}.closest('th').ariaSort") == "descending"
    busiest = await tab.until(text("#models tbody th"), lambda name: name == "ranker")
    assert busiest == "ranker"
    # unchanged rows stay in the document, so that a selection survives
    await tab.run("window.row = document.querySelectorAll('#models tbody tr')[50]")
    ranked = text("#models tbody td:nth-child(5)")
    before = await tab.run(ranked)
    await tab.until(ranked, lambda now: now != before)
    assert await tab.run("window.row.isConnected")


async def test_tables_forget_rows_that_are_gone(tab: Tab) -> None:
    script = (
        "import('./dashboard/table.js').then(({ Table }) => {"
        "const table = new Table('errors', [{ name: 'Name', value: (row) => row.name }], { key: (row) => row.name });"
        "for (const name of ['a', 'b', 'c']) table.show([{ name }, { name: 'kept' }]);"
        "return [...table.known.keys()].sort(); })"
    )
    assert await tab.run(script) == ["c", "kept"]


async def test_degraded_is_amber_and_says_why(tab: Tab) -> None:
    assert await tab.run(text("#condition")) == "Degraded"
    assert await tab.run("document.querySelector('#condition').className") == "pill warn"
    reasons = await tab.until(text("#reasons"), lambda found: "ejected" in found)
    assert "server 127.0.0.1:9 is ejected" in reasons
    states = await tab.run(texts("#upstreams tbody .state"))
    assert {"ejected", "in use"} <= set(states)


async def test_the_last_errors_have_their_trace(tab: Tab) -> None:
    rows = await tab.until(
        texts("#errors tbody tr"), lambda found: any("NOT_FOUND" in each for each in found)
    )
    failed = next(each for each in rows if "NOT_FOUND" in each)
    assert "unknown model: 'absent'" in failed
    assert "4bf92f3577b34da6a3ce929d0e0e4736" in failed
    assert len(rows) <= 10


async def test_mirrors_have_a_histogram_and_examples_with_both_answers(tab: Tab) -> None:
    await tab.until("document.querySelectorAll('#mirrors .bars li').length > 2")
    assert await tab.run(text("#mirrors h3")) == "vision \u2192 detector-fp16, 100 %"
    cells = await tab.run(texts("#mirrors .answers tbody tr > *"))
    assert cells[0] == "y" and float(cells[2]) == pytest.approx(float(cells[3]), rel=1e-2)
    assert cells[2] != cells[3]
    # both answers as a whole, and they stay open while new reports come
    await tab.run("document.querySelector('#mirrors details').open = true")
    rows = await tab.until(texts("#mirrors .both tbody tr > *"), bool)
    assert len(rows) in (6, 12, 18) and rows[0] == "0"
    assert await tab.run("document.querySelectorAll('#mirrors .both tr.bad').length") > 0
    await tab.run("(window.before = document.querySelector('#mirrors details'), null)")
    await tab.until("!window.before.isConnected")
    await tab.until("document.querySelector('#mirrors details').open")
    await tab.until(texts("#mirrors .both tbody tr > *"), bool)


async def test_the_configuration_that_runs_against_the_file(tab: Tab, daemon: Daemon) -> None:
    await tab.run("document.querySelector('#configuration').scrollIntoView({behavior: 'instant'})")
    await tab.until(text("#configuration [role=status]"), lambda found: found.startswith("Loaded from"))
    path = Path(daemon.process.args[-1])  # type: ignore[index]
    before = path.read_text()
    try:
        path.write_text(before.replace("edge-1", "edge-2"))
        await tab.run("document.querySelector('#configuration .button').click()")
        found = await tab.until(texts("#configuration tbody tr > *"), lambda cells: len(cells) == 3)
        assert found == ["server.name", "edge-1", "edge-2"]
    finally:
        path.write_text(before)


async def chosen(tab: Tab, model: str) -> None:
    await tab.run(
        f"(() => {{ const i = document.querySelector('#trial-model'); i.value = {model!r};"
        "i.dispatchEvent(new Event('change')); })()"
    )
    await tab.until("document.querySelector('#trial .primary').disabled === false")


async def test_the_form_sends_numbers_in_any_dialect(tab: Tab) -> None:
    options = await tab.run(texts("#trial-listener option"))
    assert len(options) == 7
    for place, dialect in enumerate(("oip", "graphpipe")):
        assert options[place].startswith(f"{dialect} over http, 127.0.0.1:")
    grpc = next(place for place, option in enumerate(options) if option.startswith("trtis over grpc"))
    await tab.run(f"document.querySelector('#trial-listener').selectedIndex = {grpc}")
    await chosen(tab, "ranker")
    area = "document.querySelector('#trial textarea')"
    assert await tab.run(f"{area}.value") == "[[0,0]]"
    await tab.run(f"{area}.value = '[[1, 2.5]]'")
    await tab.run("document.querySelector('#trial form').requestSubmit()")
    status = await tab.until(text("#trial [role=status]"), lambda found: "ms" in found)
    assert status.startswith("Answered in ") and "by ranker" in status
    assert (await tab.run(text("#trial .result pre"))).split() == ["1", "2.5"]
    assert await tab.run(texts("#trial summary")) == ["curl", "Python", "interlingua infer"]
    await tab.run(f"{area}.value = '[[1, 2, 3]]'")
    await tab.run("document.querySelector('#trial form').requestSubmit()")
    await tab.until(text("#trial [role=status]"), lambda found: found.startswith("INVALID_TENSOR"))


async def test_the_form_rounds_nothing(tab: Tab) -> None:
    shows = (
        "import('./dashboard/answer.js').then((found) => found.answer({{ name: 'y', datatype: '{}', shape: [{}],"
        "elements: {}, data: {} }}).querySelector('pre').textContent.split('  '))"
    )
    third = 0.3333333432674408  # the nearest FP32
    assert await tab.run(shows.format("FP32", 2, 2, [third, 1234.5])) == ["0.33333334", "1234.5"]
    assert await tab.run(shows.format("FP64", 2, 2, [third, 1e-9])) == [str(third), "1e-9"]
    assert await tab.run(shows.format("INT64", 2, 2, ["9007199254740993", -7])) == ["9007199254740993", "-7"]
    assert await tab.run(shows.format("BYTES", 2, 2, ["7", ""])) == ['"7"', '""']
    for datatype in ("FP32", "FP64"):
        assert await tab.run(shows.format(datatype, 2, 2, [-0.0, 0.0])) == ["-0", "0"]
    sends = (
        "import('./dashboard/input.js').then((found) => { const field = new found.InputField({ name: 'x',"
        "datatype: 'INT64', shape: [1] }); field.area.value = '[9007199254740993]'; return field.value(); })"
    )
    assert await tab.run(sends) == {"name": "x", "text": "[9007199254740993]"}


async def test_the_highest_classes_are_bars(tab: Tab) -> None:
    scores = [0.0, 0.5, -0.25, 0.25, *[0.01] * 20]
    shows = (
        f"import('./dashboard/answer.js').then((found) => {{ const shown = found.answer({{ name: 'p', datatype: 'FP32',"
        f"shape: [1, 24], elements: 24, data: {scores} }}); document.querySelector('#trial .result').append(shown);"
        "return [shown.querySelector('select').value, [...shown.querySelectorAll('li')].map((each) => ["
        "each.querySelector('b').textContent, each.querySelector('.value').textContent,"
        "each.querySelector('i').getBoundingClientRect().width]), shown.querySelector('li span').clientWidth]; })"
    )
    view, bars, whole = await tab.run(shows)
    assert view == "classes" and len(bars) == 10
    assert [bar[:2] for bar in bars[:3]] == [["class 1", "0.50"], ["class 3", "0.25"], ["class 4", "0.01"]]
    # the highest one is the whole width, others in proportion
    widths = [bar[2] for bar in bars]
    assert widths[0] == pytest.approx(whole, abs=1) and widths[1] == pytest.approx(whole / 2, abs=1)


async def test_the_form_sends_images_and_shows_pictures(tab: Tab) -> None:
    await chosen(tab, "painter")
    await tab.run(
        """(async () => {
            const canvas = new OffscreenCanvas(64, 64), context = canvas.getContext("2d");
            context.fillStyle = "#ff0000";
            context.fillRect(0, 0, 64, 64);
            context.fillStyle = "#0000ff";
            context.fillRect(0, 0, 32, 64);
            const files = new DataTransfer();
            files.items.add(new File([await canvas.convertToBlob()], "a.png", { type: "image/png" }));
            const kind = document.querySelector("#trial .inputs select");
            kind.value = "image";
            kind.dispatchEvent(new Event("change"));
            document.querySelector("#trial input[type=file]").files = files.files;
            document.querySelector("#trial form").requestSubmit();
        })()"""
    )
    await tab.until("document.querySelector('#trial canvas.picture') !== null")
    pixels = "[...document.querySelector('#trial canvas.picture').getContext('2d').getImageData({}, 16, 1, 1).data]"
    assert await tab.run(pixels.format(4)) == [0, 0, 255, 255]
    assert await tab.run(pixels.format(28)) == [255, 0, 0, 255]
    names = await tab.run("[...document.querySelectorAll('#trial a[download]')].map((each) => each.download)")
    assert names == ["request.bin", "image.npy"]


async def test_an_older_description_does_not_replace_a_newer_choice(tab: Tab) -> None:
    await tab.run(
        """(() => {
            const real = window.fetch;
            const pick = (name) => {
                const input = document.querySelector("#trial-model");
                input.value = name;
                input.dispatchEvent(new Event("change"));
            };
            // the first answer waits until the test lets it go
            window.fetch = async (...call) => {
                window.fetch = real;
                const text = await (await real(...call)).text();
                await new Promise((resolve) => { window.release = resolve; });
                return new Response(text);
            };
            pick("painter");
            pick("ranker");
        })()"""
    )
    await tab.until("document.querySelector('#trial .primary').disabled === false")
    await tab.until("typeof window.release === 'function'")
    await tab.run("(window.release(), new Promise((resolve) => setTimeout(resolve, 300)))")
    assert (await tab.run(texts("#trial .inputs label")))[0].startswith("x FP32")
    assert await tab.run(text("#trial [role=status]")) == ""


SNIPPETS = "{ curl: 'curl http://h', python: 'p', infer: 'i', file: 'QUJD' }"


async def test_programs_are_copied_over_plain_http_too(tab: Tab) -> None:
    # a tab in the background copies nothing; only pages over TLS and of this machine have navigator.clipboard
    await tab.call("Page.bringToFront")
    await tab.run(
        "import('./dashboard/answer.js').then(({ programs }) => {"
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "document.addEventListener('copy', () => { window.copied = getSelection().toString(); });"
        f"document.querySelector('#trial').append(...programs({SNIPPETS}));"
        "document.querySelectorAll('#trial details').forEach((each) => { each.open = true; });"
        "document.querySelector('#trial details button').click(); })"
    )
    assert await tab.until("window.copied") == "curl http://h"


async def test_the_file_of_an_older_request_is_released(tab: Tab) -> None:
    found = await tab.run(
        "import('./dashboard/answer.js').then(({ programs }) => {"
        "const made = [], revoked = [], make = URL.createObjectURL, revoke = URL.revokeObjectURL;"
        "URL.createObjectURL = (blob) => { made.push(make.call(URL, blob)); return made.at(-1); };"
        "URL.revokeObjectURL = (url) => { revoked.push(url); revoke.call(URL, url); };"
        f"programs({SNIPPETS}); programs({SNIPPETS}); programs(undefined); return [made, revoked]; }})"
    )
    made, revoked = found
    assert len(made) == 2 and revoked == made


async def test_greys_are_rounded_and_int8_takes_no_image(tab: Tab) -> None:
    values = (
        "(async () => {{ const {{ imageTensor }} = await import('./dashboard/image.js');"
        "const canvas = new OffscreenCanvas(1, 1), context = canvas.getContext('2d');"
        "context.fillStyle = 'rgb(255, 255, 254)'; context.fillRect(0, 0, 1, 1);"
        "const spec = {{ name: 'x', datatype: '{}', shape: [1, 1, 1] }};"
        "return imageTensor(await canvas.convertToBlob(), spec, 255)"
        ".then(({{ data }}) => [...data], (failure) => failure.message); }})()"
    )
    # 0.299 x 255 + 0.587 x 255 + 0.114 x 254 is 254.886
    assert await tab.run(values.format("UINT8")) == [255]
    assert await tab.run(values.format("INT32")) == [255, 0, 0, 0]
    floats = bytes(await tab.run(values.format("FP32")))
    assert struct.unpack("<f", floats)[0] == pytest.approx(254.886, abs=1e-3)
    # it has no 128 to 255
    assert await tab.run(values.format("INT8")) == "An image does not fit x, INT8 [1, 1, 1]."


async def test_the_keyboard_reaches_everything(tab: Tab) -> None:
    await tab.press("Tab")
    assert await tab.run("document.activeElement.textContent") == "Skip to content"
    assert await tab.run("document.activeElement.getBoundingClientRect().left") >= 0
    await tab.run("document.querySelector('#numbers [data-term]').focus()")
    tip = await tab.until("document.querySelector('#tip:not([hidden])')?.textContent ?? ''")
    assert tip.startswith("Inference requests that have ended")
    assert await tab.run("document.activeElement.getAttribute('aria-describedby')") == "tip"
    await tab.press("Escape")
    assert await tab.run("document.querySelector('#tip').hidden")
    terms = await tab.run("[...document.querySelectorAll('[data-term]')].map((e) => e.dataset.term)")
    known = await tab.run("import('./dashboard/glossary.js').then((found) => Object.keys(found.GLOSSARY))")
    assert set(terms) <= set(known)


async def test_every_field_of_the_form_has_an_explanation(tab: Tab) -> None:
    # a tab in the background has no focus
    await tab.call("Page.bringToFront")
    await chosen(tab, "painter")
    controls = "[...document.querySelectorAll('#trial form :is(input, select)')]"
    lacks = await tab.run(f"{controls}.filter((each) => !each.dataset.term).map((each) => each.outerHTML)")
    assert lacks == []
    for number in range(await tab.run(f"{controls}.length")):
        if await tab.run(f"{controls}[{number}].hidden"):
            continue
        await tab.run(f"{controls}[{number}].focus()")
        await tab.until("document.querySelector('#tip:not([hidden])')?.textContent ?? ''")
        await tab.press("Escape")


async def test_dark_and_light(tab: Tab) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        await tab.prefer(scheme)
        await tab.until(f"document.documentElement.dataset.theme === '{scheme}'")
        grounds[scheme] = await tab.run("getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] != grounds["dark"]
    await tab.run("(() => { const s = document.querySelector('#theme'); s.value = 'light';"
                  "s.dispatchEvent(new Event('change')); })()")  # fmt: skip
    assert await tab.run("getComputedStyle(document.body).backgroundColor") == grounds["light"]
    await tab.call("Page.reload")
    await shown(tab)
    assert await tab.run("document.documentElement.dataset.theme") == "light"


async def test_a_phone_has_cards_and_nothing_to_scroll_sideways(tab: Tab) -> None:
    await tab.resize(390, 844, phone=True)
    await tab.until("innerWidth", lambda width: width == 390)
    assert await tab.run("document.documentElement.scrollWidth") == 390
    assert await tab.run("getComputedStyle(document.querySelector('#models tbody tr')).display") == "block"
    label = "getComputedStyle(document.querySelector('#models tbody td'), '::before').content"
    assert await tab.run(label) == '"Version"'


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)], ids=["desktop", "phone"])
async def test_axe_finds_nothing_serious(tab: Tab, scheme: str, width: int, phone: bool) -> None:
    await tab.prefer(scheme)
    await tab.resize(width, 900, phone)
    # a table with 1,000 models takes axe minutes
    await tab.type("#models input", "ranker")
    await tab.until("document.querySelectorAll('#models tbody tr').length < 10")
    await chosen(tab, "ranker")
    await tab.run("document.querySelector('#trial form').requestSubmit()")
    await tab.until("document.querySelectorAll('#trial summary').length === 3")
    await tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await tab.run(AXE)
    found: list[dict[str, Any]] = await tab.run("axe.run().then((found) => found.violations)")
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [
        (each["id"], each["nodes"][0]["html"], each["nodes"][0]["failureSummary"]) for each in serious
    ] == []


async def test_a_lost_server_is_shown_and_found_again(tmp_path: Path) -> None:
    document = config(tmp_path)
    first = Daemon.start(tmp_path, document)
    admin = first.admin.removeprefix("http://")
    document["admin"]["listen"] = admin
    async with chromium(tmp_path / "profile") as tab:
        try:
            await tab.open(f"http://{admin}/")
            await tab.until(text("#connection"), lambda found: found == "Live")
            first.kill()
            await tab.until(text("#connection"), lambda found: found.startswith("No answer since"))
        finally:
            first.kill()
        second = Daemon.start(tmp_path, document)
        try:
            await tab.until(text("#connection"), lambda found: found == "Live")
        finally:
            second.kill()
