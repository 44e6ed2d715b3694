"""What a run says, as objects, tables and reports."""

import json
import os
import shutil
import tempfile
import unittest
import warnings
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Callable, List, Tuple
from unittest import mock

import stepscope
from stepscope._records import Record
from support import SAMPLES, needs

SAMPLE = SAMPLES / "dp2-naive"


class Package(unittest.TestCase):
    def test_it_has_a_version_where_it_is_installed(self) -> None:
        with mock.patch("importlib.metadata.version", return_value="1.2.3"):
            self.assertEqual(stepscope.__version__, "1.2.3")
        with mock.patch("importlib.metadata.version", side_effect=PackageNotFoundError("stepscope")):
            self.assertFalse(hasattr(stepscope, "__version__"))


class Objects(unittest.TestCase):
    def test_attributes_are_those_of_the_json(self) -> None:
        analysis = stepscope.analyze(SAMPLE)
        self.assertEqual((analysis.schema, analysis.run.world_size, len(analysis.ranks)), (1, 2, 2))
        assert analysis.run.model is not None and analysis.step_time is not None and analysis.mfu is not None
        self.assertEqual(analysis.run.model.name, "llama-1b")
        self.assertEqual(analysis.mfu.model_from, "run")
        self.assertGreater(analysis.memory[0].at_peak["optimizer_state"], 10**10)
        for rank in analysis.counted:
            parts = rank.compute_ns + rank.exposed_communication_ns + rank.exposed_copy_ns + rank.idle_ns
            self.assertEqual(parts, rank.span_ns)
        self.assertEqual({step.rank for step in analysis.steps}, {0, 1})
        self.assertIsNone(analysis.pipeline)
        self.assertEqual(analysis.kernels[0].total_ns, max(kernel.total_ns for kernel in analysis.kernels))

    def test_steps_ranks_and_peaks_can_be_chosen(self) -> None:
        analysis = stepscope.analyze(SAMPLE, steps=range(2, 4), ranks=[1], peak_tflops=100.0)
        self.assertEqual((analysis.window.steps, [rank.rank for rank in analysis.ranks]), ([2, 3], [1]))
        assert analysis.mfu is not None
        self.assertEqual(analysis.mfu.peak_flops, 100e12)
        with self.assertRaises(ValueError):
            stepscope.analyze(SAMPLE, steps=range(0, 10, 2))

    def test_what_is_new_or_missing_breaks_nothing(self) -> None:
        values = json.loads('{"schema": 1, "run": {"name": "x", "colour": "blue"}, "waterfall": [{"ms": 3}], "memory": null}')
        analysis = stepscope.Analysis(values, ["nowhere"], ["analyze", "nowhere"])
        self.assertEqual((analysis.run.colour, analysis.waterfall[0].ms), ("blue", 3))
        self.assertEqual((analysis.mfu, analysis.run.model, list(analysis.memory)), (None, None, []))
        self.assertEqual(str(analysis), "x: 0 ranks")
        with self.assertRaises(AttributeError):
            analysis.run.no_such_thing

    def test_errors_are_those_of_the_command(self) -> None:
        with self.assertRaises(stepscope.StepscopeError) as caught:
            stepscope.analyze("/no/such/run")
        self.assertIn("/no/such/run", caught.exception.message)
        self.assertNotIn("error:", caught.exception.message)
        self.assertTrue(caught.exception.hint)
        with self.assertRaises(stepscope.StepscopeError):
            stepscope.analyze(SAMPLE, steps="900..901")

    def test_a_command_that_is_not_there_is_said(self) -> None:
        before = os.environ.get("STEPSCOPE_BIN")
        try:
            os.environ["STEPSCOPE_BIN"] = "/no/such/stepscope"
            with self.assertRaisesRegex(stepscope.StepscopeError, "cannot run /no/such/stepscope"):
                stepscope.analyze(SAMPLE)
        finally:
            os.environ.pop("STEPSCOPE_BIN")
            if before is not None:
                os.environ["STEPSCOPE_BIN"] = before

    def test_records_compare_and_show_themselves(self) -> None:
        record = Record({"rank": 0, "parts": [{"name": "a"}]})
        self.assertEqual((record.parts[0].name, record["rank"], list(record)), ("a", 0, ["rank", "parts"]))
        self.assertEqual(record, Record(record.to_dict()))
        self.assertIn("rank=0", repr(record))


class Reports(unittest.TestCase):
    def test_printed_they_are_the_first_lines_of_the_report(self) -> None:
        analysis = stepscope.analyze(SAMPLE)
        self.assertIn("MFU 46.6%", str(analysis))
        self.assertNotIn("\n\n", str(analysis))
        self.assertEqual(repr(analysis), str(analysis))

    def test_a_notebook_shows_them_in_one_piece(self) -> None:
        page = stepscope.analyze(SAMPLE)._repr_html_()
        for part in ("MFU", "Where the time goes", "exposed communication", "optimizer state", "nvjet"):
            self.assertIn(part, page)
        self.assertNotIn("<script", page)
        self.assertNotIn("http", page)

    def test_all_text_is_escaped(self) -> None:
        evil = "<script>alert('1')</script>"
        values = stepscope.analyze(SAMPLE).to_dict()
        values["run"].update(name=evil, state=evil)
        values["run"]["model"]["name"] = values["run"]["device"]["name"] = evil
        values["kernels"][0]["name"] = evil
        values["memory"][0]["at_peak"] = {evil: 10**12}
        values["findings"] = [{"kind": "x", "what": evil, "advice": evil}, {"kind": evil, "summary": None}]
        page = stepscope.Analysis(values, [], [])._repr_html_()
        self.assertNotIn("<script", page)
        self.assertGreaterEqual(page.count("&lt;script&gt;"), 7)

    def test_a_diff_says_what_changed_and_its_causes_add_up(self) -> None:
        diff = stepscope.diff(SAMPLE, SAMPLES / "dp2-bucketed")
        assert diff.step_time is not None and diff.peak_memory is not None
        self.assertEqual(sum(cause.change_ns for cause in diff.step_time.causes), diff.step_time.change_ns)
        self.assertIn("faster", str(diff))
        self.assertIsNotNone(diff.metric("mfu"))
        page = diff._repr_html_()
        self.assertIn("exposed all-reduce", page)
        values = json.loads(json.dumps(diff.to_dict()).replace("exposed all-reduce (dp)", "<script>"))
        self.assertNotIn("<script>", stepscope.Diff(values, [])._repr_html_())


@needs("pyarrow")
class Tables(unittest.TestCase):
    def test_spans_have_their_names(self) -> None:
        spans = stepscope.analyze(SAMPLE).spans(0)
        self.assertEqual(len(spans), json.loads((SAMPLE / "rank-00000" / "rank.json").read_text())["written"]["spans"])
        self.assertIn("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", spans.column("name").to_pylist())
        self.assertEqual(set(spans.column("phase").to_pylist()), {None, "data", "forward", "backward", "optimizer"})
        self.assertEqual(spans.column("name").null_count, 0)

    def test_times_of_the_table_are_those_of_the_json(self) -> None:
        analysis = stepscope.analyze(SAMPLE)
        first, last = analysis.window.steps or (0, 0)
        name = analysis.kernels[0].name
        rows = analysis.spans().to_pylist()
        counted = [row for row in rows if row["name"] == name and first <= (row["step"] or -1) <= last]
        self.assertEqual(len(counted), analysis.kernels[0].count)
        self.assertEqual(sum(row["duration_ns"] for row in counted), analysis.kernels[0].total_ns)

    def test_memory_and_counters_and_kernels(self) -> None:
        analysis = stepscope.analyze(SAMPLE)
        events = analysis.memory()
        self.assertEqual(set(events.column("rank").to_pylist()), {0, 1})
        self.assertIn("optimizer_state", set(analysis.memory(rank=1).column("category").to_pylist()))
        self.assertIn("loss", analysis.counters(0).column("counter").to_pylist())
        self.assertEqual(analysis.kernels().column("name").to_pylist(), [kernel.name for kernel in analysis.kernels])
        with self.assertRaisesRegex(stepscope.StepscopeError, "there is no rank 7"):
            analysis.spans(7)
        with self.assertRaises(ValueError):
            analysis.spans(0, as_="excel")

    @needs("pandas")
    def test_as_pandas(self) -> None:
        frame = stepscope.analyze(SAMPLE).spans(0, as_="pandas")
        self.assertEqual(type(frame).__name__, "DataFrame")
        self.assertGreater(frame.groupby("name").duration_ns.sum().max(), 0)

    @needs("polars")
    def test_as_polars(self) -> None:
        self.assertEqual(type(stepscope.analyze(SAMPLE).kernels(as_="polars")).__module__.split(".")[0], "polars")

    def _damaged(self, damage: Callable[[bytes], bytes]) -> Tuple[int, List[str]]:
        """How many spans are read of a damaged copy of the sample, and the warnings."""
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            shutil.copytree(SAMPLE, run)
            for path in [run, *run.rglob("*")]:
                path.chmod(0o755)
            spans = run / "rank-00000" / "spans.arrows"
            spans.write_bytes(damage(spans.read_bytes()))
            analysis = stepscope.analyze(run)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                rows = len(analysis.spans(0))
            return rows, [str(one.message) for one in caught]

    def test_a_torn_tail_costs_what_is_torn(self) -> None:
        rows, warned = self._damaged(lambda data: data[:-7000])
        self.assertTrue(0 < rows < len(stepscope.analyze(SAMPLE).spans(0)))
        self.assertTrue(any("the file is damaged" in one for one in warned), warned)

    def test_damage_that_pyarrow_does_not_notice_is_a_warning(self) -> None:
        middle = 60_000
        _, warned = self._damaged(
            lambda data: data[:middle] + bytes(255 - byte for byte in data[middle : middle + 200]) + data[middle + 200 :]
        )
        self.assertTrue(any("rows may be wrong" in one for one in warned), warned)

    def test_a_trace_of_pytorch_is_imported_once(self) -> None:
        def kernel(start: int, correlation: int) -> Any:
            arguments = {"stream": 7, "correlation": correlation, "device": 0}
            return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start, "dur": 5, "pid": 0, "tid": 7, "args": arguments}

        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "rank0.json"
            events = [kernel(10 * place, place) for place in range(4)]
            trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
            analysis = stepscope.analyze(trace)
            self.assertEqual(analysis.run.source, "kineto")
            spans = analysis.spans(0)
            self.assertEqual(spans.column("name").to_pylist(), ["gemm"] * 4)
            self.assertEqual(spans.column("duration_ns").to_pylist(), [5000] * 4)
            self.assertEqual(analysis.directory(), analysis.directory())


if __name__ == "__main__":
    unittest.main()
