"""What people read, and what Slack takes."""

import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.servers import Receiver, Reply
from watchdog.adapters.slack import SlackAnnouncer, render
from watchdog.clock import ManualClock
from watchdog.emulator.slack import refusal
from watchdog.errors import DeliveryFailed, SettingsInvalid
from watchdog.ports import Message

NOW = datetime(2026, 3, 4, 10, 15, 31, tzinfo=UTC)
OLD, NEW = "use1-az4/g5.xlarge/spot", "use1-az1/g5.xlarge/spot"
SECRET_PATH = "/services/T000/B000/verysecrettoken"
MOVE = {"migration_id": "mig_1", "cause": "interruption_notice", "from_pool": OLD, "to_pool": NEW, "why": "cheapest with room"}
DATA: dict[str, dict[str, Any]] = {
    "job.started": {"instance_id": "i-0aaa", "address": "10.0.0.5", "to_pool": NEW, "fencing_token": 1},
    "notice.received": {
        "notice": "spot_interruption",
        "instance_id": "i-0aaa",
        "from_pool": OLD,
        "reclaim_at": "2026-03-04T10:17:30+00:00",
        "channels": ["imds", "event_bridge"],
    },
    "migration.started": {**MOVE, "reasons": ["zone use1-az2 refused a minute ago", {"code": "x", "text": "enough quota"}]},
    "migration.succeeded": {
        **MOVE,
        "resumed_from_step": 120,
        "lost_steps": 0,
        "instance_id": "i-0bbb",
        "address": "10.0.0.6",
        "fencing_token": 2,
        "notice_to_saved_seconds": 1.234,
        "notice_to_resumed_seconds": 22.46,
        "checkpoint_bytes": 3 * 1024 * 1024,
    },
    "migration.parked": {**MOVE, "why": "every pool refused", "next_try_at": "2026-03-04T10:20:00+00:00"},
    "migration.failed": {**MOVE, "why": "the replacement never reported"},
    "job.finished": {"step": 900},
    "job.blocked": {"why": "InvalidAMIID.NotFound: no such image"},
    "job.silent": {"why": "nothing was heard of it for 10 minutes", "instance_id": "i-1"},
}
SAID = {
    "job.started": ["digits started", "i-0aaa", "10.0.0.5", NEW],
    "notice.received": ["AWS takes its instance back", "i-0aaa", OLD, "<!date^1772619450^{time_secs}|10:17:30 UTC>", "imds, event_bridge"],
    "migration.started": [
        "digits is moving",
        OLD,
        NEW,
        "spot interruption notice",
        "cheapest with room",
        "refused a minute ago",
        "enough quota",
    ],
    "migration.succeeded": ["digits runs again", OLD, NEW, "step 120", "no step was lost", "1.2 s", "22.5 s", "3.0 MiB", "i-0bbb", "mig_1"],
    "migration.parked": ["digits is parked", "every pool refused", "10:20:00 UTC", "checkpoint is kept"],
    "migration.failed": ["digits needs a person", "the replacement never reported"],
    "job.finished": ["digits finished", "900"],
    "job.blocked": ["digits is blocked", "InvalidAMIID.NotFound: no such image"],
    "job.silent": ["digits says nothing", "nothing was heard of it for 10 minutes", "i-1"],
}


def message(kind: str = "job.finished", **data: Any) -> Message:
    common = {"job_id": "job_1", "job_name": "digits", "deployment": "demo", "at": NOW.isoformat()}
    return Message(message_id="msg_1", kind=kind, at=NOW, job_id="job_1", data={**common, **DATA.get(kind, {}), **data})


def words(payload: dict[str, Any]) -> str:
    return json.dumps(payload["blocks"], ensure_ascii=False)


@pytest.mark.parametrize("kind", DATA)
def test_every_kind_says_what_a_person_on_call_needs(kind: str) -> None:
    payload = render(message(kind))
    assert [phrase for phrase in [*SAID[kind], "job_1", "demo"] if phrase not in words(payload)] == []
    assert SAID[kind][0] in payload["text"]
    assert refusal(payload) is None


@pytest.mark.parametrize(
    ("lost", "said"),
    [(None, "unknown how many steps were lost"), (0, "no step was lost"), (7, "7 steps lost")],
    ids=["unknown", "none", "some"],
)
def test_unknown_loss_is_not_no_loss(lost: int | None, said: str) -> None:
    assert said in words(render(message("migration.succeeded", lost_steps=lost)))


def test_a_recommendation_is_not_told_as_an_interruption() -> None:
    text = words(render(message("notice.received", notice="rebalance_recommendation", reclaim_at=None)))
    assert "raised risk" in text
    assert "reclaimed" not in text


def test_a_kind_newer_than_this_code_is_told_and_not_lost() -> None:
    payload = render(message("job.enchanted", spell="<abra>"))
    assert "job.enchanted" in words(payload)
    assert "&lt;abra&gt;" in words(payload)
    assert refusal(payload) is None


HOSTILE = 'a"b\\c\n<!channel> <@U1> & `x` 🙂' + "<" * 5000


@pytest.mark.parametrize("kind", DATA)
def test_no_name_becomes_markup_or_breaks_a_limit_i03(kind: str) -> None:
    hostile = dict.fromkeys((*DATA[kind], "job_name", "deployment"), HOSTILE)
    payload = render(message(kind, **hostile))
    assert refusal(payload) is None
    assert "<!channel" not in json.dumps(payload)
    assert "<@U1" not in json.dumps(payload)
    assert len(payload["text"]) <= 3000


@given(st.sampled_from(sorted(DATA)), st.data())
def test_any_values_make_a_message_that_slack_takes(kind: str, data: st.DataObject) -> None:
    values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text() | st.integers(), max_size=3)
    payload = render(message(kind, **{name: data.draw(values) for name in (*DATA[kind], "job_name")}))
    assert refusal(json.loads(json.dumps(payload))) is None


@pytest.fixture
async def slack(receiver: Receiver) -> AsyncIterator[SlackAnnouncer]:
    announcer = SlackAnnouncer(receiver.url + SECRET_PATH, ManualClock(NOW))
    yield announcer
    await announcer.close()


async def test_a_message_is_posted_once_as_json(slack: SlackAnnouncer, receiver: Receiver) -> None:
    await slack.send(message())
    [sent] = receiver.requests
    assert (sent.method, sent.path, sent.headers["content-type"]) == ("POST", SECRET_PATH, "application/json")
    assert json.loads(sent.body) == render(message())


@pytest.mark.parametrize(
    ("reply", "permanent", "wait"),
    [
        (Reply(429, "rate_limited", {"Retry-After": "30"}), False, 30.0),
        (Reply(429, "rate_limited"), False, None),
        (Reply(500, "rollup_error"), False, None),
        (Reply(503, "<html>"), False, None),
        (Reply(503, "", {"Retry-After": "Wed, 4 Mar 2026 10:16:31 GMT"}), False, 60.0),
        (Reply(503, "", {"Retry-After": "soon"}), False, None),
        (Reply(400, "user_not_found"), True, None),
        (Reply(403, "invalid_token"), True, None),
        (Reply(404, "no_service"), True, None),
        (Reply(410, "channel_is_archived"), True, None),
        (Reply(302, "", {"Location": "http://127.0.0.1:9/"}), True, None),
    ],
)
async def test_only_what_may_pass_later_is_tried_again_i04(
    slack: SlackAnnouncer, receiver: Receiver, reply: Reply, *, permanent: bool, wait: float | None
) -> None:
    receiver.script(reply)
    with pytest.raises(DeliveryFailed) as failed:
        await slack.send(message())
    assert (failed.value.permanent, failed.value.retry_after_seconds) == (permanent, wait)
    assert len(receiver.requests) == 1


async def test_a_message_that_slack_dislikes_is_sent_once_more_as_plain_text_i03(slack: SlackAnnouncer, receiver: Receiver) -> None:
    receiver.script(Reply(400, "invalid_blocks"), Reply())
    await slack.send(message("job.blocked"))
    assert json.loads(receiver.requests[1].body) == {"text": render(message("job.blocked"))["text"]}


async def test_a_plain_text_that_slack_dislikes_too_is_given_up(slack: SlackAnnouncer, receiver: Receiver) -> None:
    receiver.script(Reply(400, "invalid_payload"))
    with pytest.raises(DeliveryFailed) as failed:
        await slack.send(message())
    assert failed.value.permanent
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("reply", [Reply(), Reply(404, f"no_service at {SECRET_PATH}"), Reply(500, SECRET_PATH), None], ids=str)
async def test_the_url_is_in_no_log_error_or_repr_i06(
    slack: SlackAnnouncer, receiver: Receiver, caplog: pytest.LogCaptureFixture, reply: Reply | None
) -> None:
    receiver.answer = lambda _sent: reply or Reply(200, b"", {"Content-Length": "10"})
    seen = [repr(slack), repr(vars(slack))]
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="httpx2"):
        try:
            await slack.send(message())
        except DeliveryFailed as error:
            seen += [str(error), repr(error)]
    logged = [record.getMessage() for record in caplog.records]
    assert any("HTTP Request: POST (secret URL)" in line for line in logged)
    assert [line for line in [*seen, *logged] if "verysecrettoken" in line] == []


async def test_a_slack_that_is_not_there_is_worth_another_try(caplog: pytest.LogCaptureFixture) -> None:
    announcer = SlackAnnouncer("http://127.0.0.1:1/verysecrettoken", ManualClock(NOW))
    with caplog.at_level(logging.DEBUG), pytest.raises(DeliveryFailed) as failed:
        await announcer.send(message())
    await announcer.close()
    assert not failed.value.permanent
    assert "verysecrettoken" not in f"{failed.value!r}{caplog.text}"


@pytest.mark.parametrize("url", ["", "not a url", "ftp://x/verysecrettoken", "https:///verysecrettoken"])
def test_a_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="SPOT_WATCHDOG_SLACK_WEBHOOK_URL") as refused:
        SlackAnnouncer(url, ManualClock(NOW))
    assert "verysecrettoken" not in str(refused.value)
