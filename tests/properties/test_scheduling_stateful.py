"""Any interleaving of requests, deadlines, cancellations and unloads: every answer is its own, in order where
that is promised; statistics add up; nothing is left."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.scheduling.forming import choose
from interlingua.runtime.scheduling.policy import DynamicBatching, Limits, QueuePolicy
from interlingua.runtime.scheduling.queue import Entry
from interlingua.schemas import (
    CancelToken,
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Tensor,
)
from tests.runtime.scheduling.models import STAMP, Stamps, model_of, settled

MAX_ROWS = 8

POLICIES = st.builds(
    QueuePolicy,
    delays=st.booleans(),
    timeout_us=st.sampled_from([0, 0, 3000]),
    allow_override=st.booleans(),
    max_size=st.sampled_from([0, 0, 5]),
)
BATCHINGS = st.builds(
    DynamicBatching,
    preferred_sizes=st.sampled_from([(), (4,), (2, 6)]),
    max_delay_us=st.sampled_from([0, 2000, 50_000]),
    preserve_ordering=st.booleans(),
    priority_levels=st.just(3),
    default_priority_level=st.just(2),
    default_policy=POLICIES,
    policies=st.dictionaries(st.integers(1, 3), POLICIES, max_size=1),
)


@dataclass(eq=False)
class Asked:
    """A request under way; ``value`` is in all its rows and in no other request."""

    value: int
    rows: int
    texts: bool
    outputs: tuple[str, ...]
    timed: bool
    limited: bool
    task: asyncio.Task[Any]
    token: CancelToken
    abandoned: bool = False


@dataclass
class Served:
    """One model that was loaded, what it was asked, and the requests that left its queue to run and that were
    answered, in order."""

    instance: Stamps
    model: LocalModel
    asked: list[Asked] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        runner = self.version.scheduler._runner
        start = runner.start

        def started(entries: list[Entry]) -> None:
            self.taken += [int(entry.request.id) for entry in entries]
            start(entries)

        runner.start = started

    @property
    def version(self) -> Any:
        (version,) = self.model.loaded.values()
        return version


class Interleaved(RuleBasedStateMachine):
    """Drives an event loop by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.unforeseen: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.unforeseen.append(context))
        self.served: list[Served] = []
        self.closing: list[asyncio.Task[None]] = []
        self.count = 0

    def run(self, secs: float = 0) -> None:
        async def pass_by() -> None:
            await settled()
            if secs:
                await asyncio.sleep(secs)
                await settled()
            for served in self.served:
                self.check_nothing_is_held_up(served.version.scheduler)

        self.loop.run_until_complete(pass_by())

    def check_nothing_is_held_up(self, scheduler: Any) -> None:
        """What waits though the model is free has a reason to wait: a larger batch may come. Whatever has left
        the queue has not left a batch behind that nobody starts."""
        if not scheduler._queue or not scheduler._runner.free or scheduler._due is not None:
            return
        now = time.monotonic_ns()
        taken, wait_ns = choose(scheduler._queue, scheduler._rules, scheduler._runner.room, now)
        if not any(entry.answer.done() or scheduler._is_overdue(entry, now) for entry in taken):
            # the timer of the batch may be due at this moment
            waited = min(entry.arrived for entry in taken) + scheduler._rules.delay_ns <= now
            assert wait_ns or waited, "a batch could run and does not"

    @initialize(
        batching=BATCHINGS,
        instances=st.integers(1, 2),
        limits=st.sampled_from([Limits(), Limits(queue_requests=20), Limits(concurrent=15)]),
    )
    def load_first(self, batching: DynamicBatching, instances: int, limits: Limits) -> None:
        self.batching, self.instances, self.limits = batching, instances, limits
        self.load()

    def load(self) -> None:
        instance = Stamps()
        model = model_of(instance, self.batching, instances=self.instances, limits=self.limits)
        self.served.append(Served(instance, model))

    @rule(
        each=st.lists(
            st.tuples(
                st.integers(1, MAX_ROWS),
                st.sampled_from([1, 1, 1, 2]),
                st.booleans(),
                st.sampled_from([("y", "said"), ("y", "said"), ("said",), ("y",)]),
                st.integers(0, 4),
                st.sampled_from([0, 0, 1000, 2000]),
                st.sampled_from([None, None, -1.0, 0.003]),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def ask(self, each: list[tuple[Any, ...]]) -> None:
        for rows, width, texts, outputs, priority, timeout_us, left in each:
            self.count += 1
            value = self.count
            inputs = [Tensor.from_numpy("x", np.full((rows, width), value, np.float32))]
            if texts:
                text = np.full((rows, 2), b"%d" % value * (value % 3), object)
                inputs.insert(value % 2, Tensor.from_numpy("text", text))
            context = Context(deadline=None if left is None else time.monotonic() + left)
            request = InferRequest(
                "m",
                tuple(inputs),
                tuple(map(RequestedOutput, outputs)),
                id=str(value),
                priority=priority,
                timeout_us=timeout_us,
                context=context,
            )
            served = self.served[-1]
            task = self.loop.create_task(self.infer(served, value, request))
            served.asked.append(
                Asked(
                    value,
                    rows,
                    texts,
                    outputs,
                    bool(timeout_us),
                    left is not None,
                    task,
                    context.cancel,
                )
            )
        self.run()

    async def infer(self, served: Served, value: int, request: InferRequest) -> Any:
        response = await served.model.infer(request)
        served.answered.append(value)
        return response

    @rule(which=st.integers(0, 1000), abandon=st.booleans())
    def give_up(self, which: int, abandon: bool) -> None:
        pending = [each for served in self.served for each in served.asked if not each.task.done()]
        if pending:
            each = pending[which % len(pending)]
            if abandon:
                each.abandoned = True
                each.task.cancel()
            else:
                each.token.cancel()
            self.run()

    @rule()
    def hold(self) -> None:
        self.served[-1].instance.open.clear()

    @rule()
    def release(self) -> None:
        self.served[-1].instance.open.set()
        self.run(0.001)

    @rule(ms=st.sampled_from([1, 4]))
    def wait(self, ms: int) -> None:
        self.run(ms / 1000)

    @rule()
    def reload(self) -> None:
        old = self.served[-1]
        self.load()
        old.instance.open.set()
        self.closing.append(self.loop.create_task(old.model.close()))
        self.run()

    def teardown(self) -> None:
        try:
            if self.served:
                self.loop.run_until_complete(asyncio.wait_for(self.finish(), 30))
                assert not asyncio.all_tasks(self.loop)
                for served in self.served:
                    self.check(served)
            # what nobody has looked at is told when it goes
            gc.collect(1)
            assert not self.unforeseen
        finally:
            self.loop.close()
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("m/1")]
        assert not threads

    async def finish(self) -> None:
        for served in self.served:
            served.instance.open.set()
        tasks = [each.task for served in self.served for each in served.asked]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.served[-1].model.close()
        await asyncio.gather(*self.closing)

    # --- what must hold of a model when all is over

    def check(self, served: Served) -> None:
        ran = [value for batch in served.instance.batches for value in dict.fromkeys(batch)]
        assert len(ran) == len(set(ran)), "a request ran twice"
        for batch in served.instance.batches:
            assert len(batch) <= MAX_ROWS
        good = []
        failed = 0
        for each in served.asked:
            if each.task.cancelled():
                assert each.abandoned
                # whoever has gone away was not answered either
                failed += 1
                continue
            error = each.task.exception()
            if error is None:
                good.append(each)
                self.check_answer(each)
            else:
                failed += 1
                assert isinstance(error, InferenceError), error
                self.check_refusal(each, error, each.value in ran)
        assert sorted(served.taken) == sorted(ran)
        version = served.version
        assert version.admission.inside == 0
        assert (len(version.scheduler._queue), version.scheduler._queue.nbytes) == (0, 0)
        counted = version.statistics
        assert counted.inference_count == sum(each.rows for each in good)
        values = {each.value for each in good}
        answered = [batch for batch in served.instance.batches if values & set(batch)]
        assert counted.execution_count == len(answered)
        sizes = sorted(len(batch) for batch in answered)
        assert sizes == sorted(
            size for size, runs in counted.executions.items() for _ in range(runs.compute_infer.count)
        )
        by_size = counted.by_batch_size.values()
        assert sum(each.success.count for each in by_size) == len(good)
        assert sum(each.failed.count for each in by_size) == failed
        if self.batching.preserve_ordering:
            assert served.answered == [value for value in served.taken if value in set(served.answered)]

    def policies(self) -> list[QueuePolicy]:
        return [self.batching.default_policy, *self.batching.policies.values()]

    def check_answer(self, each: Asked) -> None:
        response = each.task.result()
        assert response.id == str(each.value)
        given = {output.name: output for output in response.outputs}
        assert set(given) == set(each.outputs)
        if "y" in given:
            assert given["y"].shape[0] == each.rows
            assert (given["y"].numpy() == each.value + STAMP).all(), "somebody else's rows"
        if "said" in given:
            said = b"%d" % each.value * (each.value % 3) if each.texts else b"none"
            assert given["said"].elements() == [said] * (2 * each.rows)

    def check_refusal(self, each: Asked, error: InferenceError, ran: bool) -> None:
        if error.code is ErrorCode.CANCELLED:
            assert each.token.cancelled
        elif error.code is ErrorCode.DEADLINE_EXCEEDED:
            assert each.limited
        elif error.code is ErrorCode.OVERLOADED:
            assert self.limits != Limits()
            assert not ran
        else:
            assert error.code is ErrorCode.UNAVAILABLE
            assert not ran
            if error.message == "Request timeout expired":
                assert each.timed or any(policy.timeout_us for policy in self.policies())
            else:
                assert error.message == "Exceeds maximum queue size"
                assert any(policy.max_size for policy in self.policies())


Interleaved.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_interleaved_requests = Interleaved.TestCase
