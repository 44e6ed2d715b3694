"""The tables of a run directory, as pyarrow has them.

Each rank has a directory with Arrow streams. They are read as far as they are whole: a run may still grow, or have been cut
off. What is missing of a recording that says how much it wrote is a warning.
"""

import importlib
import json
import warnings
from pathlib import Path
from typing import Any, List, Optional, Tuple

from ._command import StepscopeError

_FORMS = ("pyarrow", "pandas", "polars")


def ranks(run: Path) -> List[Tuple[int, Path]]:
    """The ranks of a run, by their numbers."""
    found = []
    for directory in run.glob("rank-*"):
        number = directory.name[len("rank-") :]
        if number.isdigit() and directory.is_dir():
            found.append((int(number), directory))
    return sorted(found)


def newest_segment(run: Path) -> Path:
    """The newest segment of a run that jobs continue; any other run itself."""
    segments = [path for path in (run / "segments").glob("*") if path.name.isdigit() and (path / "run.json").is_file()]
    if (run / "run.json").is_file() or not segments:
        return run
    return max(segments, key=lambda path: int(path.name))


def table(run: Path, name: str, rank: Optional[int], as_: str) -> Any:
    """A table of one rank, or of all of them with a column that says which."""
    _check(as_)
    arrow = _pyarrow()
    chosen = [(number, path) for number, path in ranks(run) if rank is None or number == rank]
    if not chosen:
        there = ", ".join(str(number) for number, _ in ranks(run)) or "none"
        raise StepscopeError("there is no rank %s in %s" % (rank, run), "ranks that are there: %s" % there)
    tables = []
    for number, path in chosen:
        read = _resolved(_stream(path, name), _names(path))
        if rank is None:
            column = arrow.array([number] * len(read), arrow.uint32())
            read = read.add_column(0, "rank", column)
        tables.append(read)
    return convert(arrow.concat_tables(tables), as_)


def of_records(rows: List[Any], as_: str) -> Any:
    """A table of objects of JSON; what is an object or a list inside of them is left out."""
    _check(as_)
    plain = [
        {key: value for key, value in row.to_dict().items() if not isinstance(value, (dict, list))} for row in rows
    ]
    return convert(_pyarrow().Table.from_pylist(plain), as_)


def convert(read: Any, as_: str) -> Any:
    """A table of pyarrow's as somebody likes it."""
    if as_ == "pandas":
        _need("pandas")
        return read.to_pandas()
    if as_ == "polars":
        return _need("polars").from_arrow(read)
    return read


def _check(as_: str) -> None:
    if as_ not in _FORMS:
        raise ValueError("as_ is one of %s, not %r" % (", ".join(_FORMS), as_))


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise StepscopeError("%s is not installed" % name, "pip install %s" % name) from None


def _pyarrow() -> Any:
    return _need("pyarrow")


def _stream(rank: Path, name: str) -> Any:
    """All whole batches of a table, without dictionaries."""
    arrow = _pyarrow()
    path = rank / ("%s.arrows" % name)
    try:
        source = arrow.memory_map(str(path))
        reader = _need("pyarrow.ipc").open_stream(source)
    except (OSError, arrow.ArrowInvalid) as error:
        raise StepscopeError("cannot read %s: %s" % (path, error)) from error
    batches = []
    try:
        for batch in reader:
            batches.append(batch)
    except (OSError, arrow.ArrowException):
        # Somebody writes the rest right now, or never will.
        pass
    read = arrow.Table.from_batches(batches, reader.schema)
    _compare(rank, name, len(read))
    for place, field in enumerate(read.schema):
        if arrow.types.is_dictionary(field.type):
            read = read.set_column(place, field.name, read.column(place).cast(field.type.value_type))
    return read.replace_schema_metadata(None)


def _compare(rank: Path, name: str, rows: int) -> None:
    """Says what is missing of a recording that has ended."""
    try:
        info = json.loads((rank / "rank.json").read_text(encoding="utf-8"))
        written = (info.get("written") or {}).get(name)
    except (OSError, ValueError, AttributeError):
        return
    if isinstance(written, int) and rows < written:
        warnings.warn("%s of %s has %d rows of %d: the file is damaged" % (name, rank, rows, written), stacklevel=5)


def _names(rank: Path) -> Tuple[Any, Any]:
    strings = _stream(rank, "strings")
    return strings.column("id").combine_chunks(), strings.column("text").combine_chunks()


def _resolved(read: Any, names: Tuple[Any, Any]) -> Any:
    """A table with texts instead of their numbers."""
    compute = _need("pyarrow.compute")
    ids, texts = names
    for name in ("name", "counter"):
        place = read.schema.get_field_index(name)
        if place >= 0:
            numbers = read.column(place).cast(ids.type)
            found = compute.index_in(numbers, value_set=ids)
            taken = [texts.take(chunk) for chunk in found.chunks]
            column = _pyarrow().chunked_array(taken, texts.type)
            read = read.set_column(place, name, column)
    return read
