"""A Slack message as a terminal can show it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.emoji import Emoji
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

# What Slack calls mrkdwn: <url|label> and <!date^…>, `code`, *bold*, _italic_, ~struck~.
_TOKEN = re.compile(
    r"<(?P<angle>[^<>\n]+)>"
    r"|`(?P<code>[^`\n]+)`"
    r"|(?<![\w*])\*(?P<bold>\S|\S[^*\n]*\S)\*(?![\w*])"
    r"|(?<![\w_])_(?P<italic>\S|\S[^_\n]*\S)_(?![\w_])"
    r"|(?<![\w~])~(?P<strike>\S|\S[^~\n]*\S)~(?![\w~])"
)
_DATE = re.compile(r"!date\^(?P<unix>\d+)\^(?P<format>[^^|]+)(?:\^[^|]*)?\|(?P<fallback>.*)")
_STYLES = {"code": "red", "bold": "bold", "italic": "italic", "strike": "strike"}


def mrkdwn(source: str) -> Text:
    """Return Slack's markup as styled text."""
    text = Text()
    position = 0
    for found in _TOKEN.finditer(source):
        text.append(_plain(source[position : found.start()]))
        position = found.end()
        if found["angle"] is not None:
            text.append_text(_angle(found["angle"]))
        else:
            kind = str(found.lastgroup)
            inner = Text(_plain(found[kind])) if kind == "code" else mrkdwn(found[kind])
            inner.stylize(_STYLES[kind])
            text.append_text(inner)
    text.append(_plain(source[position:]))
    return text


def render(message: Mapping[str, Any], *, width: int | None = None) -> RenderableType:
    """Return the message as Slack lays it out: its blocks, or its text if it has none."""
    blocks = message.get("blocks") or []
    parts = [part for block in blocks for part in _block(block)] or [mrkdwn(message.get("text") or "")]
    return Panel(Group(*parts), title="Slack", title_align="left", border_style="magenta", width=width)


def _plain(source: str) -> str:
    return Emoji.replace(html.unescape(source))


def _angle(inner: str) -> Text:
    date = _DATE.fullmatch(inner)
    if date is not None:
        if "{time" in date["format"]:
            return Text(datetime.fromtimestamp(int(date["unix"]), UTC).strftime("%H:%M:%S UTC"))
        return Text(_plain(date["fallback"]))
    target, _, label = inner.partition("|")
    if target.startswith(("!", "@", "#")):
        return Text(f"@{label or target.lstrip('!@#')}", style="bold blue")
    return Text(_plain(label or target), style="underline blue")


def _block(block: Mapping[str, Any]) -> Iterator[RenderableType]:
    match block.get("type"):
        case "header":
            yield Text(_plain(block["text"]["text"]), style="bold")
        case "section":
            if "text" in block:
                yield _text(block["text"])
            for field in block.get("fields") or []:
                yield _text(field)
        case "context":
            line = Text("  ").join(_text(element) for element in block["elements"] if "text" in element)
            line.stylize("dim")
            yield line
        case "actions":
            yield Text("  ").join(Text(f"[ {_plain(element['text']['text'])} ]", style="bold") for element in block["elements"])
        case "markdown":
            yield Text(block["text"])
        case "divider":
            yield Rule(style="dim")


def _text(item: Mapping[str, Any]) -> Text:
    return mrkdwn(item["text"]) if item.get("type") == "mrkdwn" else Text(_plain(item["text"]))
