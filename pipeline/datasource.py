"""``format("idemproxy")``: what Spark is given to register. Says who reads, and nothing else.

Where the package is installed Spark looks it up by itself (``pyspark_idemproxy``), in every session. So this imports
what a verb needs when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from .source.reader import BatchReader
    from .source.stream import StreamReader

_STREAMS_SINCE: Final = (4, 2)
"""PySpark: before it, sources in Python had no limit for a trigger and no ``Trigger.AvailableNow``."""


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
        """Of ``spark.read``. Raises WrongOption."""
        from .source.columns import check_schema
        from .source.options import parse_options
        from .source.reader import BatchReader

        check_schema(schema, self.options)
        return BatchReader(parse_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Of ``spark.readStream``. Raises WrongOption."""
        from .source.columns import check_schema
        from .source.options import parse_options
        from .source.problems import WrongOption

        if tuple(map(int, pyspark.__version__.split(".")[:2])) < _STREAMS_SINCE:
            raise WrongOption(f"readStream: PySpark 4.2 or later is wanted, this one is {pyspark.__version__}")
        from .source.stream import StreamReader

        check_schema(schema, self.options)
        return StreamReader(parse_options(self.options, is_stream=True))


def register(spark: SparkSession) -> None:
    """Make ``format("idemproxy")`` known to a session that has not found it by itself."""
    spark.dataSource.register(IdemproxyDataSource)
