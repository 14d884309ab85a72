"""Messages to people, through a Slack incoming webhook.

Every message is built from objects and serialised, never pasted together. Limits: Slack's documentation of Block Kit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2

from watchdog.adapters.http_post import SecretEndpoint
from watchdog.clock import Clock
from watchdog.errors import DeliveryFailed
from watchdog.ports import Message

_TIMEOUT_SECONDS = 10.0
_HEADER, _SECTION, _FIELD, _FIELDS = 150, 3000, 2000, 10
_VALUE = 300
"""Of one value inside a sentence: long enough for every id, name and pool of a sane person."""
_REASONS = 6
_MEBIBYTE = 1024 * 1024
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_UNKNOWN = "unknown"
_CAUSES = {
    "first_launch": "first launch",
    "interruption_notice": "spot interruption notice",
    "source_lost": "instance lost without a notice",
    "by_hand": "asked for by hand",
}


class SlackAnnouncer:
    """`ports.Announcer` over a Slack incoming webhook."""

    name = "slack"

    def __init__(self, url: str, clock: Clock) -> None:
        """Post to `url`, which is a secret. Raises SettingsInvalid."""
        self._endpoint = SecretEndpoint(url, setting="SPOT_WATCHDOG_SLACK_WEBHOOK_URL", timeout_seconds=_TIMEOUT_SECONDS, clock=clock)

    async def close(self) -> None:
        """Close connections."""
        await self._endpoint.close()

    async def send(self, message: Message) -> None:
        """Deliver one message once; if Slack dislikes its blocks, the plain text of it.

        Raises DeliveryFailed: 429, 5xx and the network are worth another try, every other refusal is final.
        """
        rendered = render(message)
        answer = await self._endpoint.post(_json(rendered))
        if answer.status == httpx2.codes.BAD_REQUEST and answer.text.startswith("invalid_"):
            answer = await self._endpoint.post(_json({"text": rendered["text"]}))
        if not answer.ok:
            raise DeliveryFailed(
                # The body is one bare word, e.g. `channel_is_archived`, but a proxy's answer could repeat the URL.
                f"Slack answered {answer.status} {answer.text if answer.text.isidentifier() else ''}".rstrip(),
                permanent=not answer.worth_retrying,
                retry_after_seconds=answer.retry_after_seconds,
            )


def render(message: Message) -> dict[str, Any]:
    """Return the payload of one message: blocks, and `text` for notifications and screen readers."""
    story = _STORIES.get(message.kind, _anything)(_Facts(message))
    context = " · ".join(f"`{text}`" for text in _context(message))
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(story.title, _HEADER), "emoji": True}},
        {"type": "section", "text": _markdown(_cut(story.sentence, _SECTION))},
    ]
    if story.fields:
        shown = story.fields[:_FIELDS]
        blocks.append({"type": "section", "fields": [_markdown(_cut(f"*{label}*\n{value}", _FIELD)) for label, value in shown]})
    blocks.append({"type": "context", "elements": [_markdown(context)]})
    return {"text": _cut(f"{story.title}: {story.sentence}", _SECTION), "blocks": blocks}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Story:
    """One message in words. Everything in it is escaped already."""

    title: str
    sentence: str
    fields: Sequence[tuple[str, str]] = ()


class _Facts:
    """The data of a message, as text that is safe inside Slack's markup."""

    def __init__(self, message: Message) -> None:
        self._data: Mapping[str, Any] = message.data
        self.kind = _safe(message.kind)
        self.job = _safe(message.data.get("job_name") or message.job_id, _HEADER // 2)

    def names(self) -> Sequence[str]:
        return sorted(self._data)

    def get(self, name: str) -> Any:
        return self._data.get(name)

    def text(self, name: str) -> str:
        value = self._data.get(name)
        return _UNKNOWN if value is None else _safe(value)

    def code(self, name: str) -> str:
        value = self._data.get(name)
        return _UNKNOWN if value is None else f"`{_safe(value)}`"

    def time(self, name: str) -> str:
        """Return an instant in the reader's own time zone."""
        value = self._data.get(name)
        try:
            at = datetime.fromisoformat(value).astimezone(UTC)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            return self.text(name)
        return f"<!date^{int(at.timestamp())}^{{time_secs}}|{at:%H:%M:%S} UTC>"

    def seconds(self, name: str) -> str:
        value = self._data.get(name)
        return f"{value:.1f} s" if isinstance(value, int | float) else _UNKNOWN

    def cause(self) -> str:
        return _CAUSES.get(str(self._data.get("cause")), self.text("cause"))

    def reasons(self) -> str:
        listed = self._data.get("reasons")
        reasons = listed if isinstance(listed, list | tuple) else ()
        texts = [reason.get("text", "") if isinstance(reason, Mapping) else reason for reason in reasons[:_REASONS]]
        return "\n".join(f"• {_safe(text)}" for text in texts)


def _job_started(facts: _Facts) -> _Story:
    return _Story(
        title=f"🟢 {facts.job} started",
        sentence=f"It runs on {facts.code('instance_id')} ({facts.text('address')}) in {facts.code('to_pool')}.",
    )


def _notice_received(facts: _Facts) -> _Story:
    where = f"{facts.code('instance_id')} in {facts.code('from_pool')}"
    channels = facts.get("channels")
    heard = [("Heard from", _safe(", ".join(map(str, channels))))] if isinstance(channels, list | tuple) and channels else []
    if facts.get("notice") == "rebalance_recommendation":
        return _Story(
            title=f"🟡 {facts.job}: raised risk of interruption",
            sentence=f"AWS recommends leaving {where}. It gives no time.",
            fields=heard,
        )
    return _Story(
        title=f"⚠️ {facts.job}: AWS takes its instance back",
        sentence=f"{where} is reclaimed at {facts.time('reclaim_at')}.",
        fields=heard,
    )


def _migration_started(facts: _Facts) -> _Story:
    target = "nowhere yet: no pool has room" if facts.get("to_pool") is None else facts.code("to_pool")
    fields = [("Cause", facts.cause()), ("Why there", facts.text("why"))]
    if facts.reasons():
        fields.append(("Reasons", facts.reasons()))
    return _Story(title=f"🔀 {facts.job} is moving", sentence=f"From {facts.code('from_pool')} to {target}.", fields=fields)


def _migration_succeeded(facts: _Facts) -> _Story:
    lost = facts.get("lost_steps")
    lost_text = (
        "it is unknown how many steps were lost" if lost is None else "no step was lost" if lost == 0 else f"{_safe(lost)} steps lost"
    )
    size = facts.get("checkpoint_bytes")
    since = "Notice" if facts.get("cause") == "interruption_notice" else "Start"
    return _Story(
        title=f"✅ {facts.job} runs again",
        sentence=(
            f"Moved from {facts.code('from_pool')} to {facts.code('to_pool')} and resumed from step {facts.text('resumed_from_step')}; "
            f"{lost_text}."
        ),
        fields=[
            ("Cause", facts.cause()),
            ("Why there", facts.text("why")),
            (f"{since} to saved", facts.seconds("notice_to_saved_seconds")),
            (f"{since} to resumed", facts.seconds("notice_to_resumed_seconds")),
            ("Checkpoint", f"{size / _MEBIBYTE:.1f} MiB" if isinstance(size, int) else _UNKNOWN),
            ("Instance", f"{facts.code('instance_id')} ({facts.text('address')})"),
        ],
    )


def _migration_parked(facts: _Facts) -> _Story:
    retry = "" if facts.get("next_try_at") is None else f" Next try at {facts.time('next_try_at')}."
    left = "" if facts.get("from_pool") is None else f" It left {facts.code('from_pool')}."
    return _Story(
        title=f"⏸️ {facts.job} is parked",
        sentence=f"It has no instance and waits for capacity; its checkpoint is kept.{left}{retry}",
        fields=[("Cause", facts.cause()), ("Why", facts.text("why"))],
    )


def _migration_failed(facts: _Facts) -> _Story:
    left = "" if facts.get("from_pool") is None else f" It left {facts.code('from_pool')}."
    return _Story(
        title=f"🛑 {facts.job} needs a person",
        sentence=f"Its move failed and nothing more is tried.{left}",
        fields=[("Cause", facts.cause()), ("Why", facts.text("why"))],
    )


def _job_finished(facts: _Facts) -> _Story:
    step = facts.get("step")
    return _Story(title=f"🏁 {facts.job} finished", sentence="It ran to its end." if step is None else f"Its last step was {_safe(step)}.")


def _job_blocked(facts: _Facts) -> _Story:
    return _Story(
        title=f"⛔ {facts.job} is blocked",
        sentence=f"No retry can mend this; a person has to change something: {facts.text('why')}",
    )


def _job_silent(facts: _Facts) -> _Story:
    return _Story(title=f"🔇 {facts.job} says nothing", sentence=f"On {facts.code('instance_id')}: {facts.text('why')}")


def _anything(facts: _Facts) -> _Story:
    """Tell a kind that is newer than this table: clumsy, but not lost."""
    return _Story(title=f"{facts.job}: {facts.kind}", sentence=", ".join(f"{_safe(name)}: {facts.code(name)}" for name in facts.names()))


_STORIES: Mapping[str, Callable[[_Facts], _Story]] = {
    "job.started": _job_started,
    "notice.received": _notice_received,
    "migration.started": _migration_started,
    "migration.succeeded": _migration_succeeded,
    "migration.parked": _migration_parked,
    "migration.failed": _migration_failed,
    "job.finished": _job_finished,
    "job.blocked": _job_blocked,
    "job.silent": _job_silent,
}


def _context(message: Message) -> list[str]:
    names = [message.data.get("deployment"), message.job_id, message.data.get("migration_id")]
    return [_safe(name, _VALUE // 3) for name in names if name]


def _safe(value: object, limit: int = _VALUE) -> str:
    """Return a value on one line, cut to `limit`, unable to be markup, a mention or a link."""
    text = " ".join(str(value).encode("utf-8", "replace").decode().split()).replace("`", "'")
    safe = ""
    for character in text:
        piece = _ESCAPES.get(character, character if character.isprintable() else "?")
        if len(safe) + len(piece) >= limit:
            return safe + "…"
        safe += piece
    return safe


def _cut(text: str, limit: int) -> str:
    """Cut escaped text, not inside an escape."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    start = cut.rfind("&")
    whole = cut if start < 0 or ";" in cut[start:] else cut[:start]
    return whole + "…"


def _markdown(text: str) -> dict[str, Any]:
    # Verbatim: names that look like URLs, channels or mentions stay what they are.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _json(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload).encode()
