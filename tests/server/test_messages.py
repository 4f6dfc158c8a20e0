import http.client
import json

import pytest

from producer.server import LogHubServer, faults
from producer.server.messages import parse_number, path_of_target, project_of

from .client import LOGSTORE, PROJECT, Client, error_of, log_group


@pytest.mark.parametrize(
    ("host", "project"),
    [
        ("my-project.cn-hangzhou.log.aliyuncs.com", "my-project"),
        ("my-project.127.0.0.1:9170", "my-project"),
        ("my-project.localhost", "my-project"),
        ("My-Project.localhost:80", "my-project"),
        ("127.0.0.1:9170", ""),
        ("127.0.0.1", ""),
        ("localhost:9170", ""),
        ("[::1]:9170", ""),
        ("::1", ""),
        (".example.com", ""),
        ("project.", ""),
        ("", ""),
    ],
)
def test_the_project_is_the_first_label_of_the_host(host: str, project: str) -> None:
    """A Host of {project}.{endpoint} names the project, also where the endpoint is an address or localhost."""
    assert project == project_of({"host": host})


def test_x_log_project_names_the_project_of_a_custom_domain() -> None:
    """x-log-project overrides the Host, whose first label is then no project."""
    assert project_of({"host": "logs.example.com", "x-log-project": "mine"}) == "mine"


@pytest.mark.usefixtures("own_key")
@pytest.mark.parametrize("headers", [{"Host": "Mine.127.0.0.1"}, {"Host": "logs.example.com", "x-log-project": "MINE"}])
def test_a_project_has_one_name_however_it_is_written(
    server: LogHubServer, client: Client, headers: dict[str, str]
) -> None:
    """Case does not matter in a project's name: in the Host, in x-log-project, for a fault, and for inspection."""
    server.faults.add(faults.answer(503, "ServerBusy"), times=1, project="MinE")
    assert error_of(client.put(log_group("x"), headers=headers)) == (503, "ServerBusy")
    assert client.put(log_group("x"), headers=headers).status_code == 200
    assert (server.count("mine", LOGSTORE), server.count("Mine", LOGSTORE)) == (1, 1)
    assert [len(server.logs(project, LOGSTORE)) for project in ("mine", "MINE")] == [1, 1]
    assert {request.project for request in server.requests} == {"mine"}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/logstores/a", "/logstores/a"),
        (b"http://p.example.com/logstores/a", "/logstores/a"),
        (b"https://p.example.com:8080/", "/"),
        (b"http://p.example.com", "/"),
        (b"/logstores/a%20b", "/logstores/a b"),
        (b"/http://x/y", "/http://x/y"),
    ],
)
def test_an_absolute_target_has_the_path_of_its_origin_form(target: bytes, path: str) -> None:
    """An absolute target, from clients with a proxy, reaches the same operation."""
    assert path == path_of_target(target)


@pytest.mark.parametrize("text", ["", "-1", "1.0", "\uff11", "1e3", "9" * 21, "11"])
def test_a_number_consists_of_ascii_digits_and_is_within_its_bounds(text: str) -> None:
    """A number consists of ASCII digits and is within its bounds."""
    with pytest.raises(Exception, match="whole number from 1 to 10"):
        parse_number("count", text, 1, 10)


def test_a_request_without_a_project_is_invalid_host(server: LogHubServer, client: Client) -> None:
    """A Host that is only an address is refused, and the answer says how to name the project."""
    answer = client.put(log_group("x"), headers={"Host": f"127.0.0.1:{server.port}"})
    assert error_of(answer) == (400, "InvalidHost")
    assert "my-project.127.0.0.1" in answer.text


@pytest.mark.usefixtures("own_key")
def test_a_custom_domain_with_x_log_project_works(server: LogHubServer, client: Client) -> None:
    """x-log-project can name the project of a write."""
    answer = client.put(log_group("x"), headers={"Host": "logs.example.com", "x-log-project": "from-header"})
    assert answer.status_code == 200
    assert server.count("from-header", "app-log") == 1


@pytest.mark.parametrize("sign_version", [1, 4])
def test_an_absolute_form_request_is_carried_out(server: LogHubServer, client: Client, sign_version: int) -> None:
    """A client with the server as its HTTP proxy can write."""
    client.sign_version = sign_version
    body = log_group("through a proxy")
    headers = client.sign(
        "POST",
        "/logstores/app-log/shards/lb",
        {},
        {"Content-Type": "application/x-protobuf", "Host": "my-project.loghub.test"},
        body,
    )
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("POST", "http://my-project.loghub.test/logstores/app-log/shards/lb", body, headers)
    assert connection.getresponse().status == 200
    connection.close()
    assert server.count(PROJECT, "app-log") == 1
    assert server.requests[0].path == "/logstores/app-log/shards/lb"


def test_x_log_requestid_is_in_successes_and_refusals_and_never_repeats(client: Client) -> None:
    """x-log-requestid is in successes and refusals, and never repeats."""
    answers = [
        client.put(log_group("x")),
        client.get("/nowhere"),
        client.get("/logstores/none"),
        client.get("/logstores"),
    ]
    ids = {answer.headers["x-log-requestid"] for answer in answers}
    assert len(ids) == 4
    assert all(answer.headers["Date"].endswith("GMT") for answer in answers)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("DELETE", "/logstores/app-log/shards/0", (405, "InvalidMethod")),
        ("PUT", "/logstores/app-log/shards/lb", (405, "InvalidMethod")),
        ("PATCH", "/", (405, "InvalidMethod")),
        ("GET", "/favicon.ico", (400, "ParameterInvalid")),
        ("POST", "/logstores/a/b/c/d", (400, "ParameterInvalid")),
        ("GET", "/logstores/", (400, "ParameterInvalid")),
    ],
)
def test_a_wrong_method_is_405_invalidmethod_another_path_400_parameterinvalid(
    client: Client, method: str, path: str, expected: tuple[int, str]
) -> None:
    """A wrong method is 405 InvalidMethod, another path 400 ParameterInvalid; both name the request's value."""
    answer = client.request(method, path)
    assert expected == error_of(answer)
    assert method in answer.text


def test_an_unsigned_stranger_learns_nothing_of_the_paths(client: Client) -> None:
    """The signature is checked first, also for paths that do not exist."""
    answer = client.request("GET", "/nowhere", after_signing={"Authorization": None})
    assert error_of(answer) == (401, "MissAccessKeyId")


@pytest.mark.parametrize("target", ["http://[::1", "http://[nothing]/x", "*", "host:443", "nowhere", "mailto:x"])
def test_a_target_without_a_path_is_refused_with_a_request_id(
    server: LogHubServer, client: Client, target: str
) -> None:
    """A target that is neither /path nor http://host/path is ParameterInvalid, and the next request is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("POST", target, skip_host=True)  # it would take the host from the target
    connection.putheader("Host", "my-project.localhost")
    connection.putheader("Content-Length", "2")
    connection.endheaders(b"{}")
    answer = connection.getresponse()
    content = json.load(answer)
    connection.close()
    assert (answer.status, content["errorCode"]) == (400, "ParameterInvalid")
    assert target in content["errorMessage"]
    assert answer.headers["x-log-requestid"]
    assert client.put(log_group("next")).status_code == 200
