"""Configuration: names, defaults and rules, checked once."""

import dataclasses
import os
import pickle
import pydoc
import typing
from typing import Any

import pytest
import tenacity

from producer import ConfigError, Credentials, HttpConfig, ProducerConfig, ProjectConfig, RetryPolicy, StaticCredentials
from producer.model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES, host_address

DEFAULTS = {
    "total_size_in_bytes": 100 * 1024 * 1024,
    "max_block_ms": 60_000,
    "io_thread_count": max(1, os.cpu_count() or 1),
    "batch_size_threshold_in_bytes": 524_288,
    "batch_count_threshold": 4096,
    "linger_ms": 2000,
    "retries": 10,
    "max_reserved_attempts": 11,
    "base_retry_backoff_ms": 100,
    "max_retry_backoff_ms": 50_000,
    "adjust_shard_hash": True,
    "buckets": 64,
    "compression": "lz4",
    "sign_version": "v1",
    "generate_pack_id": True,
    "drain_timeout_ms": 10_000,
}


def test_every_option_of_the_java_producer_has_its_snake_case_name_and_default() -> None:
    """Every option of the Java producer has its snake_case name and default."""
    config = ProducerConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS
    assert (MAX_BATCH_SIZE_IN_BYTES, MAX_BATCH_COUNT) == (8 * 1024 * 1024, 40_960)


GOOD: list[tuple[str, Any]] = [
    ("total_size_in_bytes", 1),
    ("max_block_ms", -1),
    ("max_block_ms", 0),
    ("io_thread_count", 1),
    ("batch_size_threshold_in_bytes", MAX_BATCH_SIZE_IN_BYTES),
    ("batch_count_threshold", MAX_BATCH_COUNT),
    ("linger_ms", 1),
    ("retries", -5),
    ("max_reserved_attempts", 1),
    ("base_retry_backoff_ms", 1),
    ("max_retry_backoff_ms", 1),
    ("buckets", 1),
    ("buckets", 512),
    ("compression", "zstd"),
    ("compression", "none"),
    ("source", ""),
    ("log_tags", {"a": "b"}),
    ("drain_timeout_ms", 0),
]
BAD: list[tuple[str, Any]] = [
    ("total_size_in_bytes", 0),
    ("total_size_in_bytes", 1.5),
    ("total_size_in_bytes", "100"),
    ("total_size_in_bytes", True),
    ("total_size_in_bytes", None),
    ("max_block_ms", 0.5),
    ("io_thread_count", 0),
    ("io_thread_count", None),
    ("batch_size_threshold_in_bytes", 0),
    ("batch_size_threshold_in_bytes", MAX_BATCH_SIZE_IN_BYTES + 1),
    ("batch_count_threshold", 0),
    ("batch_count_threshold", MAX_BATCH_COUNT + 1),
    ("linger_ms", 0),
    ("max_reserved_attempts", 0),
    ("base_retry_backoff_ms", 0),
    ("max_retry_backoff_ms", 0),
    ("adjust_shard_hash", 1),
    ("buckets", 0),
    ("buckets", 3),
    ("buckets", 1024),
    ("compression", "gzip"),
    ("compression", None),
    ("sign_version", "v2"),
    ("region", ""),
    ("source", 5),
    ("log_tags", {"a": 1}),
    ("log_tags", [("a", "b")]),
    ("drain_timeout_ms", -1),
    ("http", {}),
    ("retry_policy", tenacity.stop_never),
    ("name", ""),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_value_within_its_rule_is_kept(name: str, value: Any) -> None:
    """The ends of every range are allowed."""
    assert getattr(ProducerConfig(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_outside_its_rule_is_refused_with_name_rule_and_value(name: str, value: Any) -> None:
    """The error at construction gives the name, the rule in words, and what was given."""
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(**{name: value})
    assert caught.value.name == name
    assert str(caught.value).startswith(f"{name}: must be ")
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"connect_timeout_ms": 0},
        {"read_timeout_ms": -1},
        {"verify": "no"},
        {"proxies": {"https": 5}},
        {"ca_bundle": ""},
        {"pool_size": 0},
        {"user_agent": ""},
    ],
)
def test_a_wrong_http_option_is_named_with_its_prefix(options: dict[str, Any]) -> None:
    """A wrong HTTP option is named with its prefix."""
    with pytest.raises(ConfigError, match=f"^http.{next(iter(options))}: must be"):
        HttpConfig(**options)


def test_from_mapping_and_the_constructor_refuse_unknown_names_and_suggest_near_ones() -> None:
    """from_mapping and the constructor refuse unknown names and suggest near ones."""
    with pytest.raises(ConfigError, match="linger: unknown option; it is called linger_ms here"):
        ProducerConfig.from_mapping({"linger": 5})
    with pytest.raises(ConfigError, match="known options are total_size_in_bytes"):
        ProducerConfig.from_mapping({"zzz": "s3cret-value"})
    with pytest.raises(ConfigError, match="linger: unknown option; it is called linger_ms here"):
        ProducerConfig(linger=5)  # type: ignore[call-arg]


def test_signature_version_4_needs_a_region() -> None:
    """Without a region v4 is refused with an example."""
    with pytest.raises(ConfigError, match="region: must be given with sign_version='v4', such as 'cn-hangzhou'"):
        ProducerConfig(sign_version="v4")
    assert ProducerConfig(sign_version="v4", region="cn-hangzhou").region == "cn-hangzhou"


def test_text_of_any_option_is_parsed() -> None:
    """from_mapping and from_env read numbers, booleans, pairs and HTTP options from text."""
    config = ProducerConfig.from_mapping(
        {"linger_ms": "500", "adjust_shard_hash": "No", "log_tags": "a=b, c=d=e", "http.verify": "false", "retries": 3}
    )
    assert (config.linger_ms, config.adjust_shard_hash, config.retries) == (500, False, 3)
    assert config.log_tags == {"a": "b", "c": "d=e"}
    assert config.http.verify is False
    env = {"LOGHUB_PRODUCER_LINGER_MS": "700", "LOGHUB_PRODUCER_HTTP_POOL_SIZE": "3", "OTHER": "x"}
    assert ProducerConfig.from_env(environ=env).http.pool_size == 3
    assert ProducerConfig.from_env(environ=env).linger_ms == 700
    assert ProducerConfig.from_env("X_", {"X_RETRIES": "1"}).retries == 1


@pytest.mark.parametrize(
    ("name", "text"), [("linger_ms", "soon"), ("linger_ms", "0"), ("adjust_shard_hash", "maybe"), ("http", "x")]
)
def test_text_that_is_no_value_is_refused_with_the_rule(name: str, text: str) -> None:
    """Invalid text is refused with name, rule and value."""
    with pytest.raises(ConfigError, match=f"P_{name.upper()}: must be .*{text}"):
        ProducerConfig.from_env("P_", {f"P_{name.upper()}": text})


def test_a_variable_that_names_no_option_is_an_error() -> None:
    """A misspelt environment variable is not ignored."""
    with pytest.raises(ConfigError, match="LOGHUB_PRODUCER_LINGERMS: unknown option; did you mean linger_ms"):
        ProducerConfig.from_env(environ={"LOGHUB_PRODUCER_LINGERMS": "5"})


def test_a_configuration_is_frozen_and_no_longer_the_callers() -> None:
    """A configuration is frozen, and independent of the given mapping."""
    tags = {"a": "b"}
    config = ProducerConfig(log_tags=tags)
    tags["a"] = "changed"
    assert config.log_tags == {"a": "b"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.linger_ms = 5  # type: ignore[misc]


def test_configurations_pickle() -> None:
    """All parts travel in a Spark closure, strategies of tenacity included."""
    config = ProducerConfig(
        linger_ms=300,
        http=HttpConfig(verify=False),
        retry_policy=RetryPolicy(stop=tenacity.stop_never, wait=tenacity.wait_fixed(1)),
    )
    again = pickle.loads(pickle.dumps(config))
    assert (again.linger_ms, again.http) == (300, config.http)
    assert again.retry_policy.wait(None) == 1
    project = ProjectConfig("p", endpoint="http://h:1", access_key_id="id", access_key_secret="s3cret")
    assert pickle.loads(pickle.dumps(project)) == project


def test_retry_policies_take_callables_only() -> None:
    """A retry strategy that is not callable is refused by name."""
    with pytest.raises(ConfigError, match=r"retry_policy.wait: must be None or a tenacity strategy"):
        RetryPolicy(wait=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("cn-hangzhou.log.aliyuncs.com", "https://cn-hangzhou.log.aliyuncs.com"),
        ("http://127.0.0.1:9170/", "http://127.0.0.1:9170"),
        (" https://[::1]:9170 ", "https://[::1]:9170"),
    ],
)
def test_an_endpoint_keeps_scheme_host_and_port_https_is_the_default(given: str, normal: str) -> None:
    """An endpoint keeps scheme, host and port; https is the default."""
    config = ProjectConfig("p", endpoint=given, access_key_id="a", access_key_secret="b")
    assert config.endpoint == normal


def test_several_endpoints_are_a_list_or_text_with_commas() -> None:
    """``endpoints`` takes a list and ``endpoint`` text with commas; ``endpoint`` is the first, also after pickling."""
    key = {"access_key_id": "a", "access_key_secret": "b"}
    listed = ProjectConfig("p", endpoints=["a.example", "http://b"], **key)
    assert (listed.endpoint, listed.endpoints) == ("https://a.example", ("https://a.example", "http://b"))
    assert ProjectConfig("p", endpoint="a.example, http://b", **key) == listed
    assert pickle.loads(pickle.dumps(listed)) == dataclasses.replace(listed) == listed
    assert repr(listed).startswith("ProjectConfig('p', endpoints=['https://a.example', 'http://b'], ")
    assert ProjectConfig("p", endpoint="http://b", **key) == ProjectConfig("p", endpoints=["http://b"], **key)
    moved = dataclasses.replace(ProjectConfig("p", endpoint="http://a", **key), endpoint="http://b")
    assert (moved.endpoint, moved.endpoints) == ("http://b", ())


def test_an_endpoint_may_be_of_another_project() -> None:
    """A ``ProjectConfig`` after the first endpoint is another project with its own key, region and endpoints."""
    key = {"access_key_id": "i", "access_key_secret": "s3cret"}
    other = ProjectConfig("q", endpoints=["http://b", "http://c"], region="r", access_key_id="j", access_key_secret="t")
    project = ProjectConfig("p", endpoints=["http://a", other], **key)
    assert project.endpoint_names == ("http://a", "q at http://b", "q at http://c")
    found = [
        (each.project, each.endpoint, each.region, each.credentials.get_credentials().access_key_id)
        for each in pickle.loads(pickle.dumps(project)).at_each_endpoint()
    ]
    assert found == [("p", "http://a", None, "i"), ("q", "http://b", "r", "j"), ("q", "http://c", "r", "j")]
    assert project.alone() == ProjectConfig("p", endpoint="http://a", **key)
    assert "s3cret" not in repr(project)
    for given, rule in (
        ([other, "http://a"], "endpoints: must begin with an endpoint of p"),
        (["http://a", other, other], "endpoints: must differ from each other"),
    ):
        with pytest.raises(ConfigError, match=rule):
            ProjectConfig("p", endpoints=given, **key)
    with pytest.raises(ConfigError, match="region: must be None or printable ASCII text"):
        ProjectConfig("p", endpoint="http://a", region="", **key)
    with pytest.raises(ConfigError, match=r"credentials: give either access_key_id .*; project q has neither"):
        ProjectConfig("p", endpoints=["http://a", ProjectConfig("q", endpoint="http://b")], **key)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"endpoints": "http://a"}, "endpoints: must be a list of at most 8 endpoints"),
        ({"endpoints": [f"http://h{n}" for n in range(9)]}, "endpoints: must be a list of at most 8 endpoints"),
        ({"endpoints": ["http://a", "http://a/"]}, "endpoints: must differ from each other"),
        ({"endpoint": "http://a,"}, "endpoint: must be a URL of http or https"),
        ({"endpoints": ["http://a", None]}, "endpoint: must be a URL of http or https"),
        ({"endpoint": "http://c", "endpoints": ["http://a", "http://b"]}, "endpoints: must not be given together"),
        ({"endpoints": []}, "endpoint: must be a URL of http or https"),
    ],
)
def test_bad_endpoints_are_refused(given: Any, rule: str) -> None:
    """An empty, long or contradictory list of endpoints is refused, and one with a repeated endpoint."""
    with pytest.raises(ConfigError, match=rule):
        ProjectConfig("p", **given, access_key_id="a", access_key_secret="b")


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "  ", None, 5, "ftp://h", "https://", "http://h/path", "http://h?x=1", "http://h:port", "http://h:99999"),
        *("http://a..b", f"http://{'a' * 64}.b"),
    ],
)
def test_a_bad_endpoint_is_refused_with_an_example(endpoint: Any) -> None:
    """An invalid endpoint is refused with an example."""
    with pytest.raises(ConfigError, match="endpoint: must be a URL of http or https"):
        ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="b")


def test_a_password_in_an_endpoint_is_refused_and_not_shown() -> None:
    """A user or password in an endpoint is refused and not shown."""
    with pytest.raises(ConfigError) as caught:
        ProjectConfig("p", endpoint="https://user:s3cret@host", access_key_id="a", access_key_secret="b")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("project", ["", "-p", "a b", "a.b", "a/b", None, 5, "p\n"])
def test_a_bad_project_name_is_refused(project: Any) -> None:
    """An invalid project name is refused."""
    with pytest.raises(ConfigError, match="project: must be lower-case letters, digits and dashes"):
        ProjectConfig(project, endpoint="http://h", access_key_id="a", access_key_secret="b")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"access_key_id": "a"},
        {"access_key_secret": "b"},
        {"access_key_id": "", "access_key_secret": "b"},
        {"access_key_id": "a", "access_key_secret": ""},
        {"access_key_id": "a", "access_key_secret": "b", "credentials": object()},
        {"credentials": object()},
    ],
)
def test_credentials_are_given_in_exactly_one_way(keys: dict[str, Any]) -> None:
    """Half a key, none, or both ways are refused."""
    with pytest.raises(ConfigError):
        ProjectConfig("p", endpoint="http://h", **keys)


def test_no_repr_and_no_error_shows_a_secret() -> None:
    """Secrets, tokens, proxies' passwords and a provider's own repr are masked."""

    class Leaky:
        def get_credentials(self) -> Credentials:
            raise NotImplementedError

        def __repr__(self) -> str:
            return "s3cret"

    key = Credentials(access_key_id="id", access_key_secret="s3cret", security_token="s3cret")
    shown = [
        repr(key),
        repr(StaticCredentials(credentials=key)),
        repr(ProjectConfig("p", endpoint="http://h", access_key_id="id", access_key_secret="s3cret")),
        repr(ProjectConfig("p", endpoint="http://h", credentials=Leaky())),
        repr(HttpConfig(proxies={"https": "http://u:s3cret@proxy:1"})),
        repr(ProducerConfig(http=HttpConfig(proxies={"https": "http://u:s3cret@proxy:1"}))),
    ]
    for text in shown:
        assert "s3cret" not in text
    with pytest.raises(ConfigError) as caught:
        Credentials(access_key_id="a", access_key_secret=5)  # type: ignore[arg-type]
    assert "***" in str(caught.value)


def test_help_and_editors_know_the_permitted_values() -> None:
    """``help`` shows each option's rule and default, and a choice of words is a Literal."""
    told = " ".join(pydoc.render_doc(ProducerConfig, renderer=pydoc.plaintext).split())
    for rule in (
        "linger_ms: a whole number of milliseconds, at least 1, by default 2000.",
        "batch_count_threshold: a whole number of logs from 1 to 40960, by default 4096.",
        "compression: one of lz4, zstd, deflate, none, by default 'lz4'.",
        "buckets: one of 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, by default 64.",
        "io_thread_count: a whole number, at least 1, by default the number of CPUs.",
    ):
        assert rule in told
    assert "pool_size: None or a whole number from 1 to 10000, by default None." in (HttpConfig.__doc__ or "")
    hints = typing.get_type_hints(ProducerConfig)
    words = ("log_format", "compression", "sign_version", "on_unencodable")
    assert {name: typing.get_origin(hints[name]) for name in words} == dict.fromkeys(words, typing.Literal)


def test_the_hosts_address_is_found_without_failing() -> None:
    """The default source is an IPv4 address, whatever the host's name resolves to."""
    assert host_address().count(".") == 3


@pytest.mark.parametrize(
    "endpoint",
    ["https://my-project.cn-hangzhou.log.aliyuncs.com", "My-Project.cn-hangzhou-intranet.log.aliyuncs.com:443"],
)
def test_an_endpoint_that_begins_with_the_project_is_refused_with_the_right_one(endpoint: str) -> None:
    """An endpoint that begins with the project is refused with the right one."""
    rule = r"endpoint: must not begin with the project.*write https://cn-hangzhou"
    with pytest.raises(ConfigError, match=rule):
        ProjectConfig("my-project", endpoint=endpoint, access_key_id="a", access_key_secret="s")


def test_a_private_host_may_have_the_projects_name() -> None:
    """A private host may have the project's name."""
    project = ProjectConfig("log", endpoint="http://log.example.com", access_key_id="a", access_key_secret="s")
    assert project.endpoint == "http://log.example.com"
