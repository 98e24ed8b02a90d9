/* The forms for 64-bit ARM, which all have NEON. What a function that returns a number has not done of a row is less
 * than a vector: that many bytes or pixels are done. */

#ifndef STOKER_NEON_H
#define STOKER_NEON_H

#include "axis.h"

#if defined(__aarch64__)
#pragma GCC visibility push(hidden)

/* ROWS rows, which hold all pixels that the axis names. */
void across_neon(const struct axis *axis, const uint8_t *const *rows, uint8_t *to, size_t stride);

int down_neon(
    const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int nbytes, uint8_t *to
);

/* A row of pixels without the bytes that nobody reads. */
int as_bytes_neon(uint8_t *to, const uint8_t *row, int width, int is_mirrored);

/* A row of pixels as floats of three planes, which are `plane` floats apart; 0: as three floats a pixel. */
int as_floats_neon(
    float *to, size_t plane, const uint8_t *row, int width, int is_mirrored, int by_division,
    const float *mean, const float *std
);

#pragma GCC visibility pop
#endif
#endif
