"""Receipts: messages that are received after their senders have announced what they are.

With checks on, a sender announces each message, and a receiver waits for the announcement first.
MPI gives announcements to receivers in the order in which these asked, and messages likewise. Who
is waited for first may be another one, so whoever waits takes the messages of all that asked before
it and have an announcement of the same sender. Called by `process_group.py`.
"""

from __future__ import annotations

from typing import Any

from . import checks, transport

#: the tags of announcements begin here
ANNOUNCED = 1 << 14


class Receipt:
    """A receive that has asked for an announcement. MPI's requests have its methods too."""

    def __init__(self, receipts: Receipts, out: Any, sender: int, tag: int, location: Any) -> None:
        group = receipts.group
        self.status = group.mpi.Status()
        self.tag = tag
        self._receipts = receipts
        self._out = out
        self._location = location
        self._announcement = checks.announcement()
        asked = group.mpi.ANY_SOURCE if sender < 0 else sender
        self._request = group.comm.Irecv(self._announcement, asked, ANNOUNCED + tag)
        self._is_announced = False
        self._is_taken = False
        self._error: Exception | None = None

    def Wait(self, status: Any = None) -> None:
        """Return when the message is announced."""
        if not self._is_announced:
            self._request.Wait(self.status)
            self._is_announced = True

    def Test(self, status: Any = None) -> bool:
        """Whether the message is announced."""
        if not self._is_announced and self._request.Test(self.status):
            self._is_announced = True
        return self._is_announced

    def finish(self) -> int:
        """Take the message, which is announced, into its memory; returns who has sent it."""
        self._receipts.take_until(self)
        if self._error is not None:
            raise self._error
        return int(self.status.source)

    def take(self) -> None:
        """Receive the message; an error is for whoever waits for it."""
        if self._is_taken:
            return
        self._is_taken = True
        group, sender = self._receipts.group, int(self.status.source)
        what = message(self._out, self.tag)
        try:
            checks.compare_message(
                group.mpi, group.comm, group.ranks, self._announcement, sender, self.tag, what,
                self._location,
            )  # fmt: skip
            transport.receive(group.mpi, group.comm, self._out, sender, self.tag)
        except (checks.CollectiveMismatch, RuntimeError) as error:
            self._error = error


class Receipts:
    """The receives of a group that wait for announcements, in the order in which they asked."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self._waiting: list[Receipt] = []

    def ask(self, out: Any, sender: int, tag: int, location: Any) -> Receipt:
        """Ask for the announcement of a message from a member; -1 stands for any."""
        receipt = Receipt(self, out, sender, tag, location)
        self._waiting.append(receipt)
        return receipt

    def take_until(self, receipt: Receipt) -> None:
        """Receive the message of a receipt after those that come before it."""
        if receipt not in self._waiting:
            return  # one that asked later has taken it
        for one in self._waiting[: self._waiting.index(receipt) + 1]:
            if one is receipt or (
                one.tag == receipt.tag and one.Test() and one.status.source == receipt.status.source
            ):
                self._waiting.remove(one)
                one.take()


def message(x: Any, tag: int) -> str:
    return f"message of {x.dtype.name}{list(x.shape)}, tag {tag}"
