"""The text of the native caller, in LLVM IR; `caller.py` says what it does.

Comes in: where objects hold their type, dtype and sizes (`Offsets`). Goes out: the text of
`@NAME(self, arguments, number of arguments)`, a function as Python's METH_FASTCALL wants it.
"""

from __future__ import annotations

from .caller_layout import (
    ARRAY,
    ARRAY_TYPE,
    CHECK,
    CLOSE,
    COUNT,
    DESCRIPTOR,
    DROP,
    EMPTY,
    FALSE,
    FIXED,
    HOLD,
    INT_TYPE,
    INTEGER,
    ITEM,
    JOB,
    KIND,
    LABELS,
    LAUNCH,
    MAX_OBJECTS,
    MAX_SYMBOLS,
    MOST,
    NEW_TUPLE,
    NONE,
    NOT_IMPLEMENTED,
    OP_COUNT,
    OP_WORDS,
    OPS,
    ORDER,
    PARTS,
    PICK_COUNT,
    PICKS,
    POWER_BITS,
    RANK,
    READ_COUNT,
    READS,
    RESERVE,
    RESULT_COUNT,
    RESULT_WORDS,
    RESULTS,
    ROW_WORDS,
    ROWS,
    SAME,
    SET_PART,
    SHAPE,
    SIZES,
    TUPLE_TYPE,
    WHAT,
    WRITE_ALIGNED,
    WRITE_END,
    WRITE_INTEGER,
    WRITE_OFFSET,
    WRITE_QUOTIENT,
    WRITE_REAL,
    Offsets,
)
from .executable import FIRST_IN_TUPLE, MEMORY_IN_ARRAY


def _field(name: str, holder: str, offset: int, kind: str) -> str:
    return (
        f"{name}.at = getelementptr inbounds i8, ptr {holder}, i64 {offset}\n"
        f"  {name} = load {kind}, ptr {name}.at"
    )


def _word(name: str, table: str, position: int | str, kind: str = "i64") -> str:
    return (
        f"{name}.at = getelementptr inbounds i64, ptr {table}, i64 {position}\n"
        f"  {name} = load {kind}, ptr {name}.at"
    )


def text(at: Offsets) -> str:
    """The text of the function, and of what it consists of."""
    return f"""
; Whether a dimension of a label may have this size: all dimensions of a label have the same, of at
; least 2, and different labels different ones. Labels of 0 and below stand for a size.
define internal i1 @bind(ptr %symbols, i64 %label, i64 %size) {{
entry:
  %is.size = icmp sle i64 %label, 0
  br i1 %is.size, label %fixed, label %look
fixed:
  %is.one = icmp eq i64 %label, 0
  %negated = sub i64 0, %label
  %wanted = select i1 %is.one, i64 1, i64 %negated
  %fits = icmp eq i64 %size, %wanted
  ret i1 %fits
look:
  %large = icmp sge i64 %size, 2
  br i1 %large, label %find, label %no
find:
  %index = sub i64 %label, 1
  {_word("%known", "%symbols", "%index")}
  %same = icmp eq i64 %known, %size
  br i1 %same, label %yes, label %new
new:
  %unknown = icmp eq i64 %known, 0
  br i1 %unknown, label %compare, label %no
compare:
  %k = phi i64 [ 0, %new ], [ %next, %following ]
  {_word("%other", "%symbols", "%k")}
  %taken = icmp eq i64 %other, %size
  br i1 %taken, label %no, label %following
following:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, {MAX_SYMBOLS}
  br i1 %more, label %compare, label %store
store:
  store i64 %size, ptr %known.at
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}}
; Whether an array has the dtype and the rank of a row.
define internal i1 @is_of_kind(ptr %row, ptr %array) {{
entry:
  {_field("%dtype", "%array", at.dtype, "i64")}
  {_word("%wanted", "%row", WHAT)}
  %same.dtype = icmp eq i64 %dtype, %wanted
  {_field("%rank.32", "%array", at.rank, "i32")}
  %rank = sext i32 %rank.32 to i64
  {_word("%rank.wanted", "%row", RANK)}
  %same.rank = icmp eq i64 %rank, %rank.wanted
  %same = and i1 %same.dtype, %same.rank
  ret i1 %same
}}
; Whether an array has the sizes and strides of a row.
define internal i1 @is_same(ptr %row, ptr %array) {{
entry:
  {_word("%rank", "%row", RANK)}
  {_field("%sizes", "%array", at.sizes, "ptr")}
  {_field("%strides", "%array", at.strides, "ptr")}
  br label %next
next:
  %d = phi i64 [ 0, %entry ], [ %d.next, %good ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %look, label %yes
look:
  {_word("%size", "%sizes", "%d")}
  {_word("%stride", "%strides", "%d")}
  %size.position = add i64 %d, {LABELS}
  %stride.position = add i64 %d, {ORDER}
  {_word("%size.wanted", "%row", "%size.position")}
  {_word("%stride.wanted", "%row", "%stride.position")}
  %same.size = icmp eq i64 %size, %size.wanted
  %same.stride = icmp eq i64 %stride, %stride.wanted
  %both = and i1 %same.size, %same.stride
  br i1 %both, label %good, label %no
good:
  %d.next = add i64 %d, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}}
; Whether an array has the layout of a row, and its sizes those of the labels.
define internal i1 @is_alike(ptr %row, ptr %array, ptr %symbols) {{
entry:
  {_word("%rank", "%row", RANK)}
  {_field("%sizes", "%array", at.sizes, "ptr")}
  {_field("%strides", "%array", at.strides, "ptr")}
  {_word("%item", "%row", ITEM)}
  {_word("%most", "%row", MOST)}
  br label %dims
dims:
  %d = phi i64 [ 0, %entry ], [ %d.next, %dim.good ]
  %has.dim = icmp slt i64 %d, %rank
  br i1 %has.dim, label %dim, label %layout
dim:
  {_word("%size", "%sizes", "%d")}
  %label.position = add i64 %d, {LABELS}
  {_word("%label", "%row", "%label.position")}
  %fits = call i1 @bind(ptr %symbols, i64 %label, i64 %size)
  br i1 %fits, label %dim.good, label %no
dim.good:
  %d.next = add i64 %d, 1
  br label %dims
layout:
  %j = phi i64 [ 0, %dims ], [ %j.next, %step.good ]
  %stride = phi i64 [ %item, %dims ], [ %stride.next, %step.good ]
  %has.step = icmp slt i64 %j, %rank
  br i1 %has.step, label %step, label %last
step:
  %order.position = add i64 %j, {ORDER}
  {_word("%e", "%row", "%order.position")}
  {_word("%extent", "%sizes", "%e")}
  {_word("%found", "%strides", "%e")}
  %single = icmp eq i64 %extent, 1
  %right = icmp eq i64 %found, %stride
  %good.step = or i1 %single, %right
  br i1 %good.step, label %step.good, label %no
step.good:
  %stride.next = mul i64 %stride, %extent
  %j.next = add i64 %j, 1
  br label %layout
last:
  %small = icmp sle i64 %stride, %most
  ret i1 %small
no:
  ret i1 false
}}
; Whether a tuple of integers has the sizes of a row's labels.
define internal i1 @is_shape(ptr %row, ptr %tuple, ptr %symbols, ptr %api) {{
entry:
  {_word("%parts", "%api", PARTS, "ptr")}
  {_word("%integer", "%api", INTEGER, "ptr")}
  {_word("%int", "%api", INT_TYPE)}
  {_word("%rank", "%row", RANK)}
  %count = call i64 %parts(ptr %tuple)
  %same = icmp eq i64 %count, %rank
  br i1 %same, label %dims, label %no
dims:
  %d = phi i64 [ 0, %entry ], [ %d.next, %good ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %dim, label %yes
dim:
  %first = getelementptr inbounds i8, ptr %tuple, i64 {FIRST_IN_TUPLE}
  {_word("%part", "%first", "%d", "ptr")}
  {_field("%type", "%part", at.type, "i64")}
  %is.int = icmp eq i64 %type, %int
  br i1 %is.int, label %read, label %no
read:
  %size = call i64 %integer(ptr %part)
  %label.position = add i64 %d, {LABELS}
  {_word("%label", "%row", "%label.position")}
  %fits = call i1 @bind(ptr %symbols, i64 %label, i64 %size)
  br i1 %fits, label %good, label %no
good:
  %d.next = add i64 %d, 1
  br label %dims
yes:
  ret i1 true
no:
  ret i1 false
}}
; Whether the arguments are those of a program; then the symbols have their sizes.
define internal i1 @matches(ptr %served, ptr %api, ptr %args, i64 %given, ptr %symbols) {{
entry:
  {_word("%count", "%served", COUNT)}
  {_word("%rows", "%served", ROWS, "ptr")}
  call void @llvm.memset.p0.i64(ptr %symbols, i8 0, i64 {8 * MAX_SYMBOLS}, i1 false)
  %same = icmp eq i64 %count, %given
  br i1 %same, label %next, label %no
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %good ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  {_word("%arg", "%args", "%i", "ptr")}
  %way = mul i64 %i, {ROW_WORDS}
  %row = getelementptr inbounds i64, ptr %rows, i64 %way
  {_word("%kind", "%row", KIND)}
  {_word("%what", "%row", WHAT)}
  {_field("%type", "%arg", at.type, "i64")}
  switch i64 %kind, label %no [
    i64 {ARRAY}, label %array
    i64 {SAME}, label %object
    i64 {SHAPE}, label %tuple
    i64 {FIXED}, label %array
  ]
object:
  %address = ptrtoint ptr %arg to i64
  %is.it = icmp eq i64 %address, %what
  br i1 %is.it, label %good, label %no
array:
  {_word("%ndarray", "%api", ARRAY_TYPE)}
  %is.array = icmp eq i64 %type, %ndarray
  br i1 %is.array, label %elements, label %no
elements:
  %of.kind = call i1 @is_of_kind(ptr %row, ptr %arg)
  br i1 %of.kind, label %layout, label %no
layout:
  %is.fixed = icmp eq i64 %kind, {FIXED}
  br i1 %is.fixed, label %exact, label %alike
exact:
  %is.same = call i1 @is_same(ptr %row, ptr %arg)
  br i1 %is.same, label %good, label %no
alike:
  %fits = call i1 @is_alike(ptr %row, ptr %arg, ptr %symbols)
  br i1 %fits, label %good, label %no
tuple:
  {_word("%tuple.type", "%api", TUPLE_TYPE)}
  %is.tuple = icmp eq i64 %type, %tuple.type
  br i1 %is.tuple, label %shape, label %no
shape:
  %has = call i1 @is_shape(ptr %row, ptr %arg, ptr %symbols, ptr %api)
  br i1 %has, label %good, label %no
good:
  %i.next = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}}
; Write all that depends on the sizes of a call; false, with nothing written, if they are too large.
define internal i1 @resize(ptr %served, ptr %symbols) {{
entry:
  {_word("%ops", "%served", OPS, "ptr")}
  {_word("%count", "%served", OP_COUNT)}
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %done ]
  %current = phi i64 [ 0, %entry ], [ %current.next, %done ]
  %total = phi i64 [ 0, %entry ], [ %total.next, %done ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %way = mul i64 %i, {OP_WORDS}
  %op = getelementptr inbounds i64, ptr %ops, i64 %way
  {_word("%code", "%op", 0)}
  {_word("%target", "%op", 1, "ptr")}
  {_word("%mask", "%op", 3)}
  {_word("%factor", "%op", 2)}
  {_word("%addend", "%op", 4)}
  br label %multiply
multiply:
  %k = phi i64 [ 0, %look ], [ %k.next, %multiplied ]
  %left = phi i64 [ %mask, %look ], [ %left.next, %multiplied ]
  %product = phi i64 [ 1, %look ], [ %product.next, %multiplied ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %bit, label %ready
bit:
  %which = lshr i64 %k, {POWER_BITS.bit_length() - 1}
  {_word("%symbol", "%symbols", "%which")}
  %lowest = and i64 %left, 1
  %has = icmp ne i64 %lowest, 0
  %by = select i1 %has, i64 %symbol, i64 1
  br label %multiplied
multiplied:
  %product.next = mul i64 %product, %by
  %left.next = lshr i64 %left, 1
  %k.next = add i64 %k, 1
  br label %multiply
ready:
  %scaled = mul i64 %product, %factor
  %number = add i64 %scaled, %addend
  %padded = add i64 %number, 63
  %aligned = and i64 %padded, -64
  %real = sitofp i64 %number to double
  %below = add i64 %product, %addend
  %numerator = sitofp i64 %factor to double
  %denominator = sitofp i64 %below to double
  %quotient = fdiv double %numerator, %denominator
  %larger = icmp sgt i64 %number, %current
  %largest = select i1 %larger, i64 %number, i64 %current
  %end = add i64 %total, %number
  %room = add i64 %current, 63
  %block = and i64 %room, -64
  %total.more = add i64 %total, %block
  switch i64 %code, label %done [
    i64 {CHECK}, label %check
    i64 {WRITE_INTEGER}, label %integers
    i64 {WRITE_ALIGNED}, label %lines
    i64 {WRITE_REAL}, label %reals
    i64 {WRITE_QUOTIENT}, label %quotients
    i64 {WRITE_OFFSET}, label %offsets
    i64 {WRITE_END}, label %ends
  ]
check:
  %above = icmp sgt i64 %number, 0
  br i1 %above, label %give.up, label %done
give.up:
  ret i1 false
integers:
  store i64 %number, ptr %target
  br label %done
lines:
  store i64 %aligned, ptr %target
  br label %done
reals:
  store double %real, ptr %target
  br label %done
quotients:
  store double %quotient, ptr %target
  br label %done
offsets:
  store i64 %total, ptr %target
  br label %done
ends:
  store i64 %end, ptr %target
  br label %done
done:
  %reserves = icmp eq i64 %code, {RESERVE}
  %closes = icmp eq i64 %code, {CLOSE}
  %current.kept = select i1 %reserves, i64 %largest, i64 %current
  %current.next = select i1 %closes, i64 0, i64 %current.kept
  %total.next = select i1 %closes, i64 %total.more, i64 %total
  %i.next = add i64 %i, 1
  br label %next
out:
  ret i1 true
}}
; Run a program on arguments that it matches.
define internal ptr @run(ptr %served, ptr %api, ptr %args, ptr %symbols) {{
entry:
  %objects = alloca [{MAX_OBJECTS} x ptr]
  {_word("%hold", "%api", HOLD, "ptr")}
  {_word("%drop", "%api", DROP, "ptr")}
  {_word("%empty", "%api", EMPTY, "ptr")}
  {_word("%program", "%served", DESCRIPTOR, "ptr")}
  %none.here = icmp eq ptr %program, null
  br i1 %none.here, label %refuse, label %compare
refuse:
  {_word("%false", "%api", FALSE, "ptr")}
  call void %hold(ptr %false)
  ret ptr %false
compare:
  %before = getelementptr inbounds i64, ptr %served, i64 {SIZES}
  %difference = call i32 @memcmp(ptr %before, ptr %symbols, i64 {8 * MAX_SYMBOLS})
  %same = icmp eq i32 %difference, 0
  br i1 %same, label %prepare, label %other
other:
  %fits = call i1 @resize(ptr %served, ptr %symbols)
  br i1 %fits, label %remember, label %large
large:
  {_word("%nothing.fits", "%api", NONE, "ptr")}
  call void %hold(ptr %nothing.fits)
  ret ptr %nothing.fits
remember:
  call void @llvm.memcpy.p0.p0.i64(ptr %before, ptr %symbols, i64 {8 * MAX_SYMBOLS}, i1 false)
  br label %prepare
prepare:
  {_word("%reads", "%served", READS, "ptr")}
  {_word("%read.count", "%served", READ_COUNT)}
  {_word("%results", "%served", RESULTS, "ptr")}
  {_word("%result.count", "%served", RESULT_COUNT)}
  %outs = getelementptr inbounds ptr, ptr %objects, i64 %read.count
  br label %given
given:
  %i = phi i64 [ 0, %prepare ], [ %i.next, %give ]
  %another = icmp slt i64 %i, %read.count
  br i1 %another, label %give, label %made
give:
  {_word("%position", "%reads", "%i")}
  {_word("%arg", "%args", "%position", "ptr")}
  %to = getelementptr inbounds ptr, ptr %objects, i64 %i
  store ptr %arg, ptr %to
  %i.next = add i64 %i, 1
  br label %given
made:
  %r = phi i64 [ 0, %given ], [ %r.next, %keep ]
  %unmade = icmp slt i64 %r, %result.count
  br i1 %unmade, label %make, label %go
make:
  %way = mul i64 %r, {RESULT_WORDS}
  %result = getelementptr inbounds i64, ptr %results, i64 %way
  {_word("%dtype", "%result", 0, "ptr")}
  {_word("%rank", "%result", 1)}
  %dims = getelementptr inbounds i64, ptr %result, i64 2
  %rank.32 = trunc i64 %rank to i32
  call void %hold(ptr %dtype)
  %array = call ptr %empty(i32 %rank.32, ptr %dims, ptr %dtype, i32 0)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %undo, label %keep
keep:
  %out.cell = getelementptr inbounds ptr, ptr %outs, i64 %r
  store ptr %array, ptr %out.cell
  %r.next = add i64 %r, 1
  br label %made
go:
  {_word("%launch", "%api", LAUNCH, "ptr")}
  {_word("%job", "%api", JOB, "ptr")}
  %answer = call i64 %launch(ptr %job, ptr %program, i64 1, ptr %objects)
  %bad = icmp ne i64 %answer, 0
  br i1 %bad, label %undo, label %return
undo:
  ; Either no memory (an exception is set), or bad data.
  %until = phi i64 [ %r, %make ], [ %result.count, %go ]
  %gone = phi i1 [ true, %make ], [ false, %go ]
  br label %undoing
undoing:
  %u = phi i64 [ 0, %undo ], [ %u.next, %dropping ]
  %kept = icmp slt i64 %u, %until
  br i1 %kept, label %dropping, label %undone
dropping:
  {_word("%unused", "%outs", "%u", "ptr")}
  call void %drop(ptr %unused)
  %u.next = add i64 %u, 1
  br label %undoing
undone:
  br i1 %gone, label %raise, label %decline
raise:
  ret ptr null
decline:
  {_word("%declined", "%api", NOT_IMPLEMENTED, "ptr")}
  call void %hold(ptr %declined)
  ret ptr %declined
return:
  {_word("%picks", "%served", PICKS, "ptr")}
  {_word("%pick.count", "%served", PICK_COUNT)}
  %single = icmp slt i64 %pick.count, 0
  br i1 %single, label %one, label %several
one:
  %only = load ptr, ptr %outs
  ret ptr %only
several:
  {_word("%tuples", "%api", NEW_TUPLE, "ptr")}
  {_word("%set", "%api", SET_PART, "ptr")}
  {_word("%none", "%api", NONE, "ptr")}
  %tuple = call ptr %tuples(i64 %pick.count)
  %no.tuple = icmp eq ptr %tuple, null
  br i1 %no.tuple, label %lost, label %filling
lost:
  br label %undo.tuple
undo.tuple:
  %w = phi i64 [ 0, %lost ], [ %w.next, %wasting ]
  %wasted = icmp slt i64 %w, %result.count
  br i1 %wasted, label %wasting, label %raise
wasting:
  {_word("%waste", "%outs", "%w", "ptr")}
  call void %drop(ptr %waste)
  %w.next = add i64 %w, 1
  br label %undo.tuple
filling:
  %p = phi i64 [ 0, %several ], [ %p.next, %put ]
  %unfilled = icmp slt i64 %p, %pick.count
  br i1 %unfilled, label %fill, label %filled
fill:
  {_word("%pick", "%picks", "%p")}
  %is.none = icmp slt i64 %pick, 0
  br i1 %is.none, label %nothing, label %something
nothing:
  call void %hold(ptr %none)
  br label %put
something:
  {_word("%picked", "%outs", "%pick", "ptr")}
  br label %put
put:
  %part = phi ptr [ %none, %nothing ], [ %picked, %something ]
  call i32 %set(ptr %tuple, i64 %p, ptr %part)
  %p.next = add i64 %p, 1
  br label %filling
filled:
  ret ptr %tuple
}}
define ptr @NAME(ptr %self, ptr %args, i64 %given) {{
entry:
  %symbols = alloca [{MAX_SYMBOLS} x i64]
  {_field("%site", "%self", MEMORY_IN_ARRAY, "ptr")}
  {_word("%api", "%site", 0, "ptr")}
  {_word("%count", "%site", 1)}
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %other ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %position = add i64 %i, 2
  {_word("%served", "%site", "%position", "ptr")}
  %fits = call i1 @matches(ptr %served, ptr %api, ptr %args, i64 %given, ptr %symbols)
  br i1 %fits, label %found, label %other
other:
  %i.next = add i64 %i, 1
  br label %next
found:
  %result = call ptr @run(ptr %served, ptr %api, ptr %args, ptr %symbols)
  ret ptr %result
none:
  {_word("%answer", "%api", NONE, "ptr")}
  {_word("%hold", "%api", HOLD, "ptr")}
  call void %hold(ptr %answer)
  ret ptr %answer
}}
declare i32 @memcmp(ptr, ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
