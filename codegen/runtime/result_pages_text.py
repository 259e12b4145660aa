"""LLVM IR text that tracks which huge pages of the result pool may be resident, and releases them. Compiled with result_blocks_text.py;
the mutex is held during each call.
"""

TEXT = r"""
declare i32 @mprotect(ptr, i64, i32)
declare i64 @time(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

@touched = global ptr null          ; a byte for each huge page of the region: whether it may be in the resident set
@writable_end = global i64 0        ; up to here the region may be touched
@idle_bytes = global i64 0          ; of huge pages that were touched and are idle as a whole
@offered_at = global i64 0          ; when idle memory was last offered to the system, in seconds

; The byte for the huge page that %address is in.
define internal ptr @page_byte(i64 %address) {
  %from = load i64, ptr @region_start
  %offset = sub i64 %address, %from
  %page = lshr i64 %offset, 21
  %table = load ptr, ptr @touched
  %at = getelementptr i8, ptr %table, i64 %page
  ret ptr %at
}

; Notes that all of %block may be touched.
define internal void @mark(ptr %block) {
  %memory = call i64 @get(ptr %block, i64 4)
  %bytes = call i64 @get(ptr %block, i64 5)
  %end = add i64 %memory, %bytes
  %last = sub i64 %end, 1
  %first_at = call ptr @page_byte(i64 %memory)
  %last_at = call ptr @page_byte(i64 %last)
  %first_number = ptrtoint ptr %first_at to i64
  %last_number = ptrtoint ptr %last_at to i64
  %apart = sub i64 %last_number, %first_number
  %pages = add i64 %apart, 1
  call void @llvm.memset.p0.i64(ptr %first_at, i8 1, i64 %pages, i1 false)
  ret void
}

; Where the first huge page begins that is %block's as a whole, and where the last one ends of those that may be touched.
define internal i64 @first_page(ptr %block) {
  %memory = call i64 @get(ptr %block, i64 4)
  %up = add i64 %memory, 2097151
  %first = and i64 %up, -2097152
  ret i64 %first
}

define internal i64 @pages_end(ptr %block) {
  %memory = call i64 @get(ptr %block, i64 4)
  %bytes = call i64 @get(ptr %block, i64 5)
  %stop = add i64 %memory, %bytes
  %writable = load i64, ptr @writable_end
  %last = call i64 @llvm.umin.i64(i64 %stop, i64 %writable)
  %end = and i64 %last, -2097152
  ret i64 %end
}

; Bytes of %block's own huge pages that were touched.
define internal i64 @resident(ptr %block) {
entry:
  %first = call i64 @first_page(ptr %block)
  %end = call i64 @pages_end(ptr %block)
  br label %head
head:
  %page = phi i64 [ %first, %entry ], [ %next, %body ]
  %sum = phi i64 [ 0, %entry ], [ %more, %body ]
  %inside = icmp ult i64 %page, %end
  br i1 %inside, label %body, label %done
body:
  %byte_at = call ptr @page_byte(i64 %page)
  %byte = load i8, ptr %byte_at
  %count = zext i8 %byte to i64
  %bytes = shl i64 %count, 21
  %more = add i64 %sum, %bytes
  %next = add i64 %page, 2097152
  br label %head
done:
  ret i64 %sum
}

; Gives touched huge pages of idle %block back to the system, %excess bytes of it or what there is: those at its end, since
; the next result is put at its beginning. Returns how many bytes.
define internal i64 @drop_pages(ptr %block, i64 %excess) {
entry:
  %first = call i64 @first_page(ptr %block)
  %end = call i64 @pages_end(ptr %block)
  br label %head
head:
  %start = phi i64 [ %end, %entry ], [ %page, %body ]
  %dropped = phi i64 [ 0, %entry ], [ %more, %body ]
  %inside = icmp ugt i64 %start, %first
  %left = icmp ult i64 %dropped, %excess
  %go_on = and i1 %inside, %left
  br i1 %go_on, label %body, label %done
body:
  %page = sub i64 %start, 2097152
  %byte_at = call ptr @page_byte(i64 %page)
  %byte = load i8, ptr %byte_at
  store i8 0, ptr %byte_at
  %count = zext i8 %byte to i64
  %bytes = shl i64 %count, 21
  %more = add i64 %dropped, %bytes
  br label %head
done:
  %none = icmp eq i64 %dropped, 0
  br i1 %none, label %leave, label %advise
advise:
  %memory = inttoptr i64 %start to ptr
  %length = sub i64 %end, %start
  %ignored = call i32 @madvise(ptr %memory, i64 %length, i32 4) ; MADV_DONTNEED
  %resident_at = getelementptr %block, ptr %block, i32 0, i32 6
  %minus = sub i64 0, %dropped
  call void @add(ptr %resident_at, i64 %minus)
  call void @add(ptr @idle_bytes, i64 %minus)
  br label %leave
leave:
  ret i64 %dropped
}

; Gives %excess bytes of idle memory back to the system, in whole huge pages, or what there is.
define internal void @trim(i64 %excess) {
entry:
  %first = load ptr, ptr @idle_blocks
  br label %head
head:
  %block = phi ptr [ %first, %entry ], [ %next, %body ]
  %left = phi i64 [ %excess, %entry ], [ %left_then, %body ]
  %none = icmp eq ptr %block, null
  %enough = icmp eq i64 %left, 0
  %end = or i1 %none, %enough
  br i1 %end, label %done, label %body
body:
  %next = call ptr @get_block(ptr %block, i64 2)
  %dropped = call i64 @drop_pages(ptr %block, i64 %left)
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

; Tells the system that it may take the touched huge pages of idle blocks if it needs memory: OFFER_SECONDS or more after
; the last time, as each page of them interrupts the other processors.
define internal void @offer_in_time() {
entry:
  %now = call i64 @time(ptr null)
  %before = load i64, ptr @offered_at
  %since = sub i64 %now, %before
  %due = icmp uge i64 %since, OFFER_SECONDS ; also where the clock was set back
  br i1 %due, label %begin, label %done
begin:
  store i64 %now, ptr @offered_at
  %first = load ptr, ptr @idle_blocks
  br label %head
head:
  %block = phi ptr [ %first, %begin ], [ %next, %body ]
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %body
body:
  %next = call ptr @get_block(ptr %block, i64 2)
  call void @offer(ptr %block)
  br label %head
done:
  ret void
}

; Does so for %block.
define internal void @offer(ptr %block) {
  %start = call i64 @first_page(ptr %block)
  %end = call i64 @pages_end(ptr %block)
  %some = icmp ult i64 %start, %end
  br i1 %some, label %advise, label %done
advise:
  %length = sub i64 %end, %start
  %page = inttoptr i64 %start to ptr
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 8) ; MADV_FREE
  br label %done
done:
  ret void
}
"""
