"""The functions of a model's header, in C: checks of a call, by tables that c_header.py writes. NAME is the model's name."""

FUNCTIONS = r"""/* A model, compiled. Needs NAME.o beside it, and a C compiler for GNU C99: cc program.c NAME.o -lm

   @USE@

       NAME_error error;
       NAME_model model;
       if (NAME_open(&model, &error)) ...                     the weights are those in NAME.o
       NAME_tensor inputs[NAME_INPUTS], outputs[NAME_OUTPUTS]; inputs[0] = NAME_dense(data, NAME_float32, rank, sizes);
       if (NAME_shapes(inputs, outputs, &arena_bytes, &error)) ...   fills in all of outputs but where their memory is
       outputs[0].data = NAME_allocate(outputs[0].bytes);     and NULL, or NAME_allocate(arena_bytes), as the arena
       if (NAME_run(&model, inputs, outputs, arena, &error)) puts(error.message);

   Any number of threads may run one model at a time, each with an arena and results of its own; NAME_set_weight is for when none does.
   A model that writes to its weights, as one with an optimizer does, is run by one thread at a time; another model has weights of its own
   once NAME_set_weight has put memory of its own in the place of each.
   Kernels run on model.threads threads where the program is linked with libgomp (-Wl,--no-as-needed -lgomp), else on one. */
#ifndef @GUARD@
#define @GUARD@
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NAME_OK, NAME_BAD_ARGUMENT, NAME_NO_MEMORY, NAME_FAILED, NAME_OTHER_PROCESSOR };

typedef struct { int code; char message[320]; } NAME_error;

/* strides count elements; `bytes` is the size of the memory at `data`, asked of results alone */
typedef struct { void *data; size_t bytes; int dtype, rank; int64_t sizes[8], strides[8]; } NAME_tensor;

typedef struct { const char *name; int dtype, itemsize, rank; int64_t sizes[8], strides[8]; } NAME__type;
typedef struct { int kind, index; } NAME__place;
typedef struct { const char *symbol; int64_t low, high; } NAME__range;
typedef struct {
    const char *name;
    int64_t (*graph)(void **, void **, const int64_t *, void *, int64_t, int64_t *);
    int32_t (*ready)(void);
    const char *const *sites;
} NAME__kind;

@TABLES@

typedef struct { void *weights[NAME_WEIGHTS + 1]; int64_t threads; int kind; } NAME_model;

#define NAME__fail(error, status, ...) \
    ((error) ? ((error)->code = (status), snprintf((error)->message, sizeof (error)->message, __VA_ARGS__), (status)) : (status))

static inline void *NAME_allocate(size_t bytes) { return aligned_alloc(64, (bytes / 64 + 1) * 64); }

/* a tensor that has no gaps: its last dimension is contiguous */
static inline NAME_tensor NAME_dense(void *data, int dtype, int rank, const int64_t *sizes) {
    NAME_tensor x = {data, 0, dtype, rank, {0}, {0}};
    int64_t step = 1;
    for (int k = rank - 1; k >= 0 && k < 8; k--) {
        x.sizes[k] = sizes[k];
        x.strides[k] = step;
        step *= sizes[k] > 1 ? sizes[k] : 1;
    }
    return x;
}

/* from the first element to behind the last one */
static inline size_t NAME__extent(const int64_t *sizes, const int64_t *strides, int rank, int itemsize) {
    int64_t extent = 1;
    for (int k = 0; k < rank; k++) {
        if (sizes[k] <= 0) return 0;
        extent += (sizes[k] - 1) * strides[k];
    }
    return (size_t)extent * (size_t)itemsize;
}

static inline int NAME_open(NAME_model *model, NAME_error *error) {
    memset(model, 0, sizeof *model);
    if (error) error->code = NAME_OK, error->message[0] = 0;
    model->threads = 1;
    for (int k = 0; k < NAME_WEIGHTS; k++) model->weights[k] = (void *)(uintptr_t)(NAME_data + NAME__offsets[k]);
    for (model->kind = NAME__KINDS - 1; model->kind >= 0; model->kind--)
        if (NAME__has(model->kind)) break;
    if (model->kind < 0)
        return NAME__fail(error, NAME_OTHER_PROCESSOR, "this processor lacks what even %s code needs", NAME__kinds[0].name);
    if (!NAME__kinds[model->kind].ready())
        return NAME__fail(error, NAME_NO_MEMORY, "this process has no more keys for memory of threads");
    return NAME_OK;
}

/* dtype, rank and memory are checked; sizes and strides are compared with `sizes` and `strides`, if these are given */
static inline int NAME__check(const NAME__type *type, const NAME_tensor *x, const int64_t *sizes, const int64_t *strides,
                              NAME_error *error) {
    if (x->dtype != type->dtype)
        return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has dtype %d; expected %d", type->name, x->dtype, type->dtype);
    if (x->rank != type->rank)
        return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has %d dimensions; expected %d", type->name, x->rank, type->rank);
    int empty = 0;
    for (int k = 0; k < type->rank; k++) {
        if (x->sizes[k] < 0 || x->sizes[k] >= INT64_C(1) << 47)
            return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has the size %lld in dimension %d", type->name,
                              (long long)x->sizes[k], k);
        if (sizes && x->sizes[k] != sizes[k])
            return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has the size %lld in dimension %d; expected %lld", type->name,
                              (long long)x->sizes[k], k, (long long)sizes[k]);
        empty |= x->sizes[k] == 0;
    }
    for (int k = 0; strides && !empty && k < type->rank; k++)
        if (x->sizes[k] != 1 && x->strides[k] != strides[k])
            return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has the stride %lld in dimension %d; expected %lld", type->name,
                              (long long)x->strides[k], k, (long long)strides[k]);
    if (sizes && !empty && (!x->data || (uintptr_t)x->data % (uintptr_t)type->itemsize))
        return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has no memory, or memory at no multiple of %d bytes", type->name,
                          type->itemsize);
    return NAME_OK;
}

/* Another tensor in a weight's place, which has to stay as long as the model runs. */
static inline int NAME_set_weight(NAME_model *model, const char *name, const NAME_tensor *x, NAME_error *error) {
    for (int k = 0; k < NAME_WEIGHTS; k++) {
        const NAME__type *type = &NAME__weights[k];
        if (strcmp(name, type->name)) continue;
        int status = NAME__check(type, x, type->sizes, type->strides, error);
        if (!status) model->weights[k] = x->data;
        return status;
    }
    return NAME__fail(error, NAME_BAD_ARGUMENT, "the model has no weight '%s'", name);
}

/* A weight as it is now, in its own memory: what training has made of it. */
static inline int NAME_get_weight(const NAME_model *model, const char *name, NAME_tensor *x, NAME_error *error) {
    for (int k = 0; k < NAME_WEIGHTS; k++) {
        const NAME__type *type = &NAME__weights[k];
        if (strcmp(name, type->name)) continue;
        NAME_tensor found = {model->weights[k], NAME__extent(type->sizes, type->strides, type->rank, type->itemsize),
                             type->dtype, type->rank, {0}, {0}};
        memcpy(found.sizes, type->sizes, sizeof found.sizes);
        memcpy(found.strides, type->strides, sizeof found.strides);
        *x = found;
        return NAME_OK;
    }
    return NAME__fail(error, NAME_BAD_ARGUMENT, "the model has no weight '%s'", name);
}

/* Checks `inputs`; gives the values of symbols, and all numbers that follow from them. */
static inline int NAME__numbers(const NAME_tensor *inputs, int64_t *symbols, int64_t *numbers, NAME_error *error) {
    int64_t sizes[NAME__SIZES + 1], *size = sizes;
    int status;
    if (error) error->code = NAME_OK, error->message[0] = 0;
    for (int i = 0; i < NAME_INPUTS; i++) {
        if ((status = NAME__check(&NAME__inputs[i], &inputs[i], NULL, NULL, error))) return status;
        if (NAME__integer[i]) {
            if (!inputs[i].data)
                return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' has no memory", NAME__inputs[i].name);
            memcpy(size++, inputs[i].data, 8);
        }
        for (int k = 0; k < NAME__inputs[i].rank; k++) *size++ = inputs[i].sizes[k];
    }
    NAME_bind(sizes, symbols);
    for (int k = 0; k < NAME__SYMBOLS; k++) {
        int64_t low = NAME__ranges[k].low, high = NAME__ranges[k].high, most = INT64_C(1) << 47;
        if (symbols[k] < low || symbols[k] > high || symbols[k] >= most || symbols[k] <= -most)
            return NAME__fail(error, NAME_BAD_ARGUMENT, "%s = %lld; the model was compiled for %lld to %lld", NAME__ranges[k].symbol,
                              (long long)symbols[k], (long long)low, (long long)high);
    }
    NAME_describe(symbols, numbers);
    for (int i = 0; i < NAME_INPUTS; i++) {
        int rank = NAME__inputs[i].rank;
        if (NAME__integer[i]) {
            int64_t given;
            memcpy(&given, inputs[i].data, 8);
            if (given != *numbers++)
                return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' is %lld; expected %lld", NAME__inputs[i].name,
                                  (long long)given, (long long)numbers[-1]);
            continue;
        }
        if ((status = NAME__check(&NAME__inputs[i], &inputs[i], numbers, numbers + rank, error))) return status;
        numbers += 2 * rank;
    }
    for (int i = 0; i < NAME_OUTPUTS; i++) numbers += 2 * NAME__outputs[i].rank;
    for (int k = 0; k < NAME__CONDITIONS; k++)
        if (!numbers[k])
            return NAME__fail(error, NAME_BAD_ARGUMENT, "the model was compiled for %s, which does not hold", NAME__conditions[k]);
    return NAME_OK;
}

/* where in the numbers those of results are */
static inline int64_t *NAME__of_outputs(int64_t *numbers) {
    for (int i = 0; i < NAME_INPUTS; i++) numbers += NAME__integer[i] ? 1 : 2 * NAME__inputs[i].rank;
    return numbers;
}

static inline size_t NAME__arena(const int64_t *numbers, int kind) {
    return (size_t)numbers[NAME__NUMBERS - NAME__KINDS + kind];
}

/* What inputs of these sizes give: dtype, sizes, strides and bytes of each output, and the bytes of an arena that fits any processor. */
static inline int NAME_shapes(const NAME_tensor *inputs, NAME_tensor *outputs, size_t *arena, NAME_error *error) {
    int64_t symbols[NAME__SYMBOLS + 1], numbers[NAME__NUMBERS + 1], *number = NAME__of_outputs(numbers);
    int status = NAME__numbers(inputs, symbols, numbers, error);
    if (status) return status;
    for (int i = 0; i < NAME_OUTPUTS; i++) {
        const NAME__type *type = &NAME__outputs[i];
        NAME_tensor x = {NULL, 0, type->dtype, type->rank, {0}, {0}};
        memcpy(x.sizes, number, sizeof(int64_t) * (size_t)type->rank);
        memcpy(x.strides, number + type->rank, sizeof(int64_t) * (size_t)type->rank);
        x.bytes = NAME__extent(x.sizes, x.strides, x.rank, type->itemsize);
        outputs[i] = x;
        number += 2 * type->rank;
    }
    if (arena) *arena = 0;
    for (int k = 0; arena && k < NAME__KINDS; k++)
        if (NAME__arena(numbers, k) > *arena) *arena = NAME__arena(numbers, k);
    return NAME_OK;
}

static inline int NAME__apart(const void *x, size_t x_bytes, const void *y, size_t y_bytes) {
    uintptr_t a = (uintptr_t)x, b = (uintptr_t)y;
    return a + x_bytes <= b || b + y_bytes <= a;
}

/* Of outputs, memory and its bytes are given, from NAME_allocate. arena: of the bytes that NAME_shapes told; NULL to allocate it here. */
static inline int NAME_run(const NAME_model *model, const NAME_tensor *inputs, NAME_tensor *outputs, void *arena,
                           NAME_error *error) {
    int64_t symbols[NAME__SYMBOLS + 1], numbers[NAME__NUMBERS + 1], failure[2] = {0, 0};
    void *arguments[NAME__PLACES + 1], *results[NAME_OUTPUTS + 1], *own = NULL;
    NAME_tensor shapes[NAME_OUTPUTS + 1];
    int status = NAME__numbers(inputs, symbols, numbers, error);
    if (status || (status = NAME_shapes(inputs, shapes, NULL, error))) return status;
    for (int i = 0; i < NAME_OUTPUTS; i++) {
        if (shapes[i].bytes > outputs[i].bytes)
            return NAME__fail(error, NAME_BAD_ARGUMENT, "%s takes %llu bytes, and has %llu", NAME__outputs[i].name,
                              (unsigned long long)shapes[i].bytes, (unsigned long long)outputs[i].bytes);
        if (shapes[i].bytes && (!outputs[i].data || (uintptr_t)outputs[i].data % 64))
            return NAME__fail(error, NAME_BAD_ARGUMENT, "%s has no memory, or memory at no multiple of 64 bytes",
                              NAME__outputs[i].name);
        for (int k = 0; k < NAME_INPUTS; k++)
            if (!NAME__apart(outputs[i].data, shapes[i].bytes, inputs[k].data,
                             NAME__extent(inputs[k].sizes, inputs[k].strides, inputs[k].rank, NAME__inputs[k].itemsize)))
                return NAME__fail(error, NAME_BAD_ARGUMENT, "%s and '%s' share memory", NAME__outputs[i].name,
                                  NAME__inputs[k].name);
        for (int k = 0; k < i; k++)
            if (!NAME__apart(outputs[i].data, shapes[i].bytes, outputs[k].data, shapes[k].bytes))
                return NAME__fail(error, NAME_BAD_ARGUMENT, "%s and %s share memory", NAME__outputs[i].name,
                                  NAME__outputs[k].name);
        shapes[i].data = results[i] = outputs[i].data;
        shapes[i].bytes = outputs[i].bytes;
        outputs[i] = shapes[i];
    }
    for (int i = 0; i < NAME_INPUTS; i++)
        for (int k = 0; k < NAME_INPUTS; k++)
            if (i != k && NAME__written[i] &&
                !NAME__apart(inputs[i].data, NAME__extent(inputs[i].sizes, inputs[i].strides, inputs[i].rank, NAME__inputs[i].itemsize),
                             inputs[k].data, NAME__extent(inputs[k].sizes, inputs[k].strides, inputs[k].rank, NAME__inputs[k].itemsize)))
                return NAME__fail(error, NAME_BAD_ARGUMENT, "'%s' and '%s' share memory, and the model writes to one",
                                  NAME__inputs[i].name, NAME__inputs[k].name);
    for (int k = 0; k < NAME__PLACES; k++) {
        int index = NAME__places[k].index;
        arguments[k] = NAME__places[k].kind == 0 ? model->weights[index] : inputs[index].data;
        if (NAME__places[k].kind == 2) memcpy(&arguments[k], inputs[index].data, 8);
    }
    size_t bytes = NAME__arena(numbers, model->kind);
    if (bytes && !arena && !(arena = own = NAME_allocate(bytes)))
        return NAME__fail(error, NAME_NO_MEMORY, "there are no %llu bytes for the arena", (unsigned long long)bytes);
    if ((uintptr_t)arena % 64)
        return NAME__fail(error, NAME_BAD_ARGUMENT, "the arena is at no multiple of 64 bytes");
    const NAME__kind *kind = &NAME__kinds[model->kind];
    int64_t site = kind->graph(arguments, results, symbols, arena, model->threads > 0 ? model->threads : 1, failure);
    free(own);
    if (site)
        return NAME__fail(error, NAME_FAILED, "%s: index %lld, size %lld", kind->sites[site - 1], (long long)failure[0],
                          (long long)failure[1]);
    return NAME_OK;
}

#ifdef __cplusplus
}
#endif
#endif
"""
