"""The configuration that runs, without secrets, against the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from interlingua.translator.config.loader import load
from interlingua.translator.dashboard.configuration import report, without_secrets

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1]}
SIGNATURE = {"inputs": [TENSOR], "outputs": [TENSOR]}


def write(path: Path, **more: object) -> str:
    model = {
        "backend": "identity",
        "signature": SIGNATURE,
        "parameters": {"db_password": "hunter22", "a": "b"},
    }
    listeners = [{"listen": "127.0.0.1:0", "transport": "http"}]
    path.write_text(yaml.safe_dump({"listeners": listeners, "models": {"m": model}, **more}))
    return str(path)


async def test_the_file_that_runs_has_no_differences(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml")
    found = await report(path, load(path))
    assert (found["differences"], found["errors"], found["file"]) == ([], [], path)
    assert found["loaded"]["models"]["m"]["parameters"] == {"db_password": "[redacted]", "a": "b"}
    assert "hunter22" not in str(found)


async def test_every_option_that_differs_with_both_values(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml")
    config = load(path)
    write(tmp_path / "c.yaml", server={"name": "other", "drain_secs": 7.0})
    found = await report(path, config)
    assert {each["option"]: (each["loaded"], each["file"]) for each in found["differences"]} == {
        "server.name": ("interlingua", "other"),
        "server.drain_secs": (5.0, 7.0),
    }


async def test_a_file_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml")
    config = load(path)
    write(tmp_path / "c.yaml", server={"nmae": "other"})
    found = await report(path, config)
    assert "nmae" in found["errors"][0] and found["loaded"]["listeners"]
    (tmp_path / "c.yaml").unlink()
    assert "cannot be read" in (await report(path, config))["errors"][0]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://user:pw@host/x", "https://[redacted]@host/x"),
        ({"api_key": "abc"}, {"api_key": "[redacted]"}),
        ({"allow_credentials": False}, {"allow_credentials": False}),
        (["x-s3cr3t-y", 3, None], ["x-[redacted]-y", 3, None]),
        ({"path": "home"}, {"path": "home"}),
        ({"tokenizer": "bpe", "Tokenization": "word"}, {"tokenizer": "bpe", "Tokenization": "word"}),
        *(
            ({name: "abc"}, {name: "[redacted]"})
            for name in ("token", "tokens", "TOKEN", "auth_token", "api-token", "token_file", "accessTokenId")
        ),
    ],
)
def test_secrets_are_redacted(value: object, shown: object) -> None:
    assert without_secrets(value, {"MY_TOKEN": "s3cr3t", "HOME": "home"}) == shown
