"""Translates what pydantic finds wrong into faults with file, line, key, reason and remedy."""

from __future__ import annotations

import difflib
from typing import Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bccnd.config.document import Document
from bccnd.config.schema import Settings
from bccnd.core.formats.quoting import quote
from bccnd.errors import ConfigError, Fault

#: reasons for pydantic's kinds of errors, in the terms of YAML
_REASONS: Final = {
    "model_type": "must be keys and values",
    "model_attributes_type": "must be keys and values",
    "dict_type": "must be keys and values",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "string_unicode": "must be UTF-8 text",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "too_short": "must not be empty",
}


def config_error(document: Document, error: ValidationError) -> ConfigError:
    return ConfigError([_fault(document, one) for one in error.errors()])


def _fault(document: Document, error: ErrorDetails) -> Fault:
    # pydantic marks a fault in the key of a mapping; the key itself names the place well enough.
    where = tuple(part for part in error["loc"] if part != "[key]")
    context = error.get("ctx", {})
    kind = error["type"]
    remedy = "see this key in etc/bccnd.yaml"
    if kind == "extra_forbidden":
        reason, remedy = "unknown key", _suggest_keys(where)
    elif kind == "bccnd":
        reason, remedy = str(context["reason"]), str(context["remedy"])
    elif kind == "missing":
        reason = "is missing"
    elif kind == "too_long":
        reason, remedy = f"must have at most {context['max_length']} entries or characters", "leave some out"
    else:
        wanted = _REASONS.get(kind) or error["msg"].replace("Input should be", "must be")
        reason = f"{wanted}, not {quote(error['input'])}"
        if kind == "literal_error":
            remedy = f"choose {context['expected']}"
    return document.fault(where, reason, remedy)


def _suggest_keys(where: tuple[int | str, ...]) -> str:
    """Suggest a key for an unknown one."""
    model: type[BaseModel] = Settings
    for part in where[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            model = _section_of(model.model_fields[part].annotation) or model
    close = difflib.get_close_matches(str(where[-1]), list(model.model_fields), n=1)
    known = ", ".join(model.model_fields)
    return f"did you mean {close[0]}?" if close else f"valid keys: {known}"


def _section_of(annotation: object) -> type[BaseModel] | None:
    """Return the section that a key holds, by itself or as a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_of, get_args(annotation))), None)
