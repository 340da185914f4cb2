"""The shipped sink whose driver dies, or stands still, at a step of ``commit``: what Spark registers in its place."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from idemproxy.pipeline.datasource import IdemproxyDataSource
from idemproxy.pipeline.sink.writer import StreamSink

from .sink_steps import arm, reached


class MishapSource(IdemproxyDataSource):
    """Registered in place of the shipped one, under the same name."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """With the mishap in it."""
        sink = super().streamWriter(schema, overwrite)
        assert isinstance(sink, StreamSink)
        return MishapSink(sink._options)


class MishapSink(StreamSink):
    """Counts the steps of one commit."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Until the step that was planned. The first batch is left in peace, so that there is one before."""
        if batchId:
            arm()
        super().commit(messages, batchId)
        reached("behind the commit")
