"""The pipeline on Spark: from the journals of many hosts to tables of loss, delivery, liveness and security."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read"]


def read(spark: SparkSession, tables: str, name: str) -> DataFrame:
    """A table of the folder or URI ``tables`` as the last build has left it, with ``day`` (a date) as its last column.
    All tables that are read before the next build belong together. Spark needs no jar for it; where it has a file
    system for the place, it reads only the columns and files that a query needs.

    Raises PipelineError: no_tables, no_place, old_tables.
    """
    from bccnd.pipeline.lake.spark_reader import read_table

    return read_table(spark, tables, name)
