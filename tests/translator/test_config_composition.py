"""Environment variables in values, and files that include others."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlingua.translator.cli import main
from interlingua.translator.config import Config, ConfigError, load, parse

LISTENERS = "listeners:\n  - listen: 127.0.0.1:0\n    transport: http\n"


def read(value: str, key: str = "id") -> object:
    return getattr(parse(f"server:\n  {key}: {value}\n{LISTENERS}", "c.yaml").server, key)


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(text, "c.yaml")
    return raised.value.lines


def loaded(folder: Path, **files: str) -> Config:
    """The configuration in ``main`` of ``files``, by name without ending."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return load(folder / "main.yaml")


def errors(folder: Path, **files: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        loaded(folder, **files)
    return [line.replace(f"{folder}/", "") for line in raised.value.lines]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${NODE}", "node-7"),
        ("'${NODE}'", "node-7"),
        ("a-${NODE}-${NODE}", "a-node-7-node-7"),
        ("${ABSENT:-spare}", "spare"),
        ("${EMPTY:-spare}", "spare"),
        ("${NODE:-spare}", "node-7"),
        ("'${EMPTY}x'", "x"),
        ("$${NODE}", "${NODE}"),
        ("a$$b", "a$b"),
        ("^x$", "^x$"),
        ("$NODE", "$NODE"),
        ("'${COUNT}'", "12"),
        ("${TRICKY}", "a: [b, '${NODE}'] # c"),
    ],
)
def test_values_have_the_variables_of_the_environment(
    value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in [("NODE", "node-7"), ("EMPTY", ""), ("COUNT", "12")]:
        monkeypatch.setenv(name, text)
    # the value of a variable is a value, whatever it has of YAML
    monkeypatch.setenv("TRICKY", "a: [b, '${NODE}'] # c")
    monkeypatch.delenv("ABSENT", raising=False)
    assert read(value) == expected


def test_a_value_without_quotes_has_the_type_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNT", "12")
    monkeypatch.setenv("ON", "true")
    assert read("${COUNT}", "max_models") == 12
    assert read("${ON}", "start_offline") is True
    assert read("${ABSENT_HERE:-}", "max_models") == 1024
    assert refused(f"server:\n  max_models: '${{COUNT}}'\n{LISTENERS}") == [
        "c.yaml:2: server.max_models: must be a whole number, not the text '12'"
    ]


def test_an_unset_variable_is_an_error_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    text = "listeners:\n  - listen: ${NOWHERE}\n    transport: http\nserver: {id: 'a${', name: '${1}'}"
    dollar = "'${' without the name of a variable and '}'; '$$' is a dollar sign"
    assert refused(text) == [
        "c.yaml:2: listeners[0].listen: environment variable 'NOWHERE' is not set",
        f"c.yaml:4: server.id: {dollar}",
        f"c.yaml:4: server.name: {dollar}",
    ]


def test_included_files_append_lists_and_merge_mappings(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        main=f"include: [parts/models.yaml, log.yaml]\nserver: {{id: a}}\n{LISTENERS}"
        "models: {one: {backend: identity, signature: &s {inputs: [{name: I, datatype: FP32, shape: [1]}],"
        " outputs: [{name: O, datatype: FP32, shape: [1]}]}}}\n",
        parts__models="include: [more.yaml]\nmodels: {two: {backend: identity, signature: {inputs: [{name: I,"
        " datatype: FP32, shape: [1]}], outputs: [{name: O, datatype: FP32, shape: [1]}]}}}\n",
        parts__more="listeners:\n  - {listen: '127.0.0.1:0', transport: grpc}\n",
        log="server: {log_level: warning}\nmodels:\ninclude:\n",
    )
    assert [each.transport for each in config.listeners] == ["http", "grpc"]
    assert list(config.models) == ["one", "two"]
    assert (config.server.id, config.server.log_level) == ("a", "warning")
    assert config.include == ("parts/models.yaml", "log.yaml", "more.yaml")


REFUSED: dict[str, tuple[dict[str, str], list[str]]] = {
    "file and line of the value": (
        {
            "main": f"include: [b.yaml]\n{LISTENERS}server:\n  nmae: x\n",
            "b": "# first\nlisteners:\n  - listen: ':0'\n    transport: htpt\nserver: {id: '${NOWHERE_X}'}\n",
        },
        [
            "main.yaml:6: server.nmae: unknown key 'nmae'; did you mean 'name'?",
            "b.yaml:4: listeners[1].transport: unknown value 'htpt'; did you mean 'http'?",
            "b.yaml:5: server.id: environment variable 'NOWHERE_X' is not set",
        ],
    ),
    "both files of a conflict": (
        {
            "main": f"include: [b.yaml, c.yaml]\nserver:\n  id: a\n{LISTENERS}",
            "b": "server:\n\n  id: a\n",
            "c": "listeners: {}\n",
        },
        ["b.yaml:3: server.id: is in main.yaml:3 too", "c.yaml:1: listeners: is in main.yaml:4 too"],
    ),
    "cycles and files that cannot be read": (
        {
            "main": f"include: [b.yaml, absent.yaml, c.yaml, b.yaml]\n{LISTENERS}",
            "b": "include:\n  - main.yaml\n",
            "c": "- 1\n",
        },
        [
            "main.yaml:1: include[1]: 'absent.yaml' cannot be read: No such file or directory",
            "main.yaml:1: include[3]: 'b.yaml' is included by main.yaml too",
            "b.yaml:2: include[0]: 'main.yaml' includes itself: main.yaml -> b.yaml -> main.yaml",
            "c.yaml:1: must be a mapping",
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name(name: str, tmp_path: Path) -> None:
    files, expected = REFUSED[name]
    found = errors(tmp_path, **files)
    assert [each.partition(" (allowed: ")[0] for each in found] == expected


def test_an_included_file_that_is_no_yaml(tmp_path: Path) -> None:
    (found, *_) = errors(tmp_path, main=f"include: [b.yaml]\n{LISTENERS}", b="a: [")
    assert found.startswith("b.yaml:1: not valid YAML")


def test_check_reads_the_same_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "missing-file.onnx")
    with pytest.raises(ConfigError):
        loaded(
            tmp_path,
            main=f"include: [b.yaml]\n{LISTENERS}",
            b="models:\n  one:\n    backend: onnxruntime\n    path: ${MODEL}\n",
        )
    assert main(["check", "-c", str(tmp_path / "main.yaml")]) == 2
    assert "b.yaml:4: models.one.path: 'missing-file.onnx'" in capsys.readouterr().err
