"""The options of a write: invalid ones are refused with what to do, without secrets."""

import pickle

import pyarrow as pa
import pytest

from producer.model.credentials import Credentials, EnvironmentCredentials
from producer.model.errors import ConfigError
from producer.server import LogHubServer
from producer.spark.check import fault_of
from producer.spark.options import WRITE_OPTIONS, ImportedCredentials, documented, lack_of_credentials
from producer.spark.reading import default_schema
from producer.spark.writing.options import Columns, WriteOptions
from producer.spark.writing.task import write_rows
from tests.spark.writing.kit import target
from tests.support.aliyun import aliyun

TARGET = {"endpoint": "http://127.0.0.1:9", "project": "p", "logstore": "l"}


def options(**more: str) -> WriteOptions:
    return WriteOptions.from_mapping({**TARGET, **more})


def refusal(**more: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        options(**more)
    return caught.value


class TestProvider:
    """A provider for the tests, found by its path."""

    __test__ = False

    def get_credentials(self) -> Credentials:
        return Credentials(access_key_id="from-provider", access_key_secret="s")


def test_names_are_found_in_whatever_case_spark_hands_them_over() -> None:
    """Options are found in any case."""
    found = options(timecolumn="t", TOPICCOLUMN="u", shardHashColumn="h", contentscolumn="c", SourceColumn="s")
    assert found.columns == Columns(time="t", topic="u", source="s", shard_hash="h", contents="c")


def test_a_batch_has_a_megabyte_by_default_and_the_producers_option_overrides_it() -> None:
    """A batch has a megabyte by default; the producer's option overrides it."""
    assert options().config.batch_size_threshold_in_bytes == 1 << 20
    assert options(batch_size_threshold_in_bytes="1000").config.batch_size_threshold_in_bytes == 1000


def test_a_logstore_that_cannot_exist_is_refused_before_the_job() -> None:
    """An invalid logstore's name is refused before the job by the rule of `send`."""
    with pytest.raises(ConfigError, match=r"^logstore: must be lower-case letters, .* got 'App'"):
        options(logstore=" App ")


@pytest.mark.parametrize("name", ["endpoint", "project", "logstore"])
def test_missing_target_is_named(name: str) -> None:
    """A missing endpoint, project or logstore is named."""
    given = {key: value for key, value in TARGET.items() if key != name}
    with pytest.raises(ConfigError, match=f"^{name}: is required"):
        WriteOptions.from_mapping(given)


def test_no_options_at_all_are_explained_as_those_of_an_sql_table() -> None:
    """No options at all are explained as those of an SQL table."""
    with pytest.raises(ConfigError, match="INSERT INTO t WITH"):
        WriteOptions.from_mapping({"option.endpoint": "x", "owner": "root", "provider": "loghub"})


def test_an_unknown_option_is_refused_with_the_closest_names() -> None:
    """An unknown option is refused with the closest names."""
    assert "did you mean topicColumn" in str(refusal(topic_column="x"))
    assert "did you mean linger_ms" in str(refusal(linger_msx="5"))


def test_value_of_an_unknown_option_is_not_shown() -> None:
    """The value of an unknown option, which may be a secret, is not shown."""
    assert "hunter2" not in str(refusal(accessKeySecrett="hunter2"))


def test_path_is_refused_with_words() -> None:
    """A path is refused with an explanation."""
    assert "LogHub has no paths" in str(refusal(path="/a/b"))


def test_sparks_own_options_are_accepted() -> None:
    """Spark's own options are accepted."""
    assert options(checkpointLocation="/x", queryName="q", owner="me", provider="loghub").topic == ""


def test_producer_options_have_their_documented_names() -> None:
    """Every option of the producer can be given, also those of HTTP."""
    config = options(linger_ms="250", LINGER_MS="300", **{"http.verify": "false", "compression": "zstd"}).config
    assert (config.linger_ms, config.http.verify, config.compression) == (300, False, "zstd")


def test_a_task_waits_for_memory_as_long_as_for_acknowledgements() -> None:
    """A task waits for memory as long as for acknowledgements."""
    assert options(ackTimeout="90").config.max_block_ms == 90_000
    assert options(ackTimeout="90", max_block_ms="5").config.max_block_ms == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("onFailure", "explode"),
        ("deliveryGuarantee", "atMostOnce"),
        ("ackTimeout", "soon"),
        ("ackTimeout", "0"),
        ("chunkRows", "0"),
        ("chunkBytes", "5000000"),
        ("checkTarget", "yes please"),
        ("runId", "näme"),
        ("linger_ms", "0"),
        ("endpoint", "ftp://x"),
        ("project", "a b"),
        ("credentialsProvider", "nonsense"),
        ("deadLetterPath", "/tmp/x"),
        ("runId", "run-1"),
    ],
)
def test_wrong_value_names_the_option(name: str, value: str) -> None:
    """An invalid value is refused with the option's name."""
    assert refusal(**{name: value}).name == name


def test_dead_letters_need_a_place() -> None:
    """onFailure=deadletter without a path is refused."""
    assert refusal(onFailure="deadletter").name == "deadLetterPath"
    assert options(onFailure="deadLetter", deadLetterPath="/x").on_failure == "deadletter"


def test_chunk_must_fit_into_memory() -> None:
    """exactlyOnce with less memory than two chunks is refused."""
    assert refusal(deliveryGuarantee="exactlyOnce", total_size_in_bytes="1000000").name == "chunkBytes"
    assert options(deliveryGuarantee="EXACTLYONCE").guarantee == "exactlyOnce"


def test_chunks_have_the_sizes_that_the_documentation_tells() -> None:
    """The default chunk sizes are those of the documentation."""
    default = options(deliveryGuarantee="exactlyOnce")
    assert (WRITE_OPTIONS["chunkRows"].default, WRITE_OPTIONS["chunkBytes"].default) == (16_384, 2_097_152)
    assert (default.chunk_rows, default.chunk_bytes) == (16_384, 2_097_152)


def test_half_a_key_is_refused() -> None:
    """A key id without a secret, or a secret without an id, is refused."""
    assert refusal(accessKeyId="a").name == "accessKeySecret"
    assert refusal(accessKeySecret="a").name == "accessKeyId"


def test_credentials_come_from_the_executors_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key in the options, credentials come from the executor's environment."""
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_ID", raising=False)
    found = options()
    assert found.target.project.credentials == EnvironmentCredentials()
    assert lack_of_credentials(found.target) is not None
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", "b")
    assert lack_of_credentials(found.target) is None


def test_executors_take_their_key_from_the_named_source(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """``credentials`` travels as its name; each executor asks the source, and the driver does without."""
    given = {**target(server), "credentials": "ecs-ram-role"}
    del given["accessKeyId"], given["accessKeySecret"]
    travels = pickle.dumps(WriteOptions.from_mapping(given))
    with aliyun(monkeypatch) as service:
        service.accepted_by(server)
        assert write_rows([pa.RecordBatch.from_pydict({"n": [1, 2]})], pickle.loads(travels), "run").rows == 2
        assert lack_of_credentials(pickle.loads(travels).target) is None
        service.instead = lambda _: (503, b"")
        assert "answered HTTP 503" in str(lack_of_credentials(pickle.loads(travels).target))
    assert b"secret-1" not in travels


def test_several_endpoints_are_checked_and_written_to(server: LogHubServer) -> None:
    """The check passes and the rows arrive if a later endpoint answers; if none does, only a stream passes."""
    given = target(server)
    found = WriteOptions.from_mapping({**given, "endpoint": f"http://127.0.0.1:1,{server.endpoint}"})
    assert fault_of(found.target, found.config, patient=False) is None
    assert write_rows([pa.RecordBatch.from_pydict({"n": [1, 2]})], found, "run").rows == 2
    away = WriteOptions.from_mapping({**given, "endpoint": "http://127.0.0.1:1,http://127.0.0.1:2"})
    fault = fault_of(away.target, away.config, patient=False)
    assert fault is not None
    assert fault.option == "endpoint"
    assert fault_of(away.target, away.config, patient=True) is None
    wrong = {**given, "endpoint": f"http://127.0.0.1:1,{server.endpoint}", "accessKeySecret": "wrong"}
    refused = WriteOptions.from_mapping(wrong)
    fault = fault_of(refused.target, refused.config, patient=True)
    assert fault is not None
    assert fault.option == "accessKeySecret"


@pytest.mark.parametrize("other", ["accessKeyId", "credentialsProvider"])
def test_a_source_and_another_key_are_refused(other: str) -> None:
    """Two ways to give a key are refused."""
    with pytest.raises(ConfigError, match=f"credentials: must not be given together with {other}"):
        options(credentials="oidc", **{other: "a.b:c"})
    assert refusal(credentials="nonsense").name == "credentials"


def test_provider_is_known_by_its_import_path() -> None:
    """A provider is pickled as its path, and imported where it is used."""
    found = options(credentialsProvider=f"{__name__}:TestProvider").target.project.credentials
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.get_credentials().access_key_id == "from-provider"


@pytest.mark.parametrize("path", ["no.such.module:x", f"{__name__}:no_such_name", f"{__name__}:TARGET"])
def test_a_path_that_is_not_a_providers_is_refused_with_the_option_and_the_path(path: str) -> None:
    """A path that is not a provider's is refused with the option and the path."""
    with pytest.raises(ConfigError, match="credentialsProvider: must"):
        ImportedCredentials(path).get_credentials()


def test_no_repr_holds_a_secret() -> None:
    """No repr has a secret."""
    found = options(accessKeyId="AK", accessKeySecret="hunter2", securityToken="t0ken")
    assert "hunter2" not in repr(found)
    assert "t0ken" not in repr(found)


def test_options_that_differ_only_in_case_are_the_same() -> None:
    """Options that differ only in case are the same."""
    assert documented({"TopicColumn": "a"}, ("topicColumn",)) == {"topicColumn": "a"}


def test_options_of_reading_are_ignored_as_for_a_view_of_sql() -> None:
    """Options of reading are ignored, as for a view of SQL."""
    assert options(startingOffsets="earliest", maxRowsPerTrigger="5").topic == ""
    from producer.spark.reading.plan import ReadPlan

    given = {**TARGET, "accessKeyId": "a", "accessKeySecret": "b", "topicColumn": "t", "linger_ms": "200"}
    assert ReadPlan.of(given, default_schema()).target.logstore == "l"
