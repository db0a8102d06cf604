"""The reference of the configuration: complete, as committed what the generator gives, and its examples good ones."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from bccnd.config import Settings, read
from bccnd.errors import ConfigError
from docs import reference
from tests.support import ROOT

KEYS = list(reference.keys())


def test_the_page_is_what_the_settings_and_the_manual_give_now() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == reference.page(reference.MANUAL.read_text()), "run: make docs"


def test_every_key_of_the_settings_stands_there_once() -> None:
    lines = reference.page(reference.MANUAL.read_text()).splitlines()
    for key in KEYS:
        assert lines.count(f"### `{key.path}`") == 1, key.path
    assert len([line for line in lines if line.startswith("### ")]) == len(KEYS) > 80
    assert {key.path for key in KEYS} == set(reference.EXAMPLES)


def told(path: str) -> str:
    """What the page says of a key."""
    return reference.page(reference.MANUAL.read_text()).split(f"### `{path}`\n")[1].split("\n### ")[0]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("segments.port", ["whole number, from 1 to 65,535", "Default: `5400`", "restart bccnd"]),
        ("dedup.horizon", ["duration, above 0 s to 1 h", "Default: `2s`", "reload"]),
        ("dedup.late", ["one of `drop`, `deliver`", "reload"]),
        ("segments.receive_buffer", ["size, from 4 KiB to 1 GiB", "Default: `64MiB`"]),
        ("bus.sockets.path", ["none: it must be there", "restart bccnd"]),
        ("integrity.signers", ["mapping: beginning of a src to list: file with a public key"]),
        ("metrics.groups", ["mapping: text to text, at most 64 entries"]),
        ("gateways.nng.queue", ["restart bccnd-nng", "from 16 to 8,192"]),
        ("recorder.rotate", ["restart bccnd-recorder"]),
        ("bus.user.rate", ["number, from 0 to 1,000,000,000"]),
    ],
)
def test_what_stands_about_a_key(path: str, says: list[str]) -> None:
    for text in says:
        assert text in told(path)


def at(value: Any, path: list[str]) -> Any:
    """The value of a key in a file, or in settings; the first one of lists."""
    for name in path:
        if isinstance(value, list | tuple):
            value = value[0]
        value = getattr(value, name) if isinstance(value, BaseModel) else value[name]
    return value


def default(path: list[str]) -> Any:
    """The default of a key; None of one that has none, or whose section is not there."""
    model: type[BaseModel] = Settings
    for name in path[:-1]:
        (model, *_) = reference._models(model.model_fields[name].annotation)
    field = model.model_fields[path[-1]]
    return None if field.is_required() else field.get_default(call_default_factory=True)


@pytest.mark.parametrize("path", reference.EXAMPLES)
def test_an_example_is_a_good_file_that_sets_its_key_to_something_else(path: str) -> None:
    text = reference.EXAMPLES[path]
    keys = path.split(".")
    if path in ("recorder.payload.channels", "recorder.payload.payload"):
        assert "payload: [{" in text
    assert at(yaml.safe_load(text), keys) is not None
    settings = read(text, "example", resolve=False).settings
    assert at(settings, keys) != default(keys)


def test_a_bad_example_would_be_noticed() -> None:
    with pytest.raises(ConfigError):
        read("segments: [{port: 0}]", "example", resolve=False)


def test_a_type_of_which_nobody_has_said_how_it_is_written_is_an_error() -> None:
    from typing import Annotated

    from pydantic import AfterValidator

    def new(value: str) -> str:
        return value

    with pytest.raises(ValueError, match="new"):
        reference._kind(Annotated[str, AfterValidator(new)])
