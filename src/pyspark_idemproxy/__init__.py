"""By this name Spark finds ``format("idemproxy")``: it looks for modules ``pyspark_*`` with a ``DefaultSource``."""

from idemproxy.pipeline.datasource import IdemproxyDataSource as DefaultSource

__all__ = ["DefaultSource"]
