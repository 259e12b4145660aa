"""LLVM IR text of the allocator of result memory: it takes the smallest idle block that is large enough, and cuts it.

A region of addresses is cut into blocks, which are in use or idle. Two lists link them: all blocks, in the order of their
addresses, and the idle ones. result_pool_text.py, which is compiled with this text, gives blocks back, joins idle neighbours by
@absorb, and holds the mutex around each call. result_pages_text.py says which huge pages of a block are resident, since idle memory
may have been given back to the system in part: @mark, @resident, @make_writable and @trim are there.
"""

TEXT = r"""
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)

; 0, 1 the block below and above in memory   2, 3 the next and previous idle block   4 address of its memory   5 bytes
; 6 of an idle block: bytes of the huge pages of its own that were touched   7 whether it is in use
%block = type { ptr, ptr, ptr, ptr, i64, i64, i64, i64 }

@idle_blocks = global ptr null
@region_start = global i64 0
@region_end = global i64 0
@live_bytes = global i64 0          ; of blocks in use
@most_bytes = global i64 0          ; the highest @live_bytes of this period and the one before; a period is 4096 blocks taken
@recent_bytes = global i64 0        ; the highest of this period alone
@takes = internal global i64 0      ; how many blocks were taken

define internal i64 @get(ptr %block, i64 %field) {
  %at = getelementptr i64, ptr %block, i64 %field
  %value = load i64, ptr %at
  ret i64 %value
}

define internal ptr @get_block(ptr %block, i64 %field) {
  %at = getelementptr ptr, ptr %block, i64 %field
  %value = load ptr, ptr %at
  ret ptr %value
}

; Does nothing where %block is null.
define internal void @set(ptr %block, i64 %field, i64 %value) {
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %at = getelementptr i64, ptr %block, i64 %field
  store i64 %value, ptr %at
  br label %done
done:
  ret void
}

define internal void @set_block(ptr %block, i64 %field, ptr %value) {
  %number = ptrtoint ptr %value to i64
  call void @set(ptr %block, i64 %field, i64 %number)
  ret void
}

define internal void @add(ptr %counter, i64 %bytes) {
  %old = load i64, ptr %counter
  %new = add i64 %old, %bytes
  store i64 %new, ptr %counter
  ret void
}

; Makes %block one of the idle ones.
define internal void @link(ptr %block) {
  %next = load ptr, ptr @idle_blocks
  call void @set_block(ptr %block, i64 2, ptr %next)
  call void @set_block(ptr %block, i64 3, ptr null)
  call void @set_block(ptr %next, i64 3, ptr %block)
  store ptr %block, ptr @idle_blocks
  %resident = call i64 @resident(ptr %block)
  call void @set(ptr %block, i64 6, i64 %resident)
  call void @add(ptr @idle_bytes, i64 %resident)
  ret void
}

define internal void @unlink(ptr %block) {
  %next = call ptr @get_block(ptr %block, i64 2)
  %previous = call ptr @get_block(ptr %block, i64 3)
  call void @set_block(ptr %next, i64 3, ptr %previous)
  call void @set_block(ptr %previous, i64 2, ptr %next)
  %is_first = icmp eq ptr %previous, null
  br i1 %is_first, label %first, label %done
first:
  store ptr %next, ptr @idle_blocks
  br label %done
done:
  %resident = call i64 @get(ptr %block, i64 6)
  %minus = sub i64 0, %resident
  call void @add(ptr @idle_bytes, i64 %minus)
  ret void
}

define internal i1 @is_idle(ptr %block) {
  %none = icmp eq ptr %block, null
  br i1 %none, label %no, label %some
some:
  %used = call i64 @get(ptr %block, i64 7)
  %idle = icmp eq i64 %used, 0
  ret i1 %idle
no:
  ret i1 false
}

; %low becomes it and its upper neighbour %high; neither is linked as idle.
define internal void @absorb(ptr %low, ptr %high) {
  %above = call ptr @get_block(ptr %high, i64 1)
  call void @set_block(ptr %low, i64 1, ptr %above)
  call void @set_block(ptr %above, i64 0, ptr %low)
  %bytes_at = getelementptr %block, ptr %low, i32 0, i32 5
  %bytes = call i64 @get(ptr %high, i64 5)
  call void @add(ptr %bytes_at, i64 %bytes)
  call void @free(ptr %high)
  ret void
}

; The idle block of at least %bytes with the fewest; null if there is none.
define internal ptr @best_fit(i64 %bytes) {
entry:
  %first = load ptr, ptr @idle_blocks
  br label %head
head:
  %block = phi ptr [ %first, %entry ], [ %next, %body ]
  %best = phi ptr [ null, %entry ], [ %better, %body ]
  %least = phi i64 [ -1, %entry ], [ %less, %body ]
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %body
body:
  %next = call ptr @get_block(ptr %block, i64 2)
  %have = call i64 @get(ptr %block, i64 5)
  %enough = icmp uge i64 %have, %bytes
  %fewer = icmp ult i64 %have, %least
  %choose = and i1 %enough, %fewer
  %better = select i1 %choose, ptr %block, ptr %best
  %less = select i1 %choose, i64 %have, i64 %least
  br label %head
done:
  ret ptr %best
}

; A block of %bytes, a multiple of 4096; null if there is no room.
define internal ptr @take_block(i64 %bytes) {
entry:
  %best = call ptr @best_fit(i64 %bytes)
  %none = icmp eq ptr %best, null
  br i1 %none, label %no_room, label %fits
fits:
  %memory = call i64 @get(ptr %best, i64 4)
  %have = call i64 @get(ptr %best, i64 5)
  %end = add i64 %memory, %bytes
  %writable = call i1 @make_writable(i64 %end)
  br i1 %writable, label %split, label %no_room
split:
  %rest = call ptr @calloc(i64 1, i64 64)
  %no_record = icmp eq ptr %rest, null
  br i1 %no_record, label %no_room, label %cut
cut:
  call void @unlink(ptr %best)
  %exact = icmp eq i64 %have, %bytes
  br i1 %exact, label %whole, label %part
whole:
  call void @free(ptr %rest)
  call void @mark(ptr %best)
  br label %taken
part:
  %above = call ptr @get_block(ptr %best, i64 1)
  call void @set_block(ptr %rest, i64 0, ptr %best)
  call void @set_block(ptr %rest, i64 1, ptr %above)
  call void @set_block(ptr %above, i64 0, ptr %rest)
  call void @set_block(ptr %best, i64 1, ptr %rest)
  %rest_bytes = sub i64 %have, %bytes
  call void @set(ptr %rest, i64 4, i64 %end)
  call void @set(ptr %rest, i64 5, i64 %rest_bytes)
  call void @set(ptr %best, i64 5, i64 %bytes)
  call void @mark(ptr %best)
  call void @link(ptr %rest)
  br label %taken
taken:
  call void @set(ptr %best, i64 7, i64 1)
  call void @count_and_trim(i64 %bytes)
  ret ptr %best
no_room:
  ret ptr null
}

; Counts %bytes more as in use. Then gives idle memory back to the system, so that used bytes and resident idle bytes together are at most
; the most that were in use at once in this period and the one before, and one huge page.
define internal void @count_and_trim(i64 %bytes) {
  %takes = load i64, ptr @takes
  %next = add i64 %takes, 1
  store i64 %next, ptr @takes
  %phase = and i64 %next, 4095
  %is_new_period = icmp eq i64 %phase, 0
  br i1 %is_new_period, label %new_period, label %same_period
new_period:
  %before = load i64, ptr @recent_bytes
  store i64 %before, ptr @most_bytes
  store i64 0, ptr @recent_bytes
  br label %same_period
same_period:
  call void @add(ptr @live_bytes, i64 %bytes)
  %live = load i64, ptr @live_bytes
  %recent = load i64, ptr @recent_bytes
  %recent_then = call i64 @llvm.umax.i64(i64 %recent, i64 %live)
  store i64 %recent_then, ptr @recent_bytes
  %most = load i64, ptr @most_bytes
  %most_then = call i64 @llvm.umax.i64(i64 %most, i64 %live)
  store i64 %most_then, ptr @most_bytes
  %idle = load i64, ptr @idle_bytes
  %total = add i64 %live, %idle
  %allowed = add i64 %most_then, 2097152 ; of the last page only a part was in use
  %excess = call i64 @llvm.usub.sat.i64(i64 %total, i64 %allowed)
  call void @trim(i64 %excess)
  ret void
}
"""
