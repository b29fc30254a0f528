"""The paths as OpenAPI, and the same as a page that needs no network and no script."""

import html
from typing import Any

from dragoman import __version__
from dragoman.serving.inside import MOST_POSITIONS
from dragoman.serving.languages import Languages, outward_code
from dragoman.serving.limits import Limits

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
STRINGS: Schema = {"type": "array", "items": TEXT}
FLAG: Schema = {"type": "boolean", "default": False}
DETECTION: Schema = {"type": "object", "properties": {"confidence": NUMBER, "language": TEXT}}
ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}
ASKED = ["q", "source", "target"]
REFUSALS = {
    400: "something is missing or wrong",
    403: "wrong API key, or not on this server",
    408: "the request came too slowly",
    413: "more than this server takes",
    415: "neither JSON nor a form",
    429: "too many requests; Retry-After says when to come back",
    503: "no answer in time; Retry-After says when to come back",
}


def describe(languages: Languages, limits: Limits, wants_key: bool) -> Schema:
    """An OpenAPI document of what this very server does."""
    sources, targets = ([outward_code(code) for code in codes] for codes in (languages.sources, languages.codes))
    pair = {
        "source": {"type": "string", "description": "a code, or auto", "enum": ["auto", *sources]},
        "target": {"type": "string", "enum": targets},
        "api_key": {"type": "string", "description": "needed" if wants_key else "not needed"},
    }
    text = {"type": "string", "minLength": 1, "maxLength": limits.characters}
    return {
        "openapi": "3.0.3",
        "info": {"title": "dragoman", "version": __version__, "description": "LibreTranslate's contract and more."},
        "paths": _translating(pair, text, limits) | _looking(pair, text) | _asking(),
    }


def _translating(pair: Schema, text: Schema, limits: Limits) -> Schema:
    """Texts and files."""
    texts = {"oneOf": [text, {"type": "array", "minItems": 1, "maxItems": limits.texts, "items": text}]}
    each = {"oneOf": [TEXT, STRINGS]}
    format = {"type": "string", "enum": ["text", "html"], "default": "text"}
    alternatives = {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0}
    extras = {"scores": FLAG, "alignment": FLAG, "sentences": FLAG}
    translate = {"q": texts, **pair, "format": format, "alternatives": alternatives, **extras}
    file = {"file": {"type": "string", "format": "binary", "description": ".txt or .html"}, **pair}
    found = {
        "translatedText": each,
        "detectedLanguage": {"oneOf": [DETECTION, {"type": "array", "items": DETECTION}]},
        "alternatives": {},
        "scores": {},
        "alignment": {},
        "sentences": {},
        "warnings": {},
    }
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT}
    return {
        "/translate": _post("Translate a text or several.", translate, ASKED, _object(found)),
        "/detect": _post("Which language a text is in.", {"q": text}, ["q"], {"type": "array", "items": DETECTION}),
        "/translate_file": _post(
            "Translate a file.", file, ["file", *ASKED[1:]], _object({"translatedFileUrl": TEXT}), is_file=True,
        ),
        "/download_file/{name}": _get("A translated file.", None, [name], 404),
        "/score": _post(
            "How likely the model finds a translation.", {"q": texts, **pair, "translation": texts},
            [*ASKED, "translation"], _object({"scores": {}, "logProbabilities": {}, "pieces": {}}),
        ),
    }  # fmt: skip


def _looking(pair: Schema, text: Schema) -> Schema:
    """The inside of a translation."""
    inside = {"q": text, **pair, "translation": text}
    kind = {"type": "string", "enum": ["encoder", "decoder", "cross"], "default": "cross"}
    counted = {**WHOLE, "minimum": 0}
    head = {**counted, "description": "adds this head's queries, keys and scores before the softmax"}
    attention = {**inside, "kind": kind, "layer": {**counted, "default": 0}, "head": head}
    length = {**WHOLE, "minimum": 1, "maximum": MOST_POSITIONS, "default": MOST_POSITIONS}
    maps = {"translatedText": TEXT, "queries": STRINGS, "keys": STRINGS, "weights": {"type": "array"}}
    return {
        "/attention": _post("What every head of a layer looked at.", attention, ASKED, _object(maps)),
        "/inside": _post(
            "How a translation was written, piece by piece, and which attentions there are.", inside, ASKED,
            _object({"translatedText": TEXT, "steps": {"type": "array"}, "beam": _object({})}),
        ),
        "/positions": _post(
            "What is added to the first embeddings to say where they stand.", {**pair, "length": length}, ASKED[1:],
            _object({"kind": TEXT, "table": {"type": "array"}}),
        ),
    }  # fmt: skip


def _asking() -> Schema:
    """The server itself."""
    language = {"type": "object", "properties": {"code": TEXT, "name": TEXT, "targets": STRINGS}}
    locale = [_query("lang", "in which language to name them")]
    return {
        "/languages": _get("The languages.", {"type": "array", "items": language}, locale),
        "/frontend/settings": _get("What a front end should know.", _object({"charLimit": WHOLE})),
        "/health": _get("Whether it runs, and with which models.", _object({"status": TEXT})),
        "/health/live": _get("Whether the models' thread works.", _object({"status": TEXT}), [], 503),
        "/health/ready": _get("Whether it takes requests.", _object({"status": TEXT}), [], 503),
        "/metrics": _get("Counters for Prometheus.", None, [_query("api_key", "where one is needed")], 400, 403),
        "/spec": _get("This document.", _object({})),
        "/docs": _get("This document, for people.", None),
    }


def render_docs(spec: Schema) -> str:
    """A page about every path: its fields, and how to ask."""
    sections = []
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {})
            schema: Schema = next(iter(body.values()))["schema"] if body else {}
            rows = [
                (name, _kind_of(field), "yes" if name in schema["required"] else "")
                for name, field in schema.get("properties", {}).items()
            ]
            rows += [(each["name"], f"in the {each['in']}", "") for each in operation.get("parameters", [])]
            sections.append(f"<h2><code>{method.upper()} {_safe(path)}</code></h2><p>{_safe(operation['summary'])}</p>")
            if rows:
                cells = ("".join(f"<td>{_safe(cell)}</td>" for cell in row) for row in rows)
                head = "<tr><th>field</th><th>what</th><th>needed</th></tr>"
                sections.append(f"<table>{head}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>")
    title = f"{spec['info']['title']} {spec['info']['version']}"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>dragoman: every path</title>'
        f'<link rel="stylesheet" href="/page/plain.css"><h1>{_safe(title)}</h1>'
        '<p>For programs: <a href="/spec">/spec</a>. Errors are <code>{"error": "..."}</code>.</p>'
        f"{''.join(sections)}</html>"
    )


def _post(summary: str, fields: Schema, required: list[str], answer: Schema, is_file: bool = False) -> Schema:
    schema = {"type": "object", "properties": fields, "required": required}
    kinds = ["multipart/form-data"] if is_file else ["application/json", "application/x-www-form-urlencoded"]
    content = {kind: {"schema": schema} for kind in kinds}
    responses = {"200": _response("the answer", answer)}
    responses |= {str(status): _response(why, ERROR) for status, why in REFUSALS.items()}
    return {"post": {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": responses}}


def _get(summary: str, answer: Schema | None, parameters: list[Schema] | None = None, *errors: int) -> Schema:
    responses = {"200": _response("the answer", answer) if answer else {"description": "the answer"}}
    responses |= {str(status): {"description": "not now, or not you"} for status in (400, *errors)}
    return {"get": {"summary": summary, "parameters": parameters or [], "responses": responses}}


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _query(name: str, description: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": TEXT}


def _kind_of(field: Schema) -> str:
    if "oneOf" in field:
        return " or ".join(_kind_of(each) for each in field["oneOf"])
    kind = f"array of {_kind_of(field['items'])}" if "items" in field else str(field.get("type", "anything"))
    words = [kind, field.get("description", ""), " | ".join(field.get("enum", []))]
    words += [f"{name} {field[name]}" for name in ("maxLength", "maxItems", "maximum", "default") if name in field]
    return ", ".join(word for word in words if word)


def _safe(text: str) -> str:
    return html.escape(text)
