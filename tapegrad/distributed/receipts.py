"""Receipts: receives of messages that their senders announce first.

With checks on, a sender announces each message, and a receiver first waits for the announcement.
MPI matches announcements with receives in the order in which the receives were posted, and messages
likewise. But receives can be waited for in another order, so a receive first takes the messages of
all earlier receives with an announcement of the same sender and tag. Called by `process_group.py`.
"""

from __future__ import annotations

from typing import Any

from . import checks, transport

#: the tag of an announcement is that of its message plus this
ANNOUNCED = 1 << 14


class Receipt:
    """A receive that waits for an announcement; `Wait` and `Test` are as in MPI's requests."""

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
        """Wait until the message is announced."""
        if not self._is_announced:
            self._request.Wait(self.status)
            self._is_announced = True

    def Test(self, status: Any = None) -> bool:
        """Whether the message is announced."""
        if not self._is_announced and self._request.Test(self.status):
            self._is_announced = True
        return self._is_announced

    def finish(self) -> int:
        """Receive the announced message into its array; returns the sender's rank in the group."""
        self._receipts.take_until(self)
        if self._error is not None:
            raise self._error
        return int(self.status.source)

    def take(self) -> None:
        """Receive the message; `finish` raises the error, if there is one."""
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
    """The receives of a group that wait for announcements, in the order of their calls."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self._waiting: list[Receipt] = []

    def ask(self, out: Any, sender: int, tag: int, location: Any) -> Receipt:
        """Start to receive the announcement of a message from a member; -1 is any member."""
        receipt = Receipt(self, out, sender, tag, location)
        self._waiting.append(receipt)
        return receipt

    def take_until(self, receipt: Receipt) -> None:
        """Receive the message of a receipt, after the earlier messages of its sender and tag."""
        if receipt not in self._waiting:
            return  # a later receipt has taken it
        for one in self._waiting[: self._waiting.index(receipt) + 1]:
            if one is receipt or (
                one.tag == receipt.tag and one.Test() and one.status.source == receipt.status.source
            ):
                self._waiting.remove(one)
                one.take()


def message(x: Any, tag: int) -> str:
    return f"message of {x.dtype.name}{list(x.shape)}, tag {tag}"
