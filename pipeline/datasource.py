"""``format("idemproxy")``: the class that is registered with Spark. Names the readers and writers, and does nothing
else.

Where the package is installed Spark finds it by itself (``pyspark_idemproxy``) and imports it in every session. So
readers and writers are imported only when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from .sink.writer import BatchSink, StreamSink
    from .source.reader import BatchReader
    from .source.stream import StreamReader

_STREAMS_SINCE: Final = (4, 2)
"""The first PySpark whose sources in Python have a limit for each trigger, and ``Trigger.AvailableNow``."""
_WRITES_SINCE: Final = (4, 1)
"""The first PySpark whose stream writers in Python get Arrow batches instead of single rows."""


class IdemproxyDataSource(DataSource):
    """A Kafka cluster, with or without a proxy in front of it."""

    @classmethod
    def name(cls) -> str:
        """As in ``format("idemproxy")``."""
        return "idemproxy"

    def schema(self) -> str:
        """Return the columns to read. Raises WrongOption."""
        from .source.columns import columns_for

        return columns_for(self.options)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of ``spark.read``. Raises WrongOption."""
        from .source.columns import check_schema
        from .source.options import parse_options
        from .source.reader import BatchReader

        check_schema(schema, self.options)
        return BatchReader(parse_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of ``spark.readStream``. Raises WrongOption."""
        from .source.columns import check_schema
        from .source.options import parse_options
        from .source.problems import WrongOption

        if _version() < _STREAMS_SINCE:
            raise WrongOption(f"readStream: PySpark 4.2 or later is wanted, this one is {pyspark.__version__}")
        from .source.stream import StreamReader

        check_schema(schema, self.options)
        return StreamReader(parse_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Return the writer of ``df.write``. Raises SinkProblem."""
        from .sink.options import sink_options
        from .sink.problems import SinkProblem

        if overwrite:
            raise SinkProblem('mode("overwrite"): a log can only be appended to; use mode("append")')
        if _version() < _WRITES_SINCE:
            raise SinkProblem(f"write: PySpark 4.1 or later is wanted, this one is {pyspark.__version__}")
        from .sink.writer import BatchSink, check_schema

        options = sink_options(self.options, is_streaming=False)
        check_schema(schema, options.topic)
        return BatchSink(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Return the writer of ``df.writeStream``, in any output mode: each row is a record, as with Spark's own sink.
        Raises SinkProblem."""
        from .sink.modes import refuse_continuous
        from .sink.options import sink_options
        from .sink.problems import SinkProblem

        if _version() < _WRITES_SINCE:
            raise SinkProblem(f"writeStream: PySpark 4.1 or later is wanted, this one is {pyspark.__version__}")
        from .sink.writer import StreamSink, check_schema

        options = sink_options(self.options, is_streaming=True)
        check_schema(schema, options.topic)
        refuse_continuous(options)
        return StreamSink(options)


def register(spark: SparkSession) -> None:
    """Make ``format("idemproxy")`` known to a session that has not found it by itself."""
    spark.dataSource.register(IdemproxyDataSource)


def _version() -> tuple[int, ...]:
    return tuple(map(int, pyspark.__version__.split(".")[:2]))
