"""The part of the driver about memory: tables of addresses, and scratch memory.

Goes out: the text of functions in LLVM IR. `@fill` writes the addresses of a call's arrays into the
tables of a program; `@reserve` gives a program its scratch memory, which `@allocate` takes from the
system, in huge pages if there are any. Called by `driver.py`, which adds it to its own text.
"""

from __future__ import annotations

import sys

from . import tuning
from .driver_layout import (
    ALLOCATE,
    ARENA,
    BUFFERS,
    LARGEST,
    MEMORY_IN_OBJECT,
    OBJECT_BUFFERS,
    OBJECT_COUNT,
    PARTIALS,
    PARTIALS_OFFSET,
    PATCH_COUNT,
    PATCHES,
    RELEASE,
    RUNS,
    SCRATCH,
    SCRATCH_ADDRESS,
    SCRATCH_SIZE,
    STATUS,
    STATUS_COUNT,
    TABLES,
    at,
    word,
)
from .driver_threads import has

# Huge pages for large blocks, as NumPy asks for them: 14 is MADV_HUGEPAGE of Linux.
_LARGE_PAGES = f"""
declare i32 @madvise(ptr, i64, i32)
define internal void @enlarge(ptr %memory, i64 %size) {{
entry:
  %large = icmp uge i64 %size, {tuning.MIN_LARGE_PAGES_BYTES}
  br i1 %large, label %advise, label %out
advise:
  %address = ptrtoint ptr %memory to i64
  %inside = and i64 %address, 4095
  %skipped = sub i64 4096, %inside
  %start = getelementptr inbounds i8, ptr %memory, i64 %skipped
  %length = sub i64 %size, %skipped
  call i32 @madvise(ptr %start, i64 %length, i32 14)
  br label %out
out:
  ret void
}}
"""

_SMALL_PAGES = """
define internal void @enlarge(ptr %memory, i64 %size) {
  ret void
}
"""

_TABLES = f"""\
; Fill in a program's tables for the arrays of this call, and clear its status.
define internal void @fill(ptr %program, ptr %objects) {{
entry:
  {word("%list", PATCHES, "ptr")}
  {word("%length", PATCH_COUNT)}
  {word("%tables", TABLES, "ptr")}
  {word("%buffers", BUFFERS, "ptr")}
  {word("%count", OBJECT_COUNT)}
  {word("%where", OBJECT_BUFFERS, "ptr")}
  {word("%inside", MEMORY_IN_OBJECT)}
  {word("%status", STATUS, "ptr")}
  {word("%cells", STATUS_COUNT)}
  br label %clean
clean:
  %k = phi i64 [ 0, %entry ], [ %k.next, %wipe ]
  %dirty = icmp ult i64 %k, %cells
  br i1 %dirty, label %wipe, label %given
wipe:
  %cell = getelementptr inbounds i64, ptr %status, i64 %k
  store i64 0, ptr %cell
  %k.next = add i64 %k, 1
  br label %clean
given:
  %j = phi i64 [ 0, %clean ], [ %j.next, %take ]
  %another = icmp ult i64 %j, %count
  br i1 %another, label %take, label %head
take:
  %object.cell = getelementptr inbounds i64, ptr %objects, i64 %j
  %object = load ptr, ptr %object.cell
  %memory.cell = getelementptr inbounds i8, ptr %object, i64 %inside
  %memory = load i64, ptr %memory.cell
  %which.cell = getelementptr inbounds i64, ptr %where, i64 %j
  %which = load i64, ptr %which.cell
  %buffer.at = getelementptr inbounds i64, ptr %buffers, i64 %which
  store i64 %memory, ptr %buffer.at
  %j.next = add i64 %j, 1
  br label %given
head:
  %i = phi i64 [ 0, %given ], [ %next, %body ]
  %more = icmp ult i64 %i, %length
  br i1 %more, label %body, label %out
body:
  %first = mul i64 %i, 3
  %position.cell = getelementptr inbounds i64, ptr %list, i64 %first
  %position = load i64, ptr %position.cell
  %buffer.cell = getelementptr inbounds i64, ptr %position.cell, i64 1
  %buffer = load i64, ptr %buffer.cell
  %offset.cell = getelementptr inbounds i64, ptr %position.cell, i64 2
  %offset = load i64, ptr %offset.cell
  %from = getelementptr inbounds i64, ptr %buffers, i64 %buffer
  %base = load i64, ptr %from
  %address = add i64 %base, %offset
  %to = getelementptr inbounds i64, ptr %tables, i64 %position
  store i64 %address, ptr %to
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}}
; Take other scratch memory. A fork may happen between any two of these stores: the child finds
; memory that it may use and free, or none.
define internal i1 @allocate(ptr %job, i64 %size) noinline {{
entry:
  {at("%address.cell", SCRATCH_ADDRESS)}
  {at("%size.cell", SCRATCH_SIZE)}
  {at("%allocate.cell", ALLOCATE)}
  {at("%release.cell", RELEASE)}
  %allocate = load ptr, ptr %allocate.cell
  %release = load ptr, ptr %release.cell
  %old = load ptr, ptr %address.cell
  store atomic i64 0, ptr %size.cell release, align 8
  store atomic ptr null, ptr %address.cell release, align 8
  call void %release(ptr %old)
  %padded = add i64 %size, 64
  %new = call ptr %allocate(i64 %padded)
  %none = icmp eq ptr %new, null
  br i1 %none, label %fail, label %keep
keep:
  call void @enlarge(ptr %new, i64 %padded)
  store atomic ptr %new, ptr %address.cell release, align 8
  store atomic i64 %size, ptr %size.cell release, align 8
  ret i1 true
fail:
  ret i1 false
}}
; Give a program its part of the scratch memory; false if there is no more memory.
define internal i1 @reserve(ptr %job, ptr %program) {{
entry:
  {word("%need", SCRATCH)}
  %own = icmp eq i64 %need, 0
  br i1 %own, label %out, label %count
count:
  {at("%size.cell", SCRATCH_SIZE)}
  {at("%largest.cell", LARGEST)}
  {at("%runs.cell", RUNS)}
  %size = load i64, ptr %size.cell
  %before = load i64, ptr %largest.cell
  %more = icmp ugt i64 %need, %before
  %largest = select i1 %more, i64 %need, i64 %before
  store i64 %largest, ptr %largest.cell
  %ran = load i64, ptr %runs.cell
  %runs = add i64 %ran, 1
  store i64 %runs, ptr %runs.cell
  %short = icmp ugt i64 %need, %size
  br i1 %short, label %grow, label %enough
enough:
  %long = icmp uge i64 %runs, {tuning.RUNS_BEFORE_SHRINKING_SCRATCH}
  br i1 %long, label %look, label %assign
look:
  store i64 0, ptr %runs.cell
  store i64 0, ptr %largest.cell
  %twice = shl i64 %largest, 1
  %wasted = icmp ult i64 %twice, %size
  br i1 %wasted, label %grow, label %assign
grow:
  %wanted = phi i64 [ %need, %count ], [ %largest, %look ]
  %got = call i1 @allocate(ptr %job, i64 %wanted)
  br i1 %got, label %assign, label %fail
assign:
  {at("%address.cell", SCRATCH_ADDRESS)}
  %address = load i64, ptr %address.cell
  %padded = add i64 %address, 63
  %arena = and i64 %padded, -64
  {word("%arena.buffer", ARENA)}
  {word("%partials.buffer", PARTIALS)}
  {word("%offset", PARTIALS_OFFSET)}
  {word("%buffers", BUFFERS, "ptr")}
  %arena.cell = getelementptr inbounds i64, ptr %buffers, i64 %arena.buffer
  store i64 %arena, ptr %arena.cell
  %partials = add i64 %arena, %offset
  %partials.cell = getelementptr inbounds i64, ptr %buffers, i64 %partials.buffer
  store i64 %partials, ptr %partials.cell
  br label %out
out:
  ret i1 true
fail:
  ret i1 false
}}
"""


def pages_text() -> str:
    """The text of the function that asks for huge pages, for this system."""
    return _LARGE_PAGES if sys.platform == "linux" and has("madvise") else _SMALL_PAGES


def tables_text() -> str:
    """The text of the functions that fill in tables and give programs their scratch memory."""
    return _TABLES
