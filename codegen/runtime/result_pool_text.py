"""LLVM IR text of the pool of result memory; result_pool.py explains it. Compiled with native_runtime_text.py.

A block's fields are read by number (%block in result_blocks_text.py): 0 the block below it in memory, 1 the block above, 4 the address of its
memory, 5 its bytes, 7 whether it is in use.
"""

TEXT = r"""
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)

@mutex = internal global [64 x i8] zeroinitializer, align 16   ; pthread_mutex_t
@limit = global i64 0               ; for @idle_bytes

; Offsets in PyTorch's objects, set by the loader: of the storage in a TensorImpl, and of members of a StorageImpl.
@storage_at = global i64 0
@data_at = global i64 0
@deleter_at = global i64 0
@context_at = global i64 0
@size_at = global i64 0
@zero = internal constant i64 0
@one = internal constant i64 1

; The deleter of a result's storage, which PyTorch calls: the block is idle, and one with its idle neighbours in memory.
define internal void @give_back(ptr %given) {
entry:
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %bytes = call i64 @get(ptr %given, i64 5)
  %minus = sub i64 0, %bytes
  call void @add(ptr @live_bytes, i64 %minus)
  call void @set(ptr %given, i64 7, i64 0)
  %above = call ptr @get_block(ptr %given, i64 1)
  %idle_above = call i1 @is_idle(ptr %above)
  br i1 %idle_above, label %join_above, label %look_below
join_above:
  call void @unlink(ptr %above)
  call void @absorb(ptr %given, ptr %above)
  br label %look_below
look_below:
  %below = call ptr @get_block(ptr %given, i64 0)
  %idle_below = call i1 @is_idle(ptr %below)
  br i1 %idle_below, label %join_below, label %joined
join_below:
  call void @unlink(ptr %below)
  call void @absorb(ptr %below, ptr %given)
  br label %joined
joined:
  %block = phi ptr [ %given, %look_below ], [ %below, %join_below ]
  call void @link(ptr %block)
  call void @offer_in_time()
  br label %counted
counted:
  %idle = load i64, ptr @idle_bytes
  %limit = load i64, ptr @limit
  %excess = call i64 @llvm.usub.sat.i64(i64 %idle, i64 %limit)
  call void @trim(i64 %excess)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; At most %bytes of idle memory stay resident from now on.
define void @set_limit(i64 %bytes) {
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  store i64 %bytes, ptr @limit
  %idle = load i64, ptr @idle_bytes
  %excess = call i64 @llvm.usub.sat.i64(i64 %idle, i64 %bytes)
  call void @trim(i64 %excess)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; A child shall neither find the mutex taken nor share idle memory, which this process would copy when it writes.
define void @before_fork() {
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  call void @trim(i64 -4194304)   ; as unsigned, more bytes than there are: all idle memory
  ret void
}

define void @after_fork() {
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; A new tensor on the CPU at %place whose storage has %bytes: from SMALLEST on in memory of the pool, if that has room.
; 0 or a failure of the C shim.
define i32 @new_result(i64 %rank, ptr %sizes, ptr %strides, i32 %dtype, i32 %device, i32 %index, i64 %bytes, ptr %place) {
entry:
  %empty_at = alloca ptr
  %large = icmp sge i64 %bytes, SMALLEST
  %limit = load i64, ptr @limit
  %open = icmp ne i64 %limit, 0
  %pooled = and i1 %large, %open
  br i1 %pooled, label %take, label %plain
take:
  %up = add i64 %bytes, 4095
  %rounded = and i64 %up, -4096
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %block = call ptr @take_block(i64 %rounded)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  %no_room = icmp eq ptr %block, null
  br i1 %no_room, label %plain, label %make
make:
  %no_tensor = call i32 @aoti_torch_empty_strided(i64 1, ptr @zero, ptr @one, i32 %dtype, i32 %device, i32 %index, ptr %empty_at)
  %not_made = icmp ne i32 %no_tensor, 0
  br i1 %not_made, label %undo, label %fill
undo:
  call void @give_back(ptr %block)
  ret i32 %no_tensor
fill:
  %empty = load ptr, ptr %empty_at
  %impl = load ptr, ptr %empty
  %storage_offset = load i64, ptr @storage_at
  %storage_at = getelementptr i8, ptr %impl, i64 %storage_offset
  %storage = load ptr, ptr %storage_at
  %memory = call i64 @get(ptr %block, i64 4)
  call void @put(ptr %storage, ptr @data_at, i64 %memory)
  %deleter = ptrtoint ptr @give_back to i64
  call void @put(ptr %storage, ptr @deleter_at, i64 %deleter)
  %context = ptrtoint ptr %block to i64
  call void @put(ptr %storage, ptr @context_at, i64 %context)
  call void @put(ptr %storage, ptr @size_at, i64 %bytes)
  %code = call i32 @aoti_torch__reinterpret_tensor(ptr %empty, i64 %rank, ptr %sizes, ptr %strides, i64 0, ptr %place)
  %deleted = call i32 @aoti_torch_delete_tensor_object(ptr %empty)
  ret i32 %code
plain:
  %failed = call i32 @aoti_torch_empty_strided(i64 %rank, ptr %sizes, ptr %strides, i32 %dtype, i32 %device, i32 %index, ptr %place)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %done, label %made
made:
  %handle = load ptr, ptr %place
  %no_data = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %empty_at)
  %data = load ptr, ptr %empty_at
  call void @use_huge_pages(ptr %data, i64 %bytes)
  br label %done
done:
  ret i32 %failed
}

; Sets the member of a storage at the offset that %offset_at holds.
define internal void @put(ptr %storage, ptr %offset_at, i64 %value) {
  %offset = load i64, ptr %offset_at
  %at = getelementptr i8, ptr %storage, i64 %offset
  store i64 %value, ptr %at
  ret void
}
"""
