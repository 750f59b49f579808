"""LLVM text that every translated module has: the check of an access, and the loop over threads."""

from __future__ import annotations

from tests.gpu.ptx.lower import LOCAL, LOCAL_END, N_RANGES, RANGES, STATE

MAY_ACCESS = f"""
define internal i1 @may_access(ptr %launch, ptr %thread, i64 %address, i64 %size) noinline {{
entry:
  %at_table = getelementptr i64, ptr %launch, i64 {RANGES}
  %table_address = load i64, ptr %at_table
  %table = inttoptr i64 %table_address to ptr
  %at_n = getelementptr i64, ptr %launch, i64 {N_RANGES}
  %n = load i64, ptr %at_n
  %low = sub i64 %size, 1
  %odd = and i64 %address, %low
  %aligned = icmp eq i64 %odd, 0
  %end = add i64 %address, %size
  br i1 %aligned, label %local, label %no
local:
  %at_local = getelementptr i64, ptr %thread, i64 {LOCAL}
  %begin_local = load i64, ptr %at_local
  %at_local_end = getelementptr i64, ptr %thread, i64 {LOCAL_END}
  %end_local = load i64, ptr %at_local_end
  %local_low = icmp uge i64 %address, %begin_local
  %local_high = icmp ule i64 %end, %end_local
  %in_local = and i1 %local_low, %local_high
  br i1 %in_local, label %yes, label %loop
loop:
  %i = phi i64 [ 0, %local ], [ %next, %again ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %look, label %no
look:
  %k = shl i64 %i, 1
  %at_begin = getelementptr i64, ptr %table, i64 %k
  %begin = load i64, ptr %at_begin
  %at_end = getelementptr i64, ptr %at_begin, i64 1
  %range_end = load i64, ptr %at_end
  %above = icmp uge i64 %address, %begin
  %below = icmp ule i64 %end, %range_end
  %inside = and i1 %above, %below
  br i1 %inside, label %yes, label %again
again:
  %next = add i64 %i, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}}
"""
"""Whether the thread may touch `size` (a power of two) bytes: aligned, and in its local memory or a range of the
launch."""


def run_loop(symbol: str, quoted: str) -> str:
    """run_<symbol>(launch, threads, bytes of a thread's slots, order, n): runs the n threads that `order` numbers."""
    return f"""
define void @"run_{symbol}"(ptr %launch, ptr %threads, i64 %stride, ptr %order, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at_number = getelementptr i64, ptr %order, i64 %i
  %number = load i64, ptr %at_number
  %offset = mul i64 %number, %stride
  %thread = getelementptr i8, ptr %threads, i64 %offset
  %status = call i32 @{quoted}(ptr %launch, ptr %thread)
  %state = sext i32 %status to i64
  %at_state = getelementptr i64, ptr %thread, i64 {STATE}
  store i64 %state, ptr %at_state
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}}
"""
