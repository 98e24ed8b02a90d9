/* One pass of a resampling: rows of pixels are made narrower or wider, or several become one. */

#ifndef STOKER_KERNELS_H
#define STOKER_KERNELS_H

#include "axis.h"

#pragma GCC visibility push(hidden)

enum simd simd_here(void);

/* Up to ROWS rows, of `available` pixels, to rows one behind the other by `stride` bytes: room is needed for
 * ROWS of them. */
void rows_across(
    enum simd simd, const struct axis *axis, const uint8_t *const *rows, int num_rows, int available,
    uint8_t *to, size_t stride
);

/* The axis's row `k` of these rows, `num_rows` at most, of `nbytes` each. */
void row_down(
    enum simd simd, const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int nbytes,
    uint8_t *to
);

#pragma GCC visibility pop
#endif
