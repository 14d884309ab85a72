import io
from typing import Any

import pytest
from rich.console import Console

from watchdog.cli.demo.slack_view import mrkdwn, render


def shown(message: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(render(message))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("*Instance*\n`i-1`", "Instance\ni-1"),
        ("a &lt;b&gt; &amp; c", "a <b> & c"),
        ("<https://example.com|the job>", "the job"),
        ("<!channel>", "@channel"),
        ("<!date^1772619450^{time_secs}|never>", "10:17:30 UTC"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
        (":white_check_mark: done", "✅ done"),
        ("`*code* stays`", "*code* stays"),
        ("[bold]no rich markup[/bold]", "[bold]no rich markup[/bold]"),
    ],
)
def test_markup_reads_as_slack_shows_it(source: str, plain: str) -> None:
    assert mrkdwn(source).plain == plain


def test_bold_is_bold() -> None:
    [span] = mrkdwn("a *b* c").spans
    assert (span.start, span.end, span.style) == (2, 3, "bold")


def test_blocks_stand_in_for_the_text() -> None:
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": "Moved"}},
        {"type": "section", "fields": [{"type": "mrkdwn", "text": "*From*\nuse1-az1"}]},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "mig_1"}]},
        {"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "Hold"}}]},
        {"type": "divider"},
    ]
    picture = shown({"text": "only for notifications", "blocks": blocks})
    for part in ("Moved", "From", "use1-az1", "mig_1", "[ Hold ]"):
        assert part in picture
    assert "only for notifications" not in picture


def test_a_message_without_blocks_shows_its_text() -> None:
    assert "hello" in shown({"text": "hello"})
