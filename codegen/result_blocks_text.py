"""The LLVM IR of the blocks that the pool of result memory consists of. Compiled with result_pool_text.py.

A region of addresses is cut into blocks, which are in use or idle. Neighbours are linked in the order of their
addresses, and two idle ones become one; idle ones are linked as well. All is called with the mutex held.
"""

TEXT = r"""
declare i32 @mprotect(ptr, i64, i32)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)

; lower and upper neighbour, next and previous idle block, memory, bytes, at most how many of an idle one's bytes are
; in the resident set, whether it is in use
%block = type { ptr, ptr, ptr, ptr, i64, i64, i64, i64 }

@idle_blocks = global ptr null
@region_end = global i64 0
@writable_end = global i64 0        ; up to here the region may be touched
@live_bytes = global i64 0          ; of blocks in use
@kept_bytes = global i64 0          ; resident ones of idle blocks
@most_bytes = global i64 0          ; the highest @live_bytes of this time and the one before
@recent_bytes = global i64 0        ; of this time alone
@takes = internal global i64 0

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

; Does nothing to no block.
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
  %resident = call i64 @get(ptr %block, i64 6)
  call void @add(ptr @kept_bytes, i64 %resident)
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
  call void @add(ptr @kept_bytes, i64 %minus)
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
  %resident_at = getelementptr %block, ptr %low, i32 0, i32 6
  %resident = call i64 @get(ptr %high, i64 6)
  call void @add(ptr %resident_at, i64 %resident)
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

; Gives resident memory of idle blocks back to the system, %excess bytes of it or what there is, in whole huge pages:
; those at the end of a block, since the next result is put at its beginning.
define internal void @trim(i64 %excess) {
entry:
  %first = load ptr, ptr @idle_blocks
  br label %head
head:
  %block = phi ptr [ %first, %entry ], [ %next, %body ], [ %next, %drop ]
  %left = phi i64 [ %excess, %entry ], [ %left, %body ], [ %left_then, %drop ]
  %none = icmp eq ptr %block, null
  %enough = icmp eq i64 %left, 0
  %end = or i1 %none, %enough
  br i1 %end, label %done, label %body
body:
  %next = call ptr @get_block(ptr %block, i64 2)
  %memory = call i64 @get(ptr %block, i64 4)
  %bytes = call i64 @get(ptr %block, i64 5)
  %resident = call i64 @get(ptr %block, i64 6)
  %low = add i64 %memory, 2097151
  %lowest = and i64 %low, -2097152
  %stop = add i64 %memory, %bytes
  %writable = load i64, ptr @writable_end
  %last = call i64 @llvm.umin.i64(i64 %stop, i64 %writable)
  %highest = and i64 %last, -2097152
  %touched = add i64 %memory, %resident
  %touched_up = add i64 %touched, 2097151
  %touched_page = and i64 %touched_up, -2097152
  %touched_end = call i64 @llvm.umin.i64(i64 %highest, i64 %touched_page)
  %left_up = add i64 %left, 2097151
  %wanted = and i64 %left_up, -2097152
  %wanted_start = call i64 @llvm.usub.sat.i64(i64 %touched_end, i64 %wanted)
  %start = call i64 @llvm.umax.i64(i64 %lowest, i64 %wanted_start)
  %before = sub i64 %start, %memory
  %after = sub i64 %last, %highest
  %rest = add i64 %before, %after
  %length = sub i64 %highest, %start
  %some = icmp sgt i64 %length, 0
  %less = icmp ult i64 %rest, %resident
  %useful = and i1 %some, %less
  br i1 %useful, label %drop, label %head
drop:
  %page = inttoptr i64 %start to ptr
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 4) ; MADV_DONTNEED
  call void @set(ptr %block, i64 6, i64 %rest)
  %minus = sub i64 %rest, %resident
  call void @add(ptr @kept_bytes, i64 %minus)
  %dropped = sub i64 0, %minus
  %left_then = call i64 @llvm.usub.sat.i64(i64 %left, i64 %dropped)
  br label %head
done:
  ret void
}

; Lets the region be touched up to %end.
define internal i1 @make_writable(i64 %end) {
  %from = load i64, ptr @writable_end
  %enough = icmp ule i64 %end, %from
  br i1 %enough, label %done, label %more
more:
  %up = add i64 %end, 67108863
  %rounded = and i64 %up, -67108864
  %most = load i64, ptr @region_end
  %to = call i64 @llvm.umin.i64(i64 %rounded, i64 %most)
  %length = sub i64 %to, %from
  %page = inttoptr i64 %from to ptr
  %code = call i32 @mprotect(ptr %page, i64 %length, i32 3) ; PROT_READ | PROT_WRITE
  %good = icmp eq i32 %code, 0
  br i1 %good, label %note, label %failed
note:
  store i64 %to, ptr @writable_end
  br label %done
done:
  ret i1 true
failed:
  ret i1 false
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
  %resident = call i64 @get(ptr %best, i64 6)
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
  br label %taken
part:
  %above = call ptr @get_block(ptr %best, i64 1)
  call void @set_block(ptr %rest, i64 0, ptr %best)
  call void @set_block(ptr %rest, i64 1, ptr %above)
  call void @set_block(ptr %above, i64 0, ptr %rest)
  call void @set_block(ptr %best, i64 1, ptr %rest)
  %rest_bytes = sub i64 %have, %bytes
  %rest_resident = call i64 @llvm.umin.i64(i64 %resident, i64 %rest_bytes)
  call void @set(ptr %rest, i64 4, i64 %end)
  call void @set(ptr %rest, i64 5, i64 %rest_bytes)
  call void @set(ptr %rest, i64 6, i64 %rest_resident)
  call void @set(ptr %best, i64 5, i64 %bytes)
  call void @link(ptr %rest)
  br label %taken
taken:
  call void @set(ptr %best, i64 7, i64 1)
  call void @count(i64 %bytes)
  ret ptr %best
no_room:
  ret ptr null
}

; %bytes more are in use. What is touched for the first time takes the place of idle memory, as long as there is some.
define internal void @count(i64 %bytes) {
  %takes = load i64, ptr @takes
  %next = add i64 %takes, 1
  store i64 %next, ptr @takes
  %phase = and i64 %next, 4095
  %is_new_time = icmp eq i64 %phase, 0
  br i1 %is_new_time, label %new_time, label %same_time
new_time:
  %before = load i64, ptr @recent_bytes
  store i64 %before, ptr @most_bytes
  store i64 0, ptr @recent_bytes
  br label %same_time
same_time:
  call void @add(ptr @live_bytes, i64 %bytes)
  %live = load i64, ptr @live_bytes
  %recent = load i64, ptr @recent_bytes
  %recent_then = call i64 @llvm.umax.i64(i64 %recent, i64 %live)
  store i64 %recent_then, ptr @recent_bytes
  %most = load i64, ptr @most_bytes
  %most_then = call i64 @llvm.umax.i64(i64 %most, i64 %live)
  store i64 %most_then, ptr @most_bytes
  %kept = load i64, ptr @kept_bytes
  %total = add i64 %live, %kept
  %excess = call i64 @llvm.usub.sat.i64(i64 %total, i64 %most_then)
  call void @trim(i64 %excess)
  ret void
}

; Tells the system that it may take the huge pages of idle %block around these %bytes at %memory, if it needs memory.
define internal void @offer(ptr %block, i64 %memory, i64 %bytes) {
  %block_start = call i64 @get(ptr %block, i64 4)
  %block_bytes = call i64 @get(ptr %block, i64 5)
  %block_end = add i64 %block_start, %block_bytes
  %page_below = and i64 %memory, -2097152
  %start_up = add i64 %block_start, 2097151
  %block_first = and i64 %start_up, -2097152
  %start = call i64 @llvm.umax.i64(i64 %page_below, i64 %block_first)
  %end = add i64 %memory, %bytes
  %end_up = add i64 %end, 2097151
  %page_above = and i64 %end_up, -2097152
  %block_last = and i64 %block_end, -2097152
  %stop = call i64 @llvm.umin.i64(i64 %page_above, i64 %block_last)
  %some = icmp ult i64 %start, %stop
  br i1 %some, label %advise, label %done
advise:
  %length = sub i64 %stop, %start
  %page = inttoptr i64 %start to ptr
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 8) ; MADV_FREE
  br label %done
done:
  ret void
}
"""
