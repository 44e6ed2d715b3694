"""What a training script says: nothing where it is not recorded, and all of it where it is."""

import json
import unittest
from contextlib import ExitStack

import stepscope
from support import Recorded, needs

ANNOTATED = """
import sys
import stepscope
stepscope.model(layers=2, hidden=64, heads=4, ffn=128, vocabulary=100, seq_len=32)
for i in range(3):
    with stepscope.step(i):
        with stepscope.phase("forward"):
            stepscope.tokens(8 * 32, replicas=2)
print("done", stepscope.recording() is not None)
sys.exit(7)
"""

# What the driver does when CUDA begins: without a GPU, nobody else does it.
CUDA_BEGINS = """
import ctypes, os
ctypes.PyDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
"""

TRAINING = """
import stepscope
stepscope.model({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                 "vocab_size": 50257}, seq_len=1024)
%s
@stepscope.phase("optimizer")
def optimize():
    return 3

@stepscope.step
def train():
    stepscope.tokens(100)
    stepscope.tokens(28)
    assert optimize() == 3

with stepscope.step(10):
    with stepscope.phase("forward"), stepscope.phase("attention"):
        stepscope.tokens(64, replicas=2)
    stepscope.loss("2.5")
    stepscope.loss(float("inf"))
train()
stepscope.model({"model_type": "who knows"})
for wrong in ("x", float("nan"), 2**64, -5):
    stepscope.step(wrong)
stepscope.tokens(None)
stepscope.tokens(5, replicas="two")
stepscope.loss("none")
"""


class NotRecorded(unittest.TestCase):
    def test_nothing_happens(self) -> None:
        self.assertIsNone(stepscope.recording())
        with stepscope.step(1), stepscope.phase("forward"):
            stepscope.tokens(5)
            stepscope.loss(1.0)
        stepscope.model("/no/such/file", seq_len=3)

    def test_a_function_stays_as_it_is(self) -> None:
        def train() -> int:
            return 4

        self.assertIs(stepscope.step()(train), train)
        self.assertIs(stepscope.step(train), train)
        self.assertIs(stepscope.phase("forward")(train), train)
        with self.assertRaisesRegex(TypeError, "needs a name"):
            stepscope.phase(train)  # type: ignore[arg-type]

    def test_stacks_of_contexts_take_it(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(stepscope.step(1))
            stack.enter_context(stepscope.phase("forward"))

    def test_an_error_of_the_program_is_its_own(self) -> None:
        with self.assertRaisesRegex(ValueError, "mine"), stepscope.step(1):
            raise ValueError("mine")


class WithoutAGpu(unittest.TestCase):
    def test_the_program_is_unharmed_and_nothing_is_recorded(self) -> None:
        recorded = Recorded(ANNOTATED)
        self.assertEqual((recorded.done.returncode, recorded.done.stdout), (7, "done True\n"), recorded.done.stderr)
        self.assertFalse(list(recorded.run.glob("rank-*")), recorded.done.stderr)


class WhereCudaBegins(unittest.TestCase):
    recorded: Recorded

    @classmethod
    def setUpClass(cls) -> None:
        cls.recorded = Recorded(TRAINING % CUDA_BEGINS)

    def test_the_model_is_known_and_another_one_is_refused_in_words(self) -> None:
        done = self.recorded.done
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertRegex(done.stderr, "MFU will not be known: .*who knows")
        self.assertRegex(done.stderr, "'none' is no loss")
        info = json.loads((self.recorded.run / "rank-00000" / "rank.json").read_text())
        told = info["collector"]["program_model"]
        self.assertEqual((told["shape"]["layers"], told["shape"]["name"], told["sequence_length"]), (12, "model", 1024))
        analysis = stepscope.analyze(self.recorded.run)
        assert analysis.run.model is not None
        self.assertEqual((analysis.run.model.hidden, analysis.run.sequence_length), (768, 1024))

    @needs("pyarrow")
    def test_steps_phases_and_tokens_are_recorded(self) -> None:
        analysis = stepscope.analyze(self.recorded.run)
        spans = sorted(analysis.spans(0).to_pylist(), key=lambda span: span["start_ns"])
        told = [(span["kind"], span["name"], span["step"]) for span in spans if span["name"] != "recorded window"]
        self.assertEqual(
            told,
            [
                ("step", "step", 10),
                ("phase", "forward", 10),
                ("range", "attention", 10),
                ("step", "step", 11),
                ("phase", "optimizer", 11),
            ],
        )
        counted = analysis.counters(0).to_pylist()
        self.assertEqual([row["value"] for row in counted if row["counter"] == "tokens"], [128.0, 128.0])
        self.assertEqual([row["value"] for row in counted if row["counter"] == "loss"], [2.5, float("inf")])


if __name__ == "__main__":
    unittest.main()
