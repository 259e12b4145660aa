"""LLVM IR text that converts between Python objects and native values. Compiled with native_runtime_text.py."""

TEXT = r"""
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare i32 @PyList_SetSlice(ptr, i64, i64, ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_CallObject(ptr, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsVoidPtr(ptr)
declare ptr @PyFloat_FromDouble(double)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

@wrap_tensor = global ptr null                 ; THPVariable_Wrap(at::TensorBase const&), set by the loader

; The slot of tensor %item, 0 and a Python exception if it is none.
define internal i64 @tensor_slot(ptr %item, ptr %name) {
  %number = call ptr @PyObject_GetAttr(ptr %item, ptr %name)
  %missing = icmp eq ptr %number, null
  br i1 %missing, label %none, label %some
some:
  %slot = call i64 @PyLong_AsVoidPtr(ptr %number)
  call void @Py_DecRef(ptr %number)
  ret i64 %slot
none:
  ret i64 0
}

; The slot of a Python number, of which the letter says whether it is to be an int or a float. Where it is neither an exception is
; pending, and the slot is that of -1.
define internal i64 @number_slot(i8 %kind, ptr %item) {
  %is_int = icmp eq i8 %kind, 105
  br i1 %is_int, label %int, label %float
int:
  %int_slot = call i64 @PyLong_AsLongLong(ptr %item)
  ret i64 %int_slot
float:
  %double = call double @PyFloat_AsDouble(ptr %item)
  %float_slot = bitcast double %double to i64
  ret i64 %float_slot
}

; Slots and addresses of all inputs; an address is that of a tensor's first element, or of a number's slot.
; 0, or 1 with a Python exception pending or a text in the C shim; -1 if the list has another length than %n.
define i32 @read_inputs(ptr %list, ptr %name, ptr %kinds, i64 %n, ptr %slots, ptr %addresses) {
entry:
  %size = call i64 @PyList_Size(ptr %list)
  %right = icmp eq i64 %size, %n
  br i1 %right, label %head, label %wrong
head:
  %i = phi i64 [ 0, %entry ], [ %next, %made ], [ %next, %place ], [ %next, %number ], [ %next, %ask ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %next = add i64 %i, 1
  %item = call ptr @PyList_GetItem(ptr %list, i64 %i)
  %kind_at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind_at
  %slot_at = getelementptr i64, ptr %slots, i64 %i
  %address_at = getelementptr ptr, ptr %addresses, i64 %i
  switch i8 %kind, label %tensor [ i8 105, label %number
                                   i8 102, label %number ]
tensor:
  %slot = call i64 @tensor_slot(ptr %item, ptr %name)
  store i64 %slot, ptr %slot_at
  %bad = icmp eq i64 %slot, 0
  br i1 %bad, label %failed, label %made
made:
  %opaque = icmp eq i8 %kind, 111
  br i1 %opaque, label %head, label %place
place:
  %code = call i32 @aoti_torch_get_data_ptr(ptr %slot_at, ptr %address_at)
  %no_data = icmp ne i32 %code, 0
  br i1 %no_data, label %failed, label %head
number:
  %value = call i64 @number_slot(i8 %kind, ptr %item)
  %is_minus = icmp eq i64 %value, -1
  %is_float_minus = icmp eq i64 %value, bitcast (double -1.0 to i64)
  %suspect = or i1 %is_minus, %is_float_minus
  store i64 %value, ptr %slot_at
  store ptr %slot_at, ptr %address_at
  br i1 %suspect, label %ask, label %head
ask:
  %error = call ptr @PyErr_Occurred()
  %pending = icmp ne ptr %error, null
  br i1 %pending, label %failed, label %head
done:
  ret i32 0
failed:
  ret i32 1
wrong:
  ret i32 -1
}

; Empties the list of inputs; their tensors live on by the handles that this puts into the first %n places of %frame.
define void @keep_inputs(ptr %list, ptr %kinds, i64 %n, ptr %slots, ptr %frame) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ], [ %next, %tensor ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %next = add i64 %i, 1
  %kind_at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind_at
  %is_plain = icmp eq i8 %kind, 116
  %is_opaque = icmp eq i8 %kind, 111
  %is_tensor = or i1 %is_plain, %is_opaque
  br i1 %is_tensor, label %tensor, label %head
tensor:
  %slot_at = getelementptr i64, ptr %slots, i64 %i
  %place = getelementptr ptr, ptr %frame, i64 %i
  %code = call i32 @aoti_torch_new_tensor_handle(ptr %slot_at, ptr %place)
  br label %head
done:
  %emptied = call i32 @PyList_SetSlice(ptr %list, i64 0, i64 %n, ptr null)
  ret void
}

; The Python object of one value, as a new reference; null with an exception pending.
define internal ptr @to_python(i8 %kind, i64 %slot, ptr %inputs) {
  switch i8 %kind, label %tensor [ i8 97, label %input
                                   i8 105, label %int
                                   i8 102, label %float ]
tensor:
  %handle = inttoptr i64 %slot to ptr
  %wrap = load ptr, ptr @wrap_tensor
  %wrapped = call ptr %wrap(ptr %handle)
  ret ptr %wrapped
input:
  %borrowed = call ptr @PyList_GetItem(ptr %inputs, i64 %slot)
  call void @Py_IncRef(ptr %borrowed)
  ret ptr %borrowed
int:
  %number = call ptr @PyLong_FromLongLong(i64 %slot)
  ret ptr %number
float:
  %double = bitcast i64 %slot to double
  %real = call ptr @PyFloat_FromDouble(double %double)
  ret ptr %real
}

; callable(*operands) -> a tuple of exactly the results of %result_kinds: tensors go to %handles in turn (owned),
; numbers to %numbers. 0, or 1 with a Python exception pending or a text in the C shim. %ts: from PyEval_SaveThread.
define i32 @call_python(ptr %ts, ptr %callable, ptr %name, ptr %inputs, ptr %kinds, i64 %n, ptr %slots,
                        ptr %result_kinds, i64 %results, ptr %handles, ptr %numbers) {
entry:
  %impl_at = alloca i64
  call void @PyEval_RestoreThread(ptr %ts)
  call void @PyErr_Clear()                            ; of a native call that failed, which is made again here
  %args = call ptr @PyTuple_New(i64 %n)
  %no_args = icmp eq ptr %args, null
  br i1 %no_args, label %failed, label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i_next, %put ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %operand, label %call
operand:
  %i_next = add i64 %i, 1
  %kind_at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind_at
  %slot_at = getelementptr i64, ptr %slots, i64 %i
  %slot = load i64, ptr %slot_at
  %object = call ptr @to_python(i8 %kind, i64 %slot, ptr %inputs)
  %no_object = icmp eq ptr %object, null
  br i1 %no_object, label %drop_args, label %put
put:
  %set = call i32 @PyTuple_SetItem(ptr %args, i64 %i, ptr %object)
  br label %fill
drop_args:
  call void @Py_DecRef(ptr %args)
  br label %failed
call:
  %result = call ptr @PyObject_CallObject(ptr %callable, ptr %args)
  call void @Py_DecRef(ptr %args)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %failed, label %unpack
unpack:
  %j = phi i64 [ 0, %call ], [ %j_next, %got ]
  %handle_at = phi ptr [ %handles, %call ], [ %handle_next, %got ]
  %number_at = phi ptr [ %numbers, %call ], [ %number_next, %got ]
  %left = icmp slt i64 %j, %results
  br i1 %left, label %item, label %complete
item:
  %j_next = add i64 %j, 1
  %value = call ptr @PyTuple_GetItem(ptr %result, i64 %j)
  %no_value = icmp eq ptr %value, null
  br i1 %no_value, label %drop_result, label %which
which:
  %result_kind_at = getelementptr i8, ptr %result_kinds, i64 %j
  %result_kind = load i8, ptr %result_kind_at
  switch i8 %result_kind, label %tensor [ i8 105, label %number
                                          i8 102, label %number ]
tensor:
  %impl = call i64 @tensor_slot(ptr %value, ptr %name)
  store i64 %impl, ptr %impl_at
  %no_impl = icmp eq i64 %impl, 0
  br i1 %no_impl, label %drop_result, label %own
own:
  %code = call i32 @aoti_torch_new_tensor_handle(ptr %impl_at, ptr %handle_at)
  %after_handle = getelementptr ptr, ptr %handle_at, i64 1
  %not_owned = icmp ne i32 %code, 0
  br i1 %not_owned, label %drop_result, label %got
number:
  %number_slot = call i64 @number_slot(i8 %result_kind, ptr %value)
  store i64 %number_slot, ptr %number_at
  %after_number = getelementptr i64, ptr %number_at, i64 1
  br label %got
got:
  %handle_next = phi ptr [ %after_handle, %own ], [ %handle_at, %number ]
  %number_next = phi ptr [ %number_at, %own ], [ %after_number, %number ]
  br label %unpack
complete:
  call void @Py_DecRef(ptr %result)
  %error = call ptr @PyErr_Occurred()                 ; a number that was none
  %pending = icmp ne ptr %error, null
  %doubt = zext i1 %pending to i32
  br label %leave
drop_result:
  call void @Py_DecRef(ptr %result)
  br label %failed
failed:
  br label %leave
leave:
  %status = phi i32 [ %doubt, %complete ], [ 1, %failed ]
  %state = call ptr @PyEval_SaveThread()
  ret i32 %status
}

; The graph's results as a list; null with an exception pending. Handles stay with the caller.
define ptr @make_results(ptr %inputs, ptr %kinds, i64 %n, ptr %slots) {
entry:
  %list = call ptr @PyList_New(i64 %n)
  %no_list = icmp eq ptr %list, null
  br i1 %no_list, label %none, label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %put ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %next = add i64 %i, 1
  %kind_at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind_at
  %slot_at = getelementptr i64, ptr %slots, i64 %i
  %slot = load i64, ptr %slot_at
  %object = call ptr @to_python(i8 %kind, i64 %slot, ptr %inputs)
  %no_object = icmp eq ptr %object, null
  br i1 %no_object, label %failed, label %put
put:
  %set = call i32 @PyList_SetItem(ptr %list, i64 %i, ptr %object)
  br label %head
done:
  ret ptr %list
failed:
  call void @Py_DecRef(ptr %list)
  br label %none
none:
  ret ptr null
}

; Leaves a Python exception pending: the one that is, or the one that raise_failure(site, index, size) raises.
define void @fail(ptr %self, i64 %site, i64 %index, i64 %size) {
  %error = call ptr @PyErr_Occurred()
  %pending = icmp ne ptr %error, null
  br i1 %pending, label %done, label %ask
ask:
  %callable = call ptr @PyTuple_GetItem(ptr %self, i64 RAISE_FAILURE)
  %args = call ptr @PyTuple_New(i64 3)
  %site_number = call ptr @PyLong_FromLongLong(i64 %site)
  %index_number = call ptr @PyLong_FromLongLong(i64 %index)
  %size_number = call ptr @PyLong_FromLongLong(i64 %size)
  %a = call i32 @PyTuple_SetItem(ptr %args, i64 0, ptr %site_number)
  %b = call i32 @PyTuple_SetItem(ptr %args, i64 1, ptr %index_number)
  %c = call i32 @PyTuple_SetItem(ptr %args, i64 2, ptr %size_number)
  %result = call ptr @PyObject_CallObject(ptr %callable, ptr %args)
  call void @Py_DecRef(ptr %args)
  br label %done
done:
  ret void
}
"""
