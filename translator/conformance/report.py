"""The results of checks: text for a terminal, a Markdown page, JUnit XML for CI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree as Xml

from interlingua.translator.conformance.kit import CheckResult, CheckStatus

_MARKS = {
    CheckStatus.PASSED: "yes",
    CheckStatus.FAILED: "**no**",
    CheckStatus.UNSTEADY: "**at times**",
    CheckStatus.SKIPPED: "-",
}


_LEGEND = (
    "Written by `interlingua conformance`. **no**: a generated request broke the rule, and is shown below",
    "the table; **at times**: not every time; -: the rule has nothing to say of this model or server.",
)


@dataclass(frozen=True, slots=True)
class Tested:
    """What was tested; ``server`` is its own name and version."""

    server: str
    dialect: str
    transport: str


def as_line(result: CheckResult) -> str:
    word = {CheckStatus.PASSED: "ok  ", CheckStatus.SKIPPED: "skip"}.get(result.status, "FAIL")
    line = f"{word} {result.model or '(default)'} {result.check.name}"
    return f"{line}: {result.reason}" if result.reason else line


def as_details(result: CheckResult) -> str:
    """A failure with the request that shows it."""
    parts = (f"{result.check.name}: {result.check.rule}", result.reason, result.request, result.reply)
    return "\n".join(part for part in parts if part)


def summary(results: Sequence[CheckResult]) -> str:
    counted = {status: sum(one.status is status for one in results) for status in CheckStatus}
    return ", ".join(f"{count} {status.value}" for status, count in counted.items() if count)


def as_document(tested: Tested, results: Sequence[CheckResult]) -> dict[str, Any]:
    """The whole report as values of JSON."""
    return {
        **asdict(tested),
        "summary": {status.value: sum(one.status is status for one in results) for status in CheckStatus},
        "results": [
            {
                "model": one.model,
                "check": one.check.name,
                "rule": one.check.rule,
                "status": one.status.value,
                "reason": one.reason,
                "request": one.request,
                "reply": one.reply,
                "secs": round(one.secs, 3),
            }
            for one in results
        ],
    }


def as_markdown(tested: Sequence[tuple[Tested, Sequence[CheckResult]]]) -> bytes:
    """A page: a table of every run, checks down and models across, and below it each failure."""
    servers = dict.fromkeys(what.server for what, _ in tested)
    lines = [f"# Conformance of {', '.join(servers)}", "", *_LEGEND, ""]
    for what, results in tested:
        models = list(dict.fromkeys(result.model for result in results))
        lines += [f"## {what.dialect} over {what.transport}", "", f"{summary(results)}.", ""]
        lines += [
            "| check | rule | " + " | ".join(f"`{model}`" if model else "default" for model in models) + " |"
        ]
        lines += ["|---" * (len(models) + 2) + "|"]
        for check in dict.fromkeys(result.check for result in results):
            marks = {one.model: _MARKS[one.status] for one in results if one.check is check}
            cells = " | ".join(marks.get(model, "") for model in models)
            rule = check.rule.replace("|", "\\|")
            lines.append(f"| {check.name} | {rule} | {cells} |")
        lines += ["", *_failures(results)]
    return ("\n".join(lines).rstrip() + "\n").encode()


def _failures(results: Iterable[CheckResult]) -> list[str]:
    """One entry for each failed check, with the first model's failure."""
    lines: list[str] = []
    by_check: dict[str, list[CheckResult]] = {}
    for result in results:
        if result.status.bad:
            by_check.setdefault(result.check.name, []).append(result)
    for name, failed in by_check.items():
        first = failed[0]
        models = ", ".join(f"`{result.model}`" for result in failed if result.model)
        lines += [f"### {name}" + (f" ({models})" if models else ""), "", first.check.rule, ""]
        lines += ["```", *(first.reason.splitlines() or [""]), "```", ""]
        if first.request:
            lines += ["```sh", first.request, "```", ""]
        if first.reply:
            lines += ["```", first.reply, "```", ""]
    return lines


def as_junit(tested: Sequence[tuple[Tested, Sequence[CheckResult]]]) -> bytes:
    """JUnit XML: a suite for each run, a case for each check and model."""
    root = Xml.Element("testsuites")
    for what, results in tested:
        suite = Xml.SubElement(
            root,
            "testsuite",
            name=f"{what.dialect}-{what.transport}",
            tests=str(len(results)),
            failures=str(sum(result.status.bad for result in results)),
            skipped=str(sum(result.status is CheckStatus.SKIPPED for result in results)),
            errors="0",
            time=f"{sum(result.secs for result in results):.3f}",
        )
        for result in results:
            case = Xml.SubElement(
                suite,
                "testcase",
                classname=f"{what.dialect}.{what.transport}.{result.model or 'default'}",
                name=result.check.name,
                time=f"{result.secs:.3f}",
            )
            if result.status.bad:
                Xml.SubElement(case, "failure", message=_xml(result.reason)).text = _xml(as_details(result))
            elif result.status is CheckStatus.SKIPPED:
                Xml.SubElement(case, "skipped", message=_xml(result.reason))
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _xml(text: str) -> str:
    """``text`` without characters that XML forbids."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "?" for letter in text)
