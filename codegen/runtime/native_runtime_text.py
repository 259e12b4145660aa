"""LLVM IR text of the functions that all host programs share; native_runtime.py explains and loads them."""

TEXT = r"""
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_new_tensor_handle(ptr, ptr)
declare i32 @aoti_torch_delete_tensor_object(ptr)
declare i32 @aoti_torch_get_dim(ptr, ptr)
declare i32 @aoti_torch_get_dtype(ptr, ptr)
declare i32 @aoti_torch_get_sizes(ptr, ptr)
declare i32 @aoti_torch_get_strides(ptr, ptr)
declare i32 @aoti_torch_empty_strided(i64, ptr, ptr, i32, i32, i32, ptr)
declare i32 @aoti_torch__reinterpret_tensor(ptr, i64, ptr, ptr, i64, ptr)
declare i32 @aoti_torch_copy_(ptr, ptr, i32)
declare ptr @calloc(i64, i64)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)

%arena = type { ptr, ptr, i64 }                ; the next idle one, memory, bytes of it
@idle_arenas = global ptr null

; Asks the kernel for huge pages in what is not yet touched of new memory, from LARGE bytes on. Where it has none, nothing is lost.
define void @use_huge_pages(ptr %memory, i64 %bytes) {
entry:
  %large = icmp sge i64 %bytes, LARGE
  br i1 %large, label %advise, label %done
advise:
  %start = ptrtoint ptr %memory to i64
  %end = add i64 %start, %bytes
  %padded = add i64 %start, 4095
  %first = and i64 %padded, -4096
  %last = and i64 %end, -4096
  %length = sub i64 %last, %first
  %page = inttoptr i64 %first to ptr
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 14) ; MADV_HUGEPAGE
  br label %done
done:
  ret void
}

; An arena of at least %bytes, which nobody else uses until `finish`; null with MemoryError pending.
define ptr @take_arena(i64 %bytes) {
entry:
  %first = load ptr, ptr @idle_arenas
  %none = icmp eq ptr %first, null
  br i1 %none, label %fresh, label %known
fresh:
  %new = call ptr @calloc(i64 1, i64 24)
  %no_record = icmp eq ptr %new, null
  br i1 %no_record, label %no_memory, label %check
known:
  %rest = load ptr, ptr %first
  store ptr %rest, ptr @idle_arenas
  br label %check
check:
  %record = phi ptr [ %new, %fresh ], [ %first, %known ]
  %memory_at = getelementptr %arena, ptr %record, i32 0, i32 1
  %bytes_at = getelementptr %arena, ptr %record, i32 0, i32 2
  %have = load i64, ptr %bytes_at
  %enough = icmp uge i64 %have, %bytes
  br i1 %enough, label %done, label %grow
grow:
  %old = load ptr, ptr %memory_at
  call void @free(ptr %old)
  %padded = add i64 %bytes, 4095
  %rounded = and i64 %padded, -4096
  %memory = call ptr @aligned_alloc(i64 64, i64 %rounded)
  store ptr %memory, ptr %memory_at
  %failed = icmp eq ptr %memory, null
  br i1 %failed, label %give_up, label %grown
grown:
  store i64 %rounded, ptr %bytes_at
  call void @use_huge_pages(ptr %memory, i64 %rounded)
  br label %done
done:
  ret ptr %record
give_up:
  call void @free(ptr %record)
  br label %no_memory
no_memory:
  %ignored = call ptr @PyErr_NoMemory()
  ret ptr null
}

; Frees every idle arena. The list is emptied first, in one step for whoever else holds the GIL later.
define void @free_idle_arenas() {
entry:
  %first = load ptr, ptr @idle_arenas
  store ptr null, ptr @idle_arenas
  br label %head
head:
  %record = phi ptr [ %first, %entry ], [ %next, %body ]
  %none = icmp eq ptr %record, null
  br i1 %none, label %done, label %body
body:
  %next = load ptr, ptr %record
  %memory_at = getelementptr %arena, ptr %record, i32 0, i32 1
  %memory = load ptr, ptr %memory_at
  call void @free(ptr %memory)
  call void @free(ptr %record)
  br label %head
done:
  ret void
}

; Bytes of memory of all idle arenas.
define i64 @idle_arena_bytes() {
entry:
  %first = load ptr, ptr @idle_arenas
  br label %head
head:
  %record = phi ptr [ %first, %entry ], [ %next, %body ]
  %sum = phi i64 [ 0, %entry ], [ %more, %body ]
  %none = icmp eq ptr %record, null
  br i1 %none, label %done, label %body
body:
  %next = load ptr, ptr %record
  %bytes_at = getelementptr %arena, ptr %record, i32 0, i32 2
  %bytes = load i64, ptr %bytes_at
  %more = add i64 %sum, %bytes
  br label %head
done:
  ret i64 %sum
}

; Gives the tensor at %place the strides that its type promises, in place of the handle that is there.
; With %fresh it is another tensor in any case, of the same storage: it is a view of nothing, which a kernel's own last view may be.
; 0, a failure of the C shim, or -2 where its sizes or dtype are not those promised.
define i32 @restride(ptr %place, i64 %rank, ptr %sizes, ptr %strides, i32 %dtype, i32 %device, i32 %index, i1 %fresh) {
entry:
  %at = alloca ptr
  %handle = load ptr, ptr %place
  %c0 = call i32 @aoti_torch_get_dim(ptr %handle, ptr %at)
  %have_rank = load i64, ptr %at
  %c1 = call i32 @aoti_torch_get_dtype(ptr %handle, ptr %at)
  %have_dtype = load i32, ptr %at
  %c2 = call i32 @aoti_torch_get_sizes(ptr %handle, ptr %at)
  %have_sizes = load ptr, ptr %at
  %c3 = call i32 @aoti_torch_get_strides(ptr %handle, ptr %at)
  %have_strides = load ptr, ptr %at
  %same_rank = icmp eq i64 %have_rank, %rank
  %same_dtype = icmp eq i32 %have_dtype, %dtype
  %alike = and i1 %same_rank, %same_dtype
  br i1 %alike, label %head, label %contradiction
head:
  %d = phi i64 [ 0, %entry ], [ %d_next, %next ]
  %exact = phi i1 [ true, %entry ], [ %exact_next, %next ]
  %fits = phi i1 [ true, %entry ], [ %fits_next, %next ]
  %empty = phi i1 [ false, %entry ], [ %empty_next, %next ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %body, label %compared
body:
  %d_next = add i64 %d, 1
  %size_at = getelementptr i64, ptr %sizes, i64 %d
  %size = load i64, ptr %size_at
  %have_size_at = getelementptr i64, ptr %have_sizes, i64 %d
  %have_size = load i64, ptr %have_size_at
  %same_size = icmp eq i64 %size, %have_size
  br i1 %same_size, label %next, label %contradiction
next:
  %stride_at = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride_at
  %have_stride_at = getelementptr i64, ptr %have_strides, i64 %d
  %have_stride = load i64, ptr %have_stride_at
  %same_stride = icmp eq i64 %stride, %have_stride
  %is_one = icmp eq i64 %size, 1
  %is_zero = icmp eq i64 %size, 0
  %either = or i1 %same_stride, %is_one
  %exact_next = and i1 %exact, %same_stride
  %fits_next = and i1 %fits, %either
  %empty_next = or i1 %empty, %is_zero
  br label %head
compared:
  br i1 %exact, label %as_promised, label %inexact
as_promised:
  br i1 %fresh, label %view, label %done
inexact:
  %no_matter = or i1 %fits, %empty
  br i1 %no_matter, label %view, label %copy
view:
  %c4 = call i32 @aoti_torch__reinterpret_tensor(ptr %handle, i64 %rank, ptr %sizes, ptr %strides, i64 0, ptr %at)
  %no_view = icmp ne i32 %c4, 0
  br i1 %no_view, label %failed, label %replace
copy:
  %c5 = call i32 @aoti_torch_empty_strided(i64 %rank, ptr %sizes, ptr %strides, i32 %dtype, i32 %device, i32 %index, ptr %at)
  %no_memory = icmp ne i32 %c5, 0
  br i1 %no_memory, label %failed, label %fill
fill:
  %to = load ptr, ptr %at
  %c6 = call i32 @aoti_torch_copy_(ptr %to, ptr %handle, i32 0)
  %no_copy = icmp ne i32 %c6, 0
  br i1 %no_copy, label %undo, label %replace
undo:
  %c7 = call i32 @aoti_torch_delete_tensor_object(ptr %to)
  br label %failed
replace:
  %new = load ptr, ptr %at
  store ptr %new, ptr %place
  %c8 = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  br label %done
done:
  ret i32 0
failed:
  ret i32 1
contradiction:
  ret i32 -2
}

; Frees the handle at %at, if there is one.
define void @drop(ptr %at) {
  %handle = load ptr, ptr %at
  %empty = icmp eq ptr %handle, null
  br i1 %empty, label %done, label %free
free:
  store ptr null, ptr %at
  %code = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  br label %done
done:
  ret void
}

; The end of a call: frees the %n handles of %frame that are not null, gives back the arena (or null).
define void @finish(ptr %frame, i64 %n, ptr %record) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %arena
body:
  %next = add i64 %i, 1
  %at = getelementptr ptr, ptr %frame, i64 %i
  call void @drop(ptr %at)
  br label %head
arena:
  %no_arena = icmp eq ptr %record, null
  br i1 %no_arena, label %done, label %give
give:
  %rest = load ptr, ptr @idle_arenas
  store ptr %rest, ptr %record
  store ptr %record, ptr @idle_arenas
  br label %done
done:
  ret void
}
"""
