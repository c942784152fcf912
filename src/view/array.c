#include "view/array.h"

#include "pack/dtype.h"

bool bpk_array_is_whole(const struct bpk_array *array) {
    uint64_t length;
    return array->dtype.kind == BPK_QFLOAT ||
           (bpk_dtype_shape_length(&array->dtype, array->dims, array->rank, &length) &&
            length == array->size);
}
