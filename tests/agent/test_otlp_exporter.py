"""The source ``otlp`` with OpenTelemetry's own exporter."""

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from tests.agent.sources.listeners import serving


def test_opentelemetrys_exporter_compressed_and_with_a_token_delivers_each_record_as_an_event() -> None:
    """OpenTelemetry's exporter, compressed and with a token, delivers each record as an event."""
    with serving("otlp", token="a secret") as served:
        host, port = served.address
        exporter = OTLPLogExporter(
            endpoint=f"http://{host}:{port}/v1/logs",
            headers={"authorization": "Bearer a secret"},
            compression=Compression.Gzip,
        )
        provider = LoggerProvider(Resource({"service.name": "shop"}), shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        record = LogRecord(
            timestamp=1_700_000_000_123_456_789,
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            body="sold out",
            event_name="sale",
            attributes={"item": 7},
        )
        provider.get_logger("checkout").emit(record)
        provider.shutdown()
        ((headers, body),) = served.outlet.events
        assert body == b"sold out"
        assert headers.pop("observed_timestamp").isdecimal()
        assert headers == {
            "resource.service.name": "shop",
            "scope": "checkout",
            "timestamp": "1700000000123",
            "severity": "WARN",
            "severity_number": "13",
            "event_name": "sale",
            "item": "7",
        }
