"""The metadata client and the watcher: what is known, and what is only not known."""

from __future__ import annotations

import threading
from datetime import datetime, timezone

import pytest
from agent.tests.servers import Answer, Metadata, wait_for

from spot_watchdog_agent.errors import MetadataUnavailable
from spot_watchdog_agent.imds import InstanceMetadata
from spot_watchdog_agent.stores.s3 import _region
from spot_watchdog_agent.watcher import NoticeWatcher
from spot_watchdog_agent.wire import MetadataState, NoticeKind

NOTICE = '{"action":"terminate","time":"2026-01-15T09:42:00Z"}'


@pytest.fixture
def metadata():
    return Metadata()


@pytest.fixture
def server(stub, metadata):
    return stub(metadata)


@pytest.fixture
def client(server):
    return InstanceMetadata(server.url)


def test_items_are_read_with_one_token(client, server):
    assert (client.get("instance-id"), client.get("placement/availability-zone-id")) == ("i-0aaa", "use1-az1")
    assert [request.method for request in server.requests] == ["PUT", "GET", "GET"]


def test_only_an_authenticated_404_means_no_notice(client, metadata):
    assert client.instance_action() is None
    for status in (400, 403, 500, 503):
        metadata.failure = Answer(status)
        with pytest.raises(MetadataUnavailable):
            client.instance_action()


def test_a_stale_token_is_renewed_within_the_same_call(client, server, metadata):
    client.get("instance-id")
    metadata.tokens.clear()
    metadata.items["spot/instance-action"] = NOTICE
    server.requests.clear()
    assert client.instance_action().action == "terminate"
    assert [request.method for request in server.requests] == ["GET", "PUT", "GET"]
    for request in server.requests:
        assert [name.lower() for name, _ in request.headers].count("x-aws-ec2-metadata-token") <= 1


def test_one_bad_answer_is_asked_again(client, server, metadata):
    client.get("instance-id")
    once = [Answer(503)]
    server.respond = lambda request: once.pop() if once else metadata(request)
    assert client.get("instance-id") == "i-0aaa"


def test_proxies_are_never_asked(client, stub, environment):
    trap = stub(lambda _: Answer(body=NOTICE))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        environment.setenv(name, trap.url)
    assert client.get("instance-id") == "i-0aaa"
    assert trap.requests == []


def test_a_token_that_cannot_travel_names_the_hop_limit(stub):
    never = threading.Event()
    server = stub(lambda request: Answer(hang=never) if request.method == "PUT" else Answer(401))
    with pytest.raises(MetadataUnavailable, match="hop limit"):
        InstanceMetadata(server.url).get("instance-id")
    never.set()


def test_a_notice_that_cannot_be_read_is_unknown(client, metadata):
    for body in ("", "abcd", "[]", "{}", '{"action":"terminate","time":"soon"}'):
        metadata.items["spot/instance-action"] = body
        with pytest.raises(MetadataUnavailable):
            client.instance_action()


def test_role_credentials_and_region(client, metadata):
    metadata.items["iam/security-credentials/"] = "trainer"
    metadata.items["iam/security-credentials/trainer"] = (
        '{"Code":"Success","AccessKeyId":"A","SecretAccessKey":"S","Token":"T","Expiration":"2026-01-15T15:42:00Z"}'
    )
    credentials = client.role_credentials()
    assert credentials["access_key_id"] == "A"
    assert credentials["expires_at"] == datetime(2026, 1, 15, 15, 42, tzinfo=timezone.utc)
    metadata.items["placement/region"] = "eu-west-1"
    assert _region(client) == "eu-west-1"


def test_the_environment_says_where_metadata_is(environment):
    assert InstanceMetadata.from_environment() is None
    environment.delenv("AWS_EC2_METADATA_DISABLED")
    assert InstanceMetadata.from_environment().endpoint == "http://169.254.169.254"
    environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1234/")
    assert InstanceMetadata.from_environment().endpoint == "http://127.0.0.1:1234/"


class Listener:
    def __init__(self) -> None:
        self.identities: list = []
        self.notices: list = []
        self.states: list = []

    def identified(self, identity) -> None:
        self.identities.append(identity)

    def noticed(self, notice) -> None:
        self.notices.append(notice)

    def watching(self, state, message) -> None:
        self.states.append((state, message))


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def watch(client, listener):
    watchers = []

    def start(*, expected: bool, metadata=client) -> NoticeWatcher:
        watcher = NoticeWatcher(metadata, listener, expected=expected)
        watchers.append(watcher)
        watcher.start()
        return watcher

    yield start
    for watcher in watchers:
        watcher.close()


def test_the_watcher_tells_identity_notices_and_recommendations(watch, listener, metadata):
    watcher = watch(expected=True)
    assert watcher.settled.wait(30)
    assert listener.identities[0].instance_id == "i-0aaa"
    metadata.items["spot/instance-action"] = NOTICE
    metadata.items["events/recommendations/rebalance"] = '{"noticeTime":"2026-01-15T09:30:00Z"}'
    wait_for(lambda: len({notice.kind for notice in listener.notices}) == 2, "both notices are told")
    spot = next(notice for notice in listener.notices if notice.kind is NoticeKind.SPOT_INTERRUPTION)
    assert (spot.action, spot.reclaim_at) == ("terminate", datetime(2026, 1, 15, 9, 42, tzinfo=timezone.utc))
    assert listener.states == [(MetadataState.WATCHING, None)]


def test_a_silent_service_on_an_instance_is_blindness_not_peace(watch, listener, metadata):
    metadata.failure = Answer(500)
    watcher = watch(expected=True)
    wait_for(lambda: listener.states, "the watcher is blind")
    assert listener.states[0][0] is MetadataState.BLIND
    assert not watcher.settled.is_set()  # never registered with an empty identity
    metadata.failure = None
    wait_for(lambda: listener.states[-1][0] is MetadataState.WATCHING, "the watcher sees again")
    assert listener.identities


def test_without_metadata_there_is_nothing_to_watch(watch, listener):
    watcher = watch(expected=True, metadata=None)
    assert watcher.settled.is_set()
    assert listener.states == [(MetadataState.ABSENT, None)]


def test_on_a_laptop_silence_is_absence(watch, listener, metadata):
    metadata.failure = Answer(500)
    watcher = watch(expected=False)
    wait_for(lambda: listener.states, "the watcher gives up")
    assert listener.states == [(MetadataState.ABSENT, None)]
    assert watcher.settled.is_set()
