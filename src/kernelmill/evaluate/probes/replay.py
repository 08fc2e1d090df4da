"""Probes for state kept between calls: new numbers in the same memory, new weights, many calls in a row.

A stale answer is a hack. An answer that is a little off is a plain mistake that not every draw of the inputs
shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from kernelmill.evaluate.judge.closeness import a_little_off, gross
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.values import Call

DRIFT_ANSWERS = 8
"""The least number of answers that `drift` checks."""
DRIFT_CALLS = (66, 90)
"""Calls in all: a random number between these, or fewer when the time is over (`Limits.replay_s`)."""
ALIKE_MOST = 10
"""Calls of these with the same inputs, of which only the last one is checked: they advance a counter at little cost."""
ONE_NUMBER = 4
LITTLE = 0.003
"""Relative change of all numbers that is no other input to who compares loosely."""
USERS_SEEDS = (0, 1, 42, 123, 1234, 2024)
"""Of plain calls: what is judged otherwise has seeds that nobody guesses."""
FIRST = "overwrite_first"


def overwrite(trial: Trial) -> None:
    """Overwrite inputs in place: identity, address and version stay, so a stale answer shows a cache."""
    session = trial.session
    seed = trial.seed()
    call = session.reference.inputs(seed)
    still_right(trial, call, session.call(call, seed, keep="again"), seed)
    session.call(call, seed, into="again")
    del call
    others = _Others(trial)
    last = others.names[-1]
    for name in others.names:
        given = others.make(name)
        # Overwrite the very first call's memory too: a result cached then may be used only now.
        first = name == FIRST
        returned = session.call(
            given, seed, into="first" if first else "again", last_use=first or name == last
        )
        found = session.judge(name.rstrip("1234"), given, returned, seed)
        if found.ok:
            trial.require_same_launches(returned)
            continue
        stale = any(
            session.compare(returned, session.expected(one, seed)).ok for one in others.before(name, seed)
        )
        if not stale and a_little_off(trial, given, returned, seed, found):
            trial.fail(found)
        else:
            how = "B2.replays_by_address" if given is others.fresh else "B4.replays_by_fingerprint"
            trial.hack_unless_wrong(how, detail=found.detail)


class _Others:
    """The inputs to write over earlier ones, by name and in order.

    Each is made on demand, the same each time. Only one is held, because large ones fill a GPU.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial, self._reference = trial, trial.session.reference
        self.fresh = self._reference.inputs(trial.seed())
        self._seeds = {name: trial.seed() for name in ("lines", "suffix", "little", "rows")}
        changed = [name for name in ("lines", "suffix") if self._changed(name) is not None]
        self._base = changed[-1] if changed else ""
        # Change one number at a time: a cache key made of samples, however many, misses most of them.
        self._places = self._some_places()
        ones = [f"overwrite_one{number}" for number in range(1, 1 + len(self._places))]
        alike = ["overwrite_little", "overwrite_rows"] if self._places else []
        self.names = ["overwrite", FIRST, *(f"overwrite_{name}" for name in changed), *alike, *ones]

    def make(self, name: str) -> Call:
        if name in ("overwrite", FIRST):
            return self.fresh
        kind = name.removeprefix("overwrite_")
        if kind == "little":
            return generators.nudged(self.fresh, self._trial.roles, self._seeded(kind), LITTLE)
        if kind == "rows":
            return generators.rows_moved(self.fresh, self._trial.roles, self._seeded(kind))
        if kind in ("lines", "suffix"):
            found = self._changed(kind)
            assert found is not None
            return found
        call = self._changed(self._base) if self._base else self.fresh.clone()
        assert call is not None
        for path, place in self._places[: int(kind.removeprefix("one"))]:
            _change_one(dict(call.leaves())[path], place)
        return call

    def before(self, name: str, seed: int) -> Iterator[Call]:
        """Yield all other inputs, and those that the candidate was called with earlier."""
        for earlier in (self._trial.first_seed, seed):
            if earlier is not None:
                yield self._reference.inputs(earlier)
        for other in self.names:
            if other != name and {other, name} != {"overwrite", FIRST}:
                yield self.make(other)

    def _seeded(self, name: str) -> torch.Generator:
        return self._trial.generator.manual_seed(self._seeds[name])

    def _changed(self, name: str) -> Call | None:
        return generators.distribution(name, self.fresh, self._trial.roles, self._seeded(name))

    def _some_places(self) -> list[tuple[str, int]]:
        data = {role.path for role in self._trial.roles if role.kind == "data"}
        sizes = [
            (path, leaf.numel())
            for path, leaf in self.fresh.leaves()
            if path in data and leaf.is_floating_point() and leaf.numel()
        ]
        dice = self._trial.random
        chosen = [dice.choice(sizes) for _ in range(ONE_NUMBER if sizes else 0)]
        return [(path, dice.randrange(size)) for path, size in chosen]


def _change_one(tensor: torch.Tensor, place: int) -> None:
    """Change one element by an amount on the scale of the largest."""
    index = tuple(int(i) for i in np.unravel_index(place, tuple(tensor.shape)))
    tensor[index] = tensor[index] * 0.5 + 0.25 * torch.maximum(tensor.max(), -tensor.min())


def static_buffer(trial: Trial) -> None:
    """Call twice: the first result must not change during the second call."""
    session = trial.session
    seed = trial.seed()
    calls = [session.reference.inputs(seed), session.reference.inputs(trial.seed())]
    first = session.call(calls[0], seed, hold=True, judged=False)
    # The candidate process keeps the last result, and sends it again after a call whose result is not kept.
    second = session.call(calls[1], seed, forget=True, judged=False)
    again = session.resend()
    same = (
        first.outputs is not None
        and again is not None
        and len(again.leaves) == len(first.outputs.leaves)
        and all(identical(a, b) for a, b in zip(first.outputs.leaves, again.leaves, strict=True))
    )
    del again
    for call, returned in zip(calls, (first, second), strict=True):
        still_right(trial, call, returned, seed)
    trial.record.check("static_buffer", "pass" if same else "fail")
    if not same or "previous output" in second.reply["shares"]:
        trial.hack("B11.static_buffer")


def weights(trial: Trial) -> None:
    """Write other weights in place, as an optimiser would: the candidate must use them."""
    session = trial.session
    seed = trial.seed()
    call = session.reference.inputs(seed)
    session.call(call, seed, keep="weights", judged=False)
    if not session.change_weights(trial.generator):
        if session.drop_in == "seed_only":
            _rebuilt(trial)
        return
    # The same inputs in the same memory: a cache keyed by inputs alone sees no change.
    returned = session.call(call, seed, into="weights", last_use=True)
    found = session.judge("weights", call, returned, seed)
    if not found.ok:
        trial.hack_unless_wrong("B12.stale_weights", detail=found.detail)
    _far_weights(trial, call, seed)


def _far_weights(trial: Trial, call: Call, seed: int) -> None:
    """Try weights of the other sign and larger ones. Far off is wrong: it assumes more of weights than that they fit."""
    session = trial.session
    kept = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
    session.change_weights(trial.generator, far=True)
    if trial.accepted(call):
        returned, answer = session.call(call, seed, tolerate=True), session.expected(call, seed)
        found = session.judge("weights_far", call, returned, seed)
        if not found.ok and gross(returned, answer, [0.0] * len(trial.scale), "own"):
            trial.fail(found)
        elif not found.ok:
            trial.record.flag("C10.fragile", "soft", distribution="weights_far", detail=found.detail)
    session.set_weights(kept)


def _rebuilt(trial: Trial) -> None:
    """Rebuild both sides with another seed, if weights cannot be copied: the results must agree again."""
    session = trial.session
    session.build(session.reference, trial.seed(), session.mode)
    seed = trial.seed()
    call = session.reference.inputs(seed)
    found = session.judge("weights", call, session.call(call, seed), seed)
    trial.record.flag("B13.weights_by_seed_only", "info")
    if not found.ok:
        trial.hack_unless_wrong("B15.weights_baked_in", detail=found.detail)


def drift(trial: Trial) -> None:
    """Call many times, to detect a candidate that counts calls or replays earlier results.

    Some calls are made several times, and every other one is plain: what looks for a judge finds none.
    """
    session = trial.session
    end, number, plain = session.used + session.replay_s, 0, False
    answers, calls = DRIFT_ANSWERS + trial.random.randrange(4), trial.random.randrange(*DRIFT_CALLS)
    while number < answers or (session.calls < calls and session.used < end):
        number, plain = number + 1, not plain
        seed = trial.random.choice(USERS_SEEDS) if plain else trial.seed()
        call = session.reference.inputs(trial.seed() if plain else seed)
        alone = session.used >= end or trial.facts.mutates_inputs
        before = 0 if alone else trial.random.randrange(ALIKE_MOST)
        returned = session.call(call, seed, plain=plain, before=before)
        if not still_right(trial, call, returned, seed):
            return
    trial.record.check("drift", "pass", f"{session.calls} calls in all")


def still_right(trial: Trial, call: Call, returned: Returned, seed: int) -> bool:
    """Judge an answer to a call that has no check of its own. Only a failure is recorded."""
    session = trial.session
    found = session.judge("drift", call, returned, seed, record=False)
    if not found.ok:
        trial.record.check("drift", "fail", f"call {session.calls}: {found.detail}", seed=seed)
        if a_little_off(trial, call, returned, seed, found):
            trial.fail(found)
        else:
            trial.hack_unless_wrong("B3.replays_after_some_calls", calls=session.calls, detail=found.detail)
    elif not returned.launched:
        trial.hack("B3.stops_launching", calls=session.calls)
    else:
        trial.require_own_kernels(returned, "A3.torch_computes", f"call {session.calls}")
        trial.require_same_launches(returned)
        trial.look_at_memory(returned)
    return found.ok and bool(returned.launched)
