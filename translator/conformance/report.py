"""The results of checks: text for a terminal, a Markdown page, JUnit XML for CI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from interlingua.translator.conformance.kit import Outcome, Verdict

_MARKS = {
    Verdict.PASSED: "yes",
    Verdict.FAILED: "**no**",
    Verdict.UNSTEADY: "**at times**",
    Verdict.SKIPPED: "-",
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


def as_line(outcome: Outcome) -> str:
    """One result as a line."""
    word = {Verdict.PASSED: "ok  ", Verdict.SKIPPED: "skip"}.get(outcome.verdict, "FAIL")
    line = f"{word} {outcome.model or '(default)'} {outcome.check.name}"
    return f"{line}: {outcome.reason}" if outcome.reason else line


def as_details(outcome: Outcome) -> str:
    """A failure with the request that shows it."""
    parts = (f"{outcome.check.name}: {outcome.check.rule}", outcome.reason, outcome.request, outcome.reply)
    return "\n".join(part for part in parts if part)


def summary(outcomes: Sequence[Outcome]) -> str:
    """The number of results by status."""
    counted = {verdict: sum(one.verdict is verdict for one in outcomes) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counted.items() if count)


def as_markdown(tested: Sequence[tuple[Tested, Sequence[Outcome]]]) -> bytes:
    """A page: a table of every run, checks down and models across, and below it each failure."""
    servers = dict.fromkeys(what.server for what, _ in tested)
    lines = [f"# Conformance of {', '.join(servers)}", "", *_LEGEND, ""]
    for what, outcomes in tested:
        models = list(dict.fromkeys(outcome.model for outcome in outcomes))
        lines += [f"## {what.dialect} over {what.transport}", "", f"{summary(outcomes)}.", ""]
        lines += [
            "| check | rule | " + " | ".join(f"`{model}`" if model else "default" for model in models) + " |"
        ]
        lines += ["|---" * (len(models) + 2) + "|"]
        for check in dict.fromkeys(outcome.check for outcome in outcomes):
            marks = {one.model: _MARKS[one.verdict] for one in outcomes if one.check is check}
            cells = " | ".join(marks.get(model, "") for model in models)
            lines.append(f"| {check.name} | {_cell(check.rule)} | {cells} |")
        lines += ["", *_failures(outcomes)]
    return ("\n".join(lines).rstrip() + "\n").encode()


def _failures(outcomes: Iterable[Outcome]) -> list[str]:
    """One entry for each failed check, with the first model's failure."""
    lines: list[str] = []
    by_check: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict.bad:
            by_check.setdefault(outcome.check.name, []).append(outcome)
    for name, failed in by_check.items():
        first = failed[0]
        models = ", ".join(f"`{outcome.model}`" for outcome in failed if outcome.model)
        lines += [f"### {name}" + (f" ({models})" if models else ""), "", first.check.rule, ""]
        lines += ["```", *_wrapped(first.reason), "```", ""]
        if first.request:
            lines += ["```sh", first.request, "```", ""]
        if first.reply:
            lines += ["```", first.reply, "```", ""]
    return lines


def _wrapped(text: str) -> list[str]:
    return text.splitlines() or [""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def as_junit(tested: Sequence[tuple[Tested, Sequence[Outcome]]]) -> bytes:
    """JUnit XML: a suite for each run, a case for each check and model."""
    root = Xml.Element("testsuites")
    for what, outcomes in tested:
        suite = Xml.SubElement(
            root,
            "testsuite",
            name=f"{what.dialect}-{what.transport}",
            tests=str(len(outcomes)),
            failures=str(sum(outcome.verdict.bad for outcome in outcomes)),
            skipped=str(sum(outcome.verdict is Verdict.SKIPPED for outcome in outcomes)),
            errors="0",
            time=f"{sum(outcome.secs for outcome in outcomes):.3f}",
        )
        for outcome in outcomes:
            case = Xml.SubElement(
                suite,
                "testcase",
                classname=f"{what.dialect}.{what.transport}.{outcome.model or 'default'}",
                name=outcome.check.name,
                time=f"{outcome.secs:.3f}",
            )
            if outcome.verdict.bad:
                Xml.SubElement(case, "failure", message=_xml(outcome.reason)).text = _xml(as_details(outcome))
            elif outcome.verdict is Verdict.SKIPPED:
                Xml.SubElement(case, "skipped", message=_xml(outcome.reason))
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _xml(text: str) -> str:
    """``text`` without characters that XML forbids."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "?" for letter in text)
