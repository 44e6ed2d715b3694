"""Reads tables as people do: what a request on stdin asks for, and answers as JSON on stdout.

A request is {"directory": ..., "sql": [...]}. The answer has the rows of each query, and how DuckDB, polars and pyarrow read each
table: its partitions, its types, and the sum of its columns.
"""

import json
import os
import sys

import duckdb
import polars
import pyarrow.dataset

request = json.load(sys.stdin)
os.chdir(request["directory"])


def rows(query):
    read = duckdb.sql(query)
    return [dict(zip(read.columns, row)) for row in read.fetchall()]


def by_duckdb(table):
    path = "'tables/%s/**/*.parquet'" % table
    types = {row["column_name"]: row["column_type"] for row in rows("DESCRIBE SELECT * FROM %s" % path)}
    sums = {name: rows("SELECT sum(\"%s\") AS s FROM %s" % (name, path))[0]["s"] for name, kind in types.items() if kind == "BIGINT"}
    runs = [row["run"] for row in rows("SELECT DISTINCT run FROM %s" % path)]
    return {"types": types, "sums": {name: none(value) for name, value in sums.items()}, "runs": runs}


def by_polars(table):
    read = polars.read_parquet("tables/%s/**/*.parquet" % table, hive_partitioning=True)
    types = {name: str(kind) for name, kind in read.schema.items()}
    sums = {name: sum(value for value in read[name].to_list() if value is not None) for name, kind in types.items() if kind == "Int64"}
    return {"types": types, "sums": sums, "runs": read["run"].unique().to_list()}


def by_pyarrow(table):
    read = pyarrow.dataset.dataset("tables/%s" % table, partitioning="hive").to_table()
    types = {field.name: str(field.type) for field in read.schema}
    sums = {
        name: sum(value for value in read.column(name).to_pylist() if value is not None)
        for name, kind in types.items()
        if kind in ("int64", "int32")
    }
    return {"types": types, "sums": sums, "runs": list(set(read.column("run").to_pylist()))}


def none(value):
    return 0 if value is None else int(value)


tables = sorted(os.listdir("tables"))
answer = {
    "sql": [rows(query) for query in request["sql"]],
    "duckdb": {table: by_duckdb(table) for table in tables},
    "polars": {table: by_polars(table) for table in tables},
    "pyarrow": {table: by_pyarrow(table) for table in tables},
}
json.dump(answer, sys.stdout)
