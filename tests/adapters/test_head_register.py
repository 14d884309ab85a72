"""The job's register in the object store: against moto, and against stores that break their promises."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.adapters.servers import Receiver, Reply, Request
from watchdog.adapters.aws.head_register import S3HeadRegister
from watchdog.adapters.aws.session import Aws
from watchdog.errors import CheckpointStoreUnavailable, CheckpointStoreUnsuitable, SettingsInvalid
from watchdog.ids import JobId

JOB = JobId("job_1")
SPEC: Mapping[str, Any] = {"name": "digits"}


@pytest.fixture
async def register(aws: Aws, unique: str) -> S3HeadRegister:
    await aws.call(aws.s3.create_bucket, Bucket=unique)
    return S3HeadRegister(aws, f"s3://{unique}/team", "demo")


async def keys(aws: Aws, bucket: str) -> list[str]:
    listed = await aws.call(aws.s3.list_objects_v2, Bucket=bucket)
    return [each["Key"] for each in listed.get("Contents", [])]


async def test_a_registered_job_stands_at_token_zero(register: S3HeadRegister, aws: Aws, unique: str) -> None:
    await register.register(JOB, SPEC)
    head = await register.read(JOB)
    assert head is not None
    assert {**head, "nonce": "x"} == {"format": 1, "fencing_token": 0, "owner": None, "nonce": "x", "checkpoint": None, "previous": []}
    assert await keys(aws, unique) == ["team/demo/jobs/job_1/HEAD", "team/demo/jobs/job_1/spec.json"]


async def test_registering_again_changes_nothing(register: S3HeadRegister, aws: Aws, unique: str) -> None:
    await register.register(JOB, SPEC)
    taken = json.dumps({"format": 1, "fencing_token": 7})
    await aws.call(aws.s3.put_object, Bucket=unique, Key="team/demo/jobs/job_1/HEAD", Body=taken.encode())
    await register.register(JOB, {"name": "other"})
    assert await register.read(JOB) == {"format": 1, "fencing_token": 7}
    stored = await aws.call(aws.s3.get_object, Bucket=unique, Key="team/demo/jobs/job_1/spec.json")
    assert json.loads(stored["Body"].read()) == SPEC


async def test_a_job_without_a_head_has_none(register: S3HeadRegister) -> None:
    assert await register.read(JOB) is None


async def test_a_head_that_is_no_head_is_an_error_and_not_a_fresh_start(register: S3HeadRegister, aws: Aws, unique: str) -> None:
    await aws.call(aws.s3.put_object, Bucket=unique, Key="team/demo/jobs/job_1/HEAD", Body=b"[]")
    with pytest.raises(CheckpointStoreUnavailable, match="HEAD"):
        await register.read(JOB)


async def test_a_missing_bucket_is_an_error_and_not_a_missing_head(aws: Aws) -> None:
    register = S3HeadRegister(aws, "s3://nowhere", "demo")
    for attempt in (register.read(JOB), register.register(JOB, SPEC), register.self_test()):
        with pytest.raises(CheckpointStoreUnavailable, match="nowhere"):
            await attempt


async def test_a_good_store_passes_and_no_probe_is_left_behind(register: S3HeadRegister, aws: Aws, unique: str) -> None:
    await register.self_test()
    assert await keys(aws, unique) == []


def test_the_agent_is_told_the_jobs_own_prefix(moto_clients: Aws) -> None:
    assert S3HeadRegister(moto_clients, "s3://bucket", "demo").agent_url(JOB) == "s3://bucket/demo/jobs/job_1"
    assert S3HeadRegister(moto_clients, "s3://bucket/a/b/", "demo").agent_url(JOB) == "s3://bucket/a/b/demo/jobs/job_1"


@pytest.mark.parametrize("url", ["bucket", "https://bucket", "s3://", "s3:///prefix", ""])
def test_another_kind_of_store_is_refused_at_once(moto_clients: Aws, url: str) -> None:
    with pytest.raises(SettingsInvalid, match="SPOT_WATCHDOG_CHECKPOINT_STORE"):
        S3HeadRegister(moto_clients, url, "demo")


class Store:
    """A store for one object, with faults."""

    def __init__(self, *, ignores: str = "", conflicts: int = 0, unknown: bool = False) -> None:
        self.ignores, self.conflicts, self.unknown = ignores, conflicts, unknown
        self.etag: str | None = None
        self.writes = 0

    def answer(self, sent: Request) -> Reply:
        if sent.method != "PUT":
            return Reply(200, "")
        if self.unknown:
            return self._error(501, "NotImplemented")
        if self.conflicts:
            self.conflicts -= 1
            return self._error(409, "ConditionalRequestConflict")
        condition = {name: sent.headers[name] for name in ("if-none-match", "if-match") if name in sent.headers and name != self.ignores}
        if "if-none-match" in condition and self.etag is not None:
            return self._error(412, "PreconditionFailed")
        if "if-match" in condition and condition["if-match"] != self.etag:
            return self._error(412, "PreconditionFailed")
        self.writes += 1
        self.etag = f'"{self.writes}"'
        return Reply(200, "", {"ETag": self.etag})

    @staticmethod
    def _error(status: int, code: str) -> Reply:
        return Reply(status, f"<Error><Code>{code}</Code><Message>(made-up text)</Message></Error>")


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (Store(ignores="if-none-match"), "If-None-Match"),
        (Store(ignores="if-match"), "If-Match"),
        (Store(unknown=True), "does not know"),
    ],
    ids=["ignores If-None-Match", "ignores If-Match", "knows neither"],
)
async def test_a_store_that_lets_two_own_a_job_is_unsuitable(scripted_aws: Aws, receiver: Receiver, store: Store, complaint: str) -> None:
    receiver.answer = store.answer
    with pytest.raises(CheckpointStoreUnsuitable, match=complaint) as refused:
        await S3HeadRegister(scripted_aws, "s3://bucket", "demo").self_test()
    assert "SPOT_WATCHDOG_CHECKPOINT_STORE" in str(refused.value)
    assert [each.method for each in receiver.requests][-1] == "DELETE"


async def test_a_conflict_with_another_write_is_tried_again(scripted_aws: Aws, receiver: Receiver) -> None:
    store = Store(conflicts=2)
    receiver.answer = store.answer
    await S3HeadRegister(scripted_aws, "s3://bucket", "demo").self_test()
    assert (store.conflicts, store.writes) == (0, 2)


async def test_a_store_that_refuses_us_is_unavailable_and_not_unsuitable(scripted_aws: Aws, receiver: Receiver) -> None:
    receiver.script(Reply(403, "<Error><Code>AccessDenied</Code></Error>"))
    with pytest.raises(CheckpointStoreUnavailable):
        await S3HeadRegister(scripted_aws, "s3://bucket", "demo").register(JOB, SPEC)
