/* The pixels that a resampled one is made of, and what all its forms share. */

#ifndef STOKER_AXIS_H
#define STOKER_AXIS_H

#include <stddef.h>
#include <stdint.h>

#define PRECISION_BITS 22 /* of a weight: 32 less 8 of a pixel, less 2, for it may be negative, or above one */
#define SPLIT_BITS 15
#define HALF (1 << (PRECISION_BITS - 1))
#define GROUP 4 /* weights that are applied at once */
#define ROWS 4 /* that are made narrower or wider at once, with the same weights */

/* What a processor can: AVX512 all that AVX2 can; NEON is of 64-bit ARM. */
enum simd { PLAIN, AVX2, AVX512, NEON };

/* Which pixels each of the wanted ones is made of, and their weights. */
struct axis {
    int num;        /* of wanted pixels */
    int num_taps;   /* of each, a multiple of GROUP; those that are not needed weigh nothing */
    int32_t *first; /* where each begins, from the start of the rows or columns on */
    int16_t *high, *low; /* weight = high * 2^SPLIT_BITS + low */
};

static inline int32_t weight_at(const struct axis *axis, int k, int tap)
{
    size_t place = (size_t)k * axis->num_taps + tap;
    return axis->high[place] * (1 << SPLIT_BITS) + axis->low[place];
}

#endif
