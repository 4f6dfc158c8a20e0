"""Roles from STS: signed requests with a key, and requests with a pod's token."""

import time
from pathlib import Path

import pytest

from producer import Credentials, CredentialsError, StaticCredentials
from producer.sinks.loghub.credentials import asking
from producer.sinks.loghub.credentials.metadata import EcsRamRoleCredentials
from producer.sinks.loghub.credentials.sts import OidcCredentials, RamRoleArnCredentials, Role, signature
from tests.support.aliyun import ARN, KEY, POD_TOKEN, SECRET, Aliyun


def _key(secret: str = SECRET, token: str | None = None) -> StaticCredentials:
    return StaticCredentials(credentials=Credentials(access_key_id=KEY, access_key_secret=secret, security_token=token))


@pytest.fixture
def pod(tmp_path: Path, service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a pod with a role, and the file of its token."""
    file = tmp_path / "token"
    file.write_text(POD_TOKEN + "\n")
    monkeypatch.setenv("ALIBABA_CLOUD_ROLE_ARN", ARN)
    monkeypatch.setenv("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/ack")
    monkeypatch.setenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE", str(file))
    return file


def test_the_signature_is_that_of_aliyun_s_documentation() -> None:
    """The example of the RPC signature mechanism gives the published signature."""
    params = {
        "Timestamp": "2016-02-23T12:46:24Z",
        "Format": "XML",
        "AccessKeyId": "testid",
        "Action": "DescribeRegions",
        "SignatureMethod": "HMAC-SHA1",
        "SignatureNonce": "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf",
        "Version": "2014-05-26",
        "SignatureVersion": "1.0",
    }
    assert signature("GET", params, "testsecret") == "OLeaidS1JvxuMvnyHOwuJ+uX5qY="


@pytest.mark.parametrize("token", [None, "earlier/token+=="])
def test_a_key_assumes_a_role(service: Aliyun, token: str | None) -> None:
    """A signed AssumeRole returns a session; the key may itself be temporary; odd characters do not break it."""
    role = Role(arn=ARN, policy='{"Version": "1", "*": "~ ä+&"}', external_id="x y", session_name="me")
    found = RamRoleArnCredentials(role, _key(token=token)).get_credentials()
    assert (found.access_key_id, found.security_token) == ("STS.1", "token-1")
    assert service.asked == ["POST AssumeRole"]


def test_a_refusal_names_the_code_and_the_request_but_no_secret(service: Aliyun) -> None:
    """STS's message repeats the signed text with the security token; the error has its code and request id only."""
    with pytest.raises(CredentialsError) as caught:
        RamRoleArnCredentials(Role(arn=ARN), _key("wrong-secret", "s3cr3t-token")).get_credentials()
    text = f"STS refuses the role {ARN}: SignatureDoesNotMatch (HTTP 400, request A-1)"
    assert str(caught.value) == f"CredentialsError: {text}"


def test_a_pod_assumes_its_role_by_the_token_in_the_file(service: Aliyun, pod: Path) -> None:
    """The file is read at each refresh: Kubernetes replaces the token."""
    provider = OidcCredentials(Role())
    assert provider.get_credentials().access_key_id == "STS.1"
    pod.write_text("an.expired.token")
    with pytest.raises(CredentialsError, match=r"AuthenticationFail.OIDCToken.Expired \(HTTP 400, request A-2\)"):
        provider.get_credentials()
    pod.write_text(POD_TOKEN)
    assert provider.get_credentials().access_key_id == "STS.2"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), (b"\xff", "is not UTF-8"), (b"x" * 70_000, "has more than 65536 bytes")],
)
def test_a_token_file_that_cannot_be_used_is_named(pod: Path, content: bytes | None, words: str) -> None:
    """The error has the path and the fault."""
    pod.unlink() if content is None else pod.write_bytes(content)
    with pytest.raises(CredentialsError, match=f"{pod} {words}"):
        OidcCredentials(Role()).get_credentials()


@pytest.mark.parametrize("name", ["ROLE_ARN", "OIDC_PROVIDER_ARN", "OIDC_TOKEN_FILE"])
def test_a_missing_variable_of_a_pod_is_named(pod: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The error names the variable."""
    monkeypatch.delenv(f"ALIBABA_CLOUD_{name}")
    with pytest.raises(CredentialsError, match=f"ALIBABA_CLOUD_{name} is not set"):
        OidcCredentials(Role()).get_credentials()


@pytest.mark.parametrize("hours", [-9, 9])
def test_a_wrong_clock_of_this_machine_does_not_matter(service: Aliyun, pod: Path, hours: int) -> None:
    """A machine whose clock is wrong by hours gets credentials from STS and from the metadata service: a request has
    the service's time after a refusal, and the life of credentials is that by the service's clock.
    """
    service.clock_offset = hours * 3600.0
    for provider in (RamRoleArnCredentials(Role(arn=ARN), _key()), OidcCredentials(Role()), EcsRamRoleCredentials()):
        found = provider.get_credentials()
        assert 3500 < (found.expires_at or 0.0) - time.time() < 3700
    assert service.asked[:4] == ["POST AssumeRole"] * 2 + ["POST AssumeRoleWithOIDC"] * 2


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (502, b"<html>s3cr3t</html>", r"not an answer of STS \(HTTP 502\)"),
        (403, b'{"Code": "No\\nPermission s3cr3t", "RequestId": "s3cr3t !"}', r"not an answer of STS \(HTTP 403\)"),
        (200, b"{}", "STS answered without credentials"),
        (200, b'{"Credentials": "s3cr3t"}', "STS answered without credentials"),
    ],
)
def test_a_bad_answer_of_sts_is_not_repeated(service: Aliyun, pod: Path, status: int, body: bytes, words: str) -> None:
    """An answer that STS would not give is reported without its content."""
    service.instead = lambda _: (status, body)
    with pytest.raises(CredentialsError, match=words) as caught:
        OidcCredentials(Role()).get_credentials()
    assert "s3cr3t" not in str(caught.value)


def test_sts_that_drips_is_left_at_the_limit(service: Aliyun, pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without end costs the limit of a provider, and no more."""
    monkeypatch.setattr(asking, "LIMIT", 0.3)
    service.drips = True
    began = time.monotonic()
    with pytest.raises(CredentialsError, match=r"does not answer: no complete answer within"):
        OidcCredentials(Role()).get_credentials()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("role", "variables", "url"),
    [
        (Role(), {}, "https://sts.aliyuncs.com"),
        (Role(region="cn-hangzhou"), {}, "https://sts.cn-hangzhou.aliyuncs.com"),
        (
            Role(),
            {"STS_REGION": "cn-beijing", "VPC_ENDPOINT_ENABLED": "true"},
            "https://sts-vpc.cn-beijing.aliyuncs.com",
        ),
        (Role(region="cn-hangzhou", in_vpc=True), {"STS_REGION": "x"}, "https://sts-vpc.cn-hangzhou.aliyuncs.com"),
    ],
)
def test_the_endpoint_of_sts_is_chosen_as_by_aliyun_s_tools(
    monkeypatch: pytest.MonkeyPatch, role: Role, variables: dict[str, str], url: str
) -> None:
    """The central endpoint, that of a region, or that within a VPC; always https."""
    for name in ("STS_REGION", "VPC_ENDPOINT_ENABLED"):
        monkeypatch.delenv(f"ALIBABA_CLOUD_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"ALIBABA_CLOUD_{name}", value)
    assert role.endpoint() == url
