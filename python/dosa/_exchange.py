# SPDX-License-Identifier: Apache-2.0
"""Rounds of messages between ranks: a thin transport, and what every round carries with it.

Each message begins with a word on whether its sender is well. So a rank that fails between two
rounds says so in the next one and all ranks raise; a rank that is gone or stands still makes the
transport fail or time out.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dosa._errors import ArgumentError, ArgumentTypeError, Error

Bytes = NDArray[np.uint8]
Result = TypeVar("Result")

_NOTE = 120  # bytes of a message that say how its sender is


class RankError(Error, RuntimeError):
    """Another rank failed, is gone, or did not answer in time; all ranks of the call raise."""


class Transport(Protocol):
    """What a call needs of a group of ranks: two collective operations on bytes."""

    rank: int
    size: int

    def all_gather(self, data: Bytes) -> Sequence[Bytes]:
        """Send `data`, of the same length on all ranks, to all; return what all sent."""

    def all_to_all(self, parts: Sequence[Bytes], lengths: Sequence[int]) -> Sequence[Bytes]:
        """Send parts[r] to rank r; return what was sent here, lengths[r] bytes from rank r."""


class TorchTransport:
    """A torch.distributed process group, which the caller owns.

    Messages lie in host memory where it has a backend for that (gloo), else they are copied to the
    current CUDA device and back (NCCL).
    """

    def __init__(self, group: Any, timeout: float) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            raise ArgumentError.of("group", "no process group", "init_process_group() before")
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ArgumentError.of("group", "a group without this process", "one with it")
        self.on_host, self.on_device = backends(group)
        if not self.on_host and not self.on_device:
            found = f"backend {dist.get_backend_config(group)}"
            raise ArgumentError.of("group", found, "one for cpu or cuda tensors, as gloo or nccl")
        self._torch, self._dist, self._group = torch, dist, group
        self._timeout = datetime.timedelta(seconds=timeout)

    def all_gather(self, data: Bytes) -> Sequence[Bytes]:
        own = self._placed(data)
        found = [self._torch.empty_like(own) for _ in range(self.size)]
        self._run(lambda: self._dist.all_gather(found, own, group=self._group, async_op=True))
        return [tensor.cpu().numpy() for tensor in found]

    def all_to_all(self, parts: Sequence[Bytes], lengths: Sequence[int]) -> Sequence[Bytes]:
        own = self._placed(np.concatenate(parts))
        found = self._torch.empty(sum(lengths), dtype=self._torch.uint8, device=own.device)
        sizes = [part.size for part in parts]
        self._run(
            lambda: self._dist.all_to_all_single(
                found, own, list(lengths), sizes, group=self._group, async_op=True
            )
        )
        return np.split(found.cpu().numpy(), np.cumsum(lengths)[:-1])

    def wait(self, work: Any) -> bool:
        """Wait for a collective operation; return whether it has ended in time."""
        if self.on_host:
            return bool(work.wait(self._timeout))
        # There `wait` is about the stream; the host has to look.
        last = time.monotonic() + self._timeout.total_seconds()
        while not work.is_completed():
            if time.monotonic() > last:
                return False
            time.sleep(20e-6)
        return bool(work.wait())

    def wait_for_device(self, device: Any) -> None:
        """Wait for the current stream of a device, which a lost rank would hold up.

        Raises
        ------
        RankError
            It is not done in time.
        """
        stream = self._torch.cuda.current_stream(device)
        last = time.monotonic() + self._timeout.total_seconds()
        while not stream.query():
            if time.monotonic() > last:
                raise RankError(
                    f"group: found no end of a collective operation in {self._timeout}, expected "
                    f"{self.size} ranks that answer"
                )
            time.sleep(20e-6)

    def _placed(self, data: Bytes) -> Any:
        own = self._torch.from_numpy(data)
        return own if self.on_host else own.cuda()

    def _run(self, start: Callable[[], Any]) -> None:
        try:
            done = self.wait(start())
        except RuntimeError as error:  # what torch raises for lost peers and for timeouts
            first = str(error).strip().partition("\n")[0]
            raise RankError(
                f"group: found a failed exchange ({first}), expected {self.size} ranks that answer"
            ) from error
        if not done:
            raise RankError(
                f"group: found no answer in {self._timeout}, expected {self.size} ranks that answer"
            )


def backends(group: Any) -> tuple[bool, bool]:
    """Return whether a process group has a backend for host memory, and one for CUDA devices."""
    import torch.distributed as dist

    names = str(dist.get_backend_config(group)).lower()
    named = dict(part.split(":", 1) for part in names.split(",") if ":" in part)
    if not named:
        named = {"cpu": names} if names == "gloo" else {"cuda": names} if names == "nccl" else {}
    # gloo is registered for cuda too, but has only some of its operations.
    return named.get("cpu") in ("gloo", "mpi", "ucc"), named.get("cuda") in ("nccl", "ucc")


class Traffic(NamedTuple):
    """What one rank exchanged with the others in one call."""

    rounds: int
    """Collective operations."""
    sent: int
    """Bytes sent to other ranks."""
    received: int
    """Bytes received from other ranks."""


class Exchange:
    """The rounds of one call. A failure is kept until the next round has told the others."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank, self.size = transport.rank, transport.size
        self._failure: BaseException | None = None
        self._rounds = self._sent = self._received = 0

    @property
    def traffic(self) -> Traffic:
        """What has been exchanged so far."""
        return Traffic(self._rounds, self._sent, self._received)

    def attempt(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return work(), or `otherwise` where this rank has failed, now or before."""
        if self._failure is not None:
            return otherwise
        try:
            return work()
        except Exception as failure:
            self._failure = failure
            return otherwise

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays of all ranks, which have the same shape and dtype."""
        message = np.concatenate([self._note(), _flat(array)])
        found = self.transport.all_gather(message)
        self.count(message.size * (self.size - 1), (self.size - 1) * message.size)
        self._check([data[:_NOTE] for data in found])
        return [data[_NOTE:].view(array.dtype).reshape(array.shape) for data in found]

    def scatter(self, arrays: Sequence[NDArray[Any]], lengths: Sequence[int]) -> list[NDArray[Any]]:
        """Send arrays[r] to rank r; return what was sent here, flat, lengths[r] from rank r."""
        dtype = arrays[0].dtype
        parts = [np.concatenate([self._note(), _flat(array)]) for array in arrays]
        sizes = [_NOTE + length * dtype.itemsize for length in lengths]
        found = self.transport.all_to_all(parts, sizes)
        own = self.rank
        sent = sum(part.size for rank, part in enumerate(parts) if rank != own)
        self.count(sent, sum(size for rank, size in enumerate(sizes) if rank != own))
        self._check([data[:_NOTE] for data in found])
        return [data[_NOTE:].view(dtype) for data in found]

    def count(self, sent: int, received: int) -> None:
        """Count one round."""
        self._rounds += 1
        self._sent += sent
        self._received += received

    def _note(self) -> Bytes:
        note = np.zeros(_NOTE, np.uint8)
        if self._failure is not None:
            text = f"{type(self._failure).__name__}: {self._failure}".encode()[:_NOTE] or b"?"
            note[: len(text)] = np.frombuffer(text, np.uint8)
        return note

    def _check(self, notes: Sequence[Bytes]) -> None:
        if self._failure is not None:
            raise self._failure
        for rank, note in enumerate(notes):
            if note[0] != 0:
                text = note.tobytes().rstrip(b"\0").decode(errors="replace")
                raise RankError(f"rank {rank}: found {text}, expected no failure")


def _flat(array: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def check_timeout(timeout: object) -> float:
    """Return `timeout` in seconds, above 0."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ArgumentTypeError.of("timeout", type(timeout).__name__, "seconds")
    if not 0 < timeout < 10**7:
        raise ArgumentError.of("timeout", str(timeout), "seconds above 0")
    return float(timeout)
