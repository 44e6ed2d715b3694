"""Reads tables as Spark does: the directory is on stdin, and the answer is JSON on stdout, as that of `engines.py`."""

import json
import os
import sys

from pyspark.sql import SparkSession, functions

request = json.load(sys.stdin)
# Java reads names of files by the locale.
os.environ["LC_ALL"] = "C.UTF-8"
os.chdir(request["directory"])
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)


def by_spark(table):
    read = spark.read.parquet("tables/%s" % table)
    types = dict(read.dtypes)
    whole = [name for name, kind in types.items() if kind in ("bigint", "int")]
    # Sums of nanoseconds since 1970 need more than 64 bits.
    wide = [functions.sum(functions.col("`%s`" % name).cast("decimal(38)")).alias(name) for name in whole]
    sums = read.agg(*wide).first().asDict() if wide else {}
    runs = [row["run"] for row in read.select("run").distinct().collect()]
    return {"types": types, "sums": {name: int(value or 0) for name, value in sums.items()}, "runs": runs}


answer = {"spark": {table: by_spark(table) for table in sorted(os.listdir("tables"))}}
spark.stop()
json.dump(answer, sys.stdout)
