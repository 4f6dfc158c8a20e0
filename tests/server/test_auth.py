import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from producer.server import AccessKey, LogHubServer
from producer.wire.signing import http_date

from .client import PROJECT, Client, error_of, log_group

MINUTE = 60


@pytest.fixture(params=[1, 4])
def signed(client: Client, request: pytest.FixtureRequest) -> Client:
    client.sign_version = request.param
    return client


@pytest.fixture
def sts() -> Iterator[tuple[LogHubServer, Client]]:
    keys = {"STS.id": AccessKey(secret="s3cret", security_token="token-1")}
    with LogHubServer(access_keys=keys) as server, Client(server, security_token="token-1") as client:
        yield server, client


@pytest.mark.parametrize(
    ("client_has", "changed", "code"),
    [
        ({"access_key_id": "nobody"}, {}, "InvalidAccessKeyId"),
        ({"security_token": "stray"}, {}, "Unauthorized"),
        *(
            ({}, {"Authorization": other}, "MissAccessKeyId")
            for other in (None, "", "LOG", "LOG a", "Basic YTpi", "SLS4-HMAC-SHA256 Credential=a", "LOG :x")
        ),
        ({}, {"x-log-bodyrawsize": "7"}, "SignatureNotMatch"),
        ({}, {"x-log-added": "1"}, "SignatureNotMatch"),
        ({}, {"x-acs-added": "1"}, "SignatureNotMatch"),
        ({}, {"Content-Type": "application/x-protobuf; v=2"}, "SignatureNotMatch"),
        ({}, {"x-log-compresstype": None}, "SignatureNotMatch"),
    ],
)
def test_an_invalid_key_token_signature_or_signed_header_is_401(
    signed: Client, client_has: dict[str, str], changed: dict[str, str | None], code: str
) -> None:
    """An invalid key, token, signature or signed header is 401.

    Both versions sign every x-log- and x-acs- header and the content type.
    """
    for name, value in client_has.items():
        setattr(signed, name, value)
    assert error_of(signed.put(log_group("x"), after_signing=changed)) == (401, code)


def test_a_wrong_secret_is_401(signed: Client) -> None:
    """A wrong secret is SignatureNotMatch, and neither secret is in the answer."""
    signed.access_key_secret = "another-secret"
    answer = signed.put(log_group("x"))
    assert error_of(answer) == (401, "SignatureNotMatch")
    assert "secret" not in answer.text.replace("access key's secret", "")


def test_a_proxy_may_add_x_log_meta_headers_which_are_never_signed(signed: Client) -> None:
    """A proxy may add x-log-meta- headers, which are never signed."""
    assert signed.put(log_group("x"), after_signing={"x-log-meta-user": "me"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("my-project.{here}", None, 200),
        ("my-project.localhost:{port}", None, 200),
        ("{here}", "http://{here}", 200),
        ("evil.example:{port}", None, 401),
        ("127.0.0.1.evil.example", None, 401),
        ("localhost.evil", None, 401),
        ("my-project.{here}", "http://evil.example", 401),
        ("{here}", "null", 401),
    ],
)
def test_no_page_of_another_site_uses_the_default_key(
    client: Client, host: str, origin: str | None, status: int
) -> None:
    """With the default key, a foreign Host or Origin is refused; a server with its own keys accepts any."""
    here = {"here": f"127.0.0.1:{client.server.port}", "port": client.server.port}
    headers = {"Host": host.format(**here), "x-log-project": "my-project", "Origin": origin and origin.format(**here)}
    answer = client.put(log_group("x"), headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert "127.0.0.1 or localhost" in answer.json()["errorMessage"]
    with LogHubServer(access_keys={"me": "mine"}) as server, Client(server) as owner:
        assert owner.put(log_group("x"), headers={"Host": "my-project.loghub.example"}).status_code == 200


def test_version_4_covers_the_host_and_the_query(client: Client) -> None:
    """A changed Host is SignatureNotMatch in version 4, a changed parameter in both versions."""
    client.sign_version = 4
    answer = client.put(log_group("x"), after_signing={"Host": f"other-project.127.0.0.1:{client.server.port}"})
    assert error_of(answer) == (401, "SignatureNotMatch")
    for version in (1, 4):
        client.sign_version = version
        headers = client.sign("GET", "/logstores", {"offset": "0"}, {}, b"")
        url = f"{client.server.endpoint}/logstores?offset=1"
        assert error_of(client.session.get(url, headers=headers)) == (401, "SignatureNotMatch")


def test_parameters_that_need_encoding_verify(signed: Client) -> None:
    """Spaces, reserved signs and text beyond ASCII are signed decoded (version 1) or encoded (version 4)."""
    signed.put(log_group("x"))
    params = {"type": "log", "from": "0", "to": "9", "query": 'a b & "c=d+e"/~"é" %20', "topic": ""}
    assert signed.get("/logstores/app-log", **params).status_code == 200


def test_a_body_changed_on_the_way_is_refused(server: LogHubServer, signed: Client) -> None:
    """A body with another digest than the signed one is PostBodyInvalid, whatever its size."""
    path = "/logstores/app-log/shards/lb"
    for raw in (log_group("x"), log_group("x" * 100_000)):
        headers = signed.sign("POST", path, {}, {"Content-Type": "application/x-protobuf"}, raw)
        changed = raw[:-1] + bytes([raw[-1] ^ 1])
        answer = signed.session.post(server.endpoint + path, headers=headers, data=changed)
        assert error_of(answer) == (400, "PostBodyInvalid")
    assert server.count(PROJECT, "app-log") == 0


def test_a_digest_changed_on_the_way_is_401(signed: Client) -> None:
    """A changed digest is 401 before the body is read, since the signature covers it."""
    digests = {
        "Content-MD5": hashlib.md5(b"other").hexdigest().upper(),
        "x-log-content-sha256": hashlib.sha256(b"other").hexdigest(),
    }
    header = "Content-MD5" if signed.sign_version == 1 else "x-log-content-sha256"
    answer = signed.put(log_group("x"), after_signing={header: digests[header]})
    assert error_of(answer) == (401, "SignatureNotMatch")


def test_a_version_4_request_without_x_log_content_sha256_is_postbodyinvalid_even_without_a_body(
    client: Client,
) -> None:
    """A version 4 request without x-log-content-sha256 is PostBodyInvalid, even without a body."""
    client.sign_version = 4
    answer = client.request("GET", "/logstores", after_signing={"x-log-content-sha256": None})
    assert error_of(answer) == (400, "PostBodyInvalid")


def test_a_version_1_request_with_a_body_but_without_content_md5_is_missingcontentmd5(client: Client) -> None:
    """A version 1 request with a body but without Content-MD5 is MissingContentMD5."""
    assert error_of(client.put(log_group("x"), after_signing={"Content-MD5": None})) == (400, "MissingContentMD5")


@pytest.mark.parametrize("minutes", [-16, 16, -14, 14])
def test_a_clock_more_than_15_minutes_off_is_request_time_expired(signed: Client, minutes: int) -> None:
    """A request signed more than 15 minutes off is RequestTimeExpired; Date is the server's time."""
    signed.clock_offset = minutes * MINUTE
    answer = signed.put(log_group("x"))
    date = datetime.strptime(answer.headers["Date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    assert abs(date.timestamp() - datetime.now(UTC).timestamp()) < 5
    if abs(minutes) < 15:
        assert answer.status_code == 200
    else:
        assert error_of(answer) == (400, "RequestTimeExpired")


def test_the_server_s_clock_can_be_set(server: LogHubServer, signed: Client) -> None:
    """clock_offset moves the server's Date and its check of the request's time together."""
    server.clock_offset = 3600
    refused = signed.put(log_group("x"))
    assert error_of(refused) == (400, "RequestTimeExpired")
    signed.clock_offset = 3600
    assert signed.put(log_group("x")).status_code == 200


def test_version_1_prefers_x_log_date(client: Client) -> None:
    """x-log-date overrides Date, for proxies that change or drop Date."""
    for date in (None, http_date(datetime(2001, 1, 1, tzinfo=UTC))):
        assert client.put(log_group("x"), after_signing={"Date": date}).status_code == 200
    # Without it Date counts.
    assert client.put(log_group("x"), after_signing={"x-log-date": None}).status_code == 200


def test_a_time_that_cannot_be_read_is_invalid_request_time(signed: Client) -> None:
    """A missing or malformed time is InvalidRequestTime."""
    for text in ("yesterday", ""):
        answer = signed.put(log_group("x"), after_signing={"Date": None, "x-log-date": text})
        assert error_of(answer) == (400, "InvalidRequestTime")


def test_a_version_4_credential_of_another_day_is_signaturenotmatch(client: Client) -> None:
    """A version 4 credential of another day is SignatureNotMatch."""
    client.sign_version = 4
    path, body = "/logstores/l/shards/lb", log_group("x")
    headers = client.sign("POST", path, {}, {"Content-Type": "application/x-protobuf"}, body)
    day = headers["x-log-date"][:8]
    forged = headers | {"Authorization": headers["Authorization"].replace(f"/{day}/", "/20200101/")}
    for sent, status in [(headers, 200), (forged, 401)]:
        assert client.session.post(client.server.endpoint + path, headers=sent, data=body).status_code == status


@pytest.mark.parametrize("token", ["token-2", None])
def test_a_wrong_or_missing_sts_token_is_unauthorized(sts: tuple[LogHubServer, Client], token: str | None) -> None:
    """A key with an STS token is accepted with exactly that token."""
    server, client = sts
    assert client.put(log_group("x")).status_code == 200
    client.security_token = token
    assert error_of(client.put(log_group("x"))) == (401, "Unauthorized")
    assert server.count(PROJECT, "app-log") == 1


def test_keys_can_be_rotated_while_the_server_runs(sts: tuple[LogHubServer, Client]) -> None:
    """A token changed on the server is Unauthorized until the client has the new one, and so is a disabled key."""
    server, client = sts
    server.access_keys["STS.id"] = AccessKey(secret="s3cret", security_token="token-2")
    assert error_of(client.put(log_group("x"))) == (401, "Unauthorized")
    client.security_token = "token-2"
    assert client.put(log_group("x")).status_code == 200
    server.access_keys["STS.id"] = AccessKey(secret="s3cret", security_token="token-2", enabled=False)
    assert error_of(client.put(log_group("x"))) == (401, "Unauthorized")


def test_secrets_are_not_in_a_repr() -> None:
    """Neither an AccessKey nor a server shows a secret in its repr."""
    key = AccessKey(secret="hush", security_token="quiet")
    assert "hush" not in repr(key)
    assert "quiet" not in repr(key)


@pytest.mark.parametrize("header", ["Date", "x-log-date"])
@pytest.mark.parametrize(
    "text",
    [
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
        "Mon, 01 Jan 2024 00:00:00 -9999",
        "99999999999999999999 Jan 2024 00:00:00 GMT",
    ],
)
def test_a_time_beyond_every_calendar_is_invalid_request_time(client: Client, header: str, text: str) -> None:
    """A year, day or zone that no date has is InvalidRequestTime."""
    answer = client.put(log_group("x"), after_signing={"Date": None, "x-log-date": None, header: text})
    assert error_of(answer) == (400, "InvalidRequestTime")


def test_the_first_and_the_last_year_are_only_far_away(client: Client) -> None:
    """Times in the first and last year are compared, and expired."""
    for text in ("Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359"):
        answer = client.put(log_group("x"), after_signing={"x-log-date": text})
        assert error_of(answer) == (400, "RequestTimeExpired")
