"""What the module says of a training, with PyTorch on a CPU and a library that writes down what it is told."""

import contextlib
import gc
import os
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch
import torch.nn.functional as F
import torch.utils.checkpoint

import stepscope_torch
from stepscope_torch import library as says

# What is told, by a sign each.
SIGNS = {
    says.BACKWARD_BEGINS: "(",
    says.BACKWARD_ENDS: ")",
    says.RECOMPUTATION_BEGINS: "r",
    says.RECOMPUTATION_ENDS: "",
    says.OPTIMIZER_BEGINS: "[",
    says.OPTIMIZER_ENDS: "]",
    says.CLOSURE_BEGINS: "{",
    says.CLOSURE_ENDS: "}",
    says.EVALUATION_BEGINS: "<",
    says.EVALUATION_ENDS: ">",
    says.CHECKPOINT_BEGINS: "c",
    says.CHECKPOINT_ENDS: "",
    says.LOADING_BEGINS: "l",
    says.LOADING_ENDS: ".",
}
WIDTH, LAYERS, VOCABULARY, LENGTH, BATCH = 32, 3, 100, 16, 4


class Library:
    """Takes the place of the injected library."""

    def __init__(self):
        self.signs = ""
        self.counted = []
        self.models = []
        self.failures = {}
        self.refusals = []
        self.what_was_raised = []

    def begin(self, version):
        return 0

    def mark(self, event, optimizer, spent):
        self.signs += SIGNS[event]
        return says.DETAILS

    def tokens(self, count):
        self.counted.append(count)

    def model(self, description):
        self.models.append(description)
        return "counted" in description

    def failed(self, source, why):
        self.failures[source] = why

    def refuse(self, why):
        self.refusals.append(why)

    def raised(self, what):
        self.what_was_raised.append(what)

    def lost(self, loss, ago_ns):
        pass

    def when_asked(self, tell):
        self.tell = tell

    def stacks(self, threads):
        self.threads = threads

    def in_flight(self, pickle):
        self.pickle = pickle

    def end(self):
        pass


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self, is_tied=False, is_recomputed=False):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.output = None if is_tied else torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.is_recomputed = is_recomputed

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(LENGTH))
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.is_recomputed else block(x)
        return F.linear(x, self.embedding.weight) if self.output is None else self.output(x)


# Hooks stay in PyTorch as long as the process: there is one watch for all tests.
LIBRARY = Library()
WATCH = stepscope_torch.Watch(torch, LIBRARY, lambda name, action: None)
WATCH.cuda_begins()
TOKENS = torch.randint(0, VOCABULARY, (BATCH, LENGTH))


# Graphs of PyTorch 2.1 to 2.4 do not say the shapes of what was computed; a DataLoader tells then.
SAYS_SHAPES = hasattr(torch.ones(1, requires_grad=True).exp().grad_fn, "_input_metadata")


def loss_of(model):
    return F.cross_entropy(model(TOKENS).view(-1, VOCABULARY), TOKENS.view(-1))


class LateDevice:
    """A device that comes to what it was asked for when it is let."""

    def __init__(self):
        self.is_there = False
        self.captures = False
        self.cuda = types.SimpleNamespace(Event=lambda: self, is_current_stream_capturing=lambda: self.captures,
                                          device=lambda device: contextlib.nullcontext())
        self.no_grad = torch.no_grad

    def empty(self, shape, dtype, pin_memory):
        return torch.empty(shape, dtype=dtype)

    def record(self):
        pass

    def query(self):
        if self.captures:
            raise RuntimeError("operation not permitted when stream is capturing")
        return self.is_there


class Scalar:
    """A loss that says to be on a GPU."""

    is_cuda = True

    def __init__(self, value):
        self.value = value

    def numel(self):
        return 1

    def is_floating_point(self):
        return True

    def detach(self):
        return torch.tensor([self.value])


class TestLosses(unittest.TestCase):
    @mock.patch.object(stepscope_torch.losses, "REST", 0)
    def test_a_loss_that_is_no_number_is_told_once_it_is_there(self):
        device, lost = LateDevice(), []
        losses = stepscope_torch.losses.Losses(device, lambda loss, ago_ns: lost.append((loss, ago_ns)))
        for value in (1.0, float("inf"), 2.0):
            losses.follow((Scalar(value),))
        self.assertEqual(lost, [])
        device.is_there = True
        losses.follow((Scalar(3.0), Scalar(4.0)))
        [(loss, ago_ns)] = lost
        self.assertTrue(loss == float("inf") and ago_ns > 0)
        for value in [1.0] * 100:
            device.is_there = False
            losses.follow(Scalar(value))
        self.assertEqual(len(losses._waiting), stepscope_torch.losses.MOST)

    @mock.patch.object(stepscope_torch.losses, "REST", 10**9)
    def test_taking_one_is_followed_by_a_rest(self):
        losses = stepscope_torch.losses.Losses(LateDevice(), lambda loss, ago_ns: None)
        for value in (1.0, 2.0):
            losses.follow(Scalar(value))
        [(_, place, _, _)] = losses._waiting
        self.assertEqual(place.item(), 1.0)

    @mock.patch.object(stepscope_torch.losses, "REST", 0)
    def test_a_device_that_captures_a_graph_is_asked_nothing(self):
        device = LateDevice()
        losses = stepscope_torch.losses.Losses(device, lambda loss, ago_ns: None)
        losses.follow(Scalar(1.0))
        device.captures = True
        losses.follow(Scalar(2.0))
        self.assertEqual(len(losses._waiting), 1)


class TestStacks(unittest.TestCase):
    def test_where_threads_are_is_told_to_whoever_asks(self):
        go_on = threading.Event()

        def waits_here():
            go_on.wait()

        waiter = threading.Thread(target=waits_here, name="the waiter")
        waiter.start()
        LIBRARY.tell = None
        stepscope_torch.stacks.watch(torch, LIBRARY)
        asker = threading.Thread(target=LIBRARY.tell, name="the asker")
        asker.start()
        asker.join()
        go_on.set()
        waiter.join()
        threads = dict(LIBRARY.threads)
        self.assertNotIn("the asker", threads)
        self.assertEqual(LIBRARY.threads[0][0], "MainThread")
        functions = [function.split(".")[-1] for function, _, _ in threads["the waiter"]]
        self.assertIn("waits_here", functions)
        own = next(call for call in threads["MainThread"] if call[0].endswith("is_told_to_whoever_asks"))
        self.assertEqual(os.path.basename(own[1]), "test_watch.py")


class TestWatch(unittest.TestCase):
    def setUp(self):
        # Optimizers of PyTorch 2.1 are in circles, and models of other tests stay with them.
        gc.collect()
        LIBRARY.__init__()
        WATCH._steps = WATCH._backwards = 0
        WATCH._tokens.__init__(torch)

    def test_steps_have_passes_and_tokens(self):
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            for _ in range(2):
                loss_of(model).backward()
            optimizer.step()
        self.assertEqual(LIBRARY.signs, "()()[]()()[]")
        self.assertEqual(LIBRARY.counted, [BATCH * LENGTH] * 4 if SAYS_SHAPES else [])
        self.assertEqual(LIBRARY.failures, {})

    def test_what_nobody_catches_is_told_with_its_line_and_printed_as_ever(self):
        printed = []
        stderr, sys.stderr = sys.stderr, types.SimpleNamespace(write=printed.append, flush=lambda: None)
        try:
            torch.ones(2).view(3)
        except RuntimeError:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr = stderr
        (told,) = LIBRARY.what_was_raised
        self.assertRegex(told, r"^RuntimeError: shape .* \(.*test_watch.py:\d+ in test_what_nobody_catches")
        self.assertIn("Traceback", "".join(printed))

    def test_what_is_recomputed_is_told_apart(self):
        model = Model(is_recomputed=True)
        loss_of(model).backward()
        LIBRARY.signs = ""
        loss_of(model).backward()
        self.assertEqual(LIBRARY.signs, "(" + "r" * LAYERS + ")")

    def test_passes_in_a_closure_are_not_the_optimizers(self):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def closure():
            loss = loss_of(model)
            loss.backward()
            return loss

        self.assertGreater(float(optimizer.step(closure)), 0)
        self.assertGreater(float(optimizer.step(closure=closure)), 0)
        self.assertEqual(LIBRARY.signs, "[{()}][{()}]")

    def test_evaluation_and_saving_are_told_apart(self):
        model = Model()
        other = Model().requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(2):
            loss_of(model).backward()
            optimizer.step()
            other.eval()
            model.eval()
            model.train()

        class Trainer:
            def save_checkpoint(self, path):
                return path

        for path in ("Trainer.save_checkpoint", "Trainer.save", "Other.save"):
            WATCH._passes.watch_saving(types.SimpleNamespace(Trainer=Trainer), path)
        with tempfile.TemporaryDirectory() as folder:
            torch.save({}, os.path.join(folder, "checkpoint"))
            self.assertEqual(Trainer().save_checkpoint(folder), folder)
        model.eval()
        loss_of(model).backward()
        self.assertEqual(LIBRARY.signs, "()[]<>()[]<>cc<>()")
        self.assertIs(torch.nn.Module.train, Model.train, "nothing is left of it")

    def test_waiting_for_batches_is_told_of_the_main_thread(self):
        loader = torch.utils.data.DataLoader(TOKENS, batch_size=BATCH // 2)
        self.assertEqual(len(list(loader)), 2)
        self.assertEqual(LIBRARY.signs, "l.l.l.", "the last one finds that there are no more")
        ahead = threading.Thread(target=lambda: list(loader))
        ahead.start()
        ahead.join()
        self.assertEqual(LIBRARY.signs, "l.l.l.")
        self.assertEqual(LIBRARY.failures, {})

    def test_modules_add_up(self):
        for is_tied in (False, True):
            LIBRARY.models = []
            model = Model(is_tied)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for _ in range(2):
                loss_of(model).backward()
                optimizer.step()
            blocks = LAYERS * 8 * WIDTH * WIDTH
            described = LIBRARY.models[-1]
            self.assertEqual(described["sequence_length"], LENGTH if SAYS_SHAPES else None)
            counted = described["counted"]
            self.assertEqual(counted["parameters"], sum(tensor.numel() for tensor in model.parameters()))
            self.assertEqual(counted["matrices"], blocks + (0 if is_tied else VOCABULARY * WIDTH))
            self.assertEqual(counted["longest_side"], 4 * WIDTH if is_tied else max(VOCABULARY, 4 * WIDTH))
            self.assertEqual((counted["layers"], counted["width"], counted["name"]), (LAYERS, WIDTH, "Model"))
            self.assertEqual(counted["vocabulary"], VOCABULARY)
            WATCH._steps = 0

    def test_a_source_that_fails_leaves_the_others(self):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        model_of, LIBRARY.model = LIBRARY.model, None
        try:
            for _ in range(2):
                loss_of(model).backward()
                optimizer.step()
        finally:
            LIBRARY.model = model_of
            WATCH._sources["model"].is_on = True
        self.assertEqual(list(LIBRARY.failures), ["model"])
        self.assertIsInstance(LIBRARY.failures["model"], TypeError)
        self.assertEqual((LIBRARY.signs, len(LIBRARY.counted)), ("()[]()[]", 2 if SAYS_SHAPES else 0))


class TestWatchOfCompiled(unittest.TestCase):
    """Comes last: PyTorch 2.1 takes hooks off optimizers for good once it has compiled something."""

    setUp = TestWatch.setUp

    def test_a_model_is_compiled_once_and_counted_and_steps_are_told_or_missed(self):
        model = Model()
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            loss_of(compiled).backward()
            optimizer.step()
        if SAYS_SHAPES:
            self.assertEqual(LIBRARY.counted[-3:], [BATCH * LENGTH] * 3)
        self.assertEqual(torch._dynamo.utils.counters["stats"]["unique_graphs"], 1)
        if "steps" in LIBRARY.failures:
            self.assertIn("takes hooks off optimizers", LIBRARY.failures["steps"])
        # The compiler may do a backward pass of its own.
        self.assertEqual(LIBRARY.signs.count("[]"), 0 if "steps" in LIBRARY.failures else 3)


if __name__ == "__main__":
    unittest.main()
